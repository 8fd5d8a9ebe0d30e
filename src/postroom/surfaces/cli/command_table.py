"""The table of commands. This module does not import the commands that it names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroom.model.values import dataclass

if TYPE_CHECKING:
    from postroom.calls.operation import Operation


@dataclass(frozen=True, slots=True)
class OperationCommand:
    """A command bound to an operation. `plain` are its positional arguments.

    `pin` fixes arguments, and `hide` leaves some out. Few create a store where there is none.
    """

    name: str
    operation: str
    plain: tuple[str, ...] = ()
    saves_to: str | None = None
    pin: tuple[tuple[str, str], ...] = ()
    hide: tuple[str, ...] = ()
    creates_store: bool = False
    help: str | None = None
    """The help, where the operation's description says too much."""


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """A command without an operation: `module:command` in `commands`."""

    name: str
    import_path: str


TOP_LEVEL_HELP = {
    "serve": "Start the server: REST, MCP over HTTP, and SMTP.",
    "worker": "Run background jobs in a separate process.",
    "mcp": "Serve an MCP client over stdin and stdout.",
    "web": "Print a link that signs you in to the web pages.",
    "account": "Mailboxes at providers: IMAP, Gmail, Outlook, Fastmail.",
    "inbox": "Addresses whose mail is stored.",
    "message": "Messages: list, read, move, label, reply.",
    "thread": "Threads of messages.",
    "attachment": "Attachments of messages.",
    "mailbox": "Mailboxes of an inbox, with counts.",
    "label": "Labels of messages.",
    "memory": "Memories: add, search, update, delete.",
    "search": "Find messages by text and filters.",
    "send": "Send a mail.",
    "import": "Import mail from mbox, Maildir or .eml files.",
    "export": "Export the mail of an inbox to files.",
    "identity": "Addresses to send from.",
    "draft": "Drafts.",
    "outbox": "Messages that wait to be sent, or for approval.",
    "policy": "Policies of inboxes: approval, recipients and senders.",
    "webhook": "URLs that are called when an event happens.",
    "events": "Events: list them, or follow them.",
    "rule": "Rules for mail: check, plan, apply, undo, test.",
    "audit": "The audit log; changes to it are detected.",
    "key": "Keys for programs and agents.",
    "config": "Show every setting and where it comes from.",
    "doctor": "Check the installation and suggest fixes.",
    "verify": "Check the stored data for damage.",
    "reparse": "Parse stored mail again with the current parser.",
    "migrate": "Move all data to another database or bucket.",
    "backup": "Write a backup; servers may keep running.",
    "restore": "Restore a backup.",
    "completion": "Print a shell completion script.",
    "version": "Show the version.",
}
"""Commands and groups, in the order of `postroom --help`."""

COMMANDS: tuple[OperationCommand | PlainCommand, ...] = (
    PlainCommand("serve", "serve:serve"),
    PlainCommand("worker", "serve:worker"),
    PlainCommand("mcp", "serve:mcp"),
    PlainCommand("web", "administration:web"),
    PlainCommand("account add", "accounts:add"),
    OperationCommand("account list", "accounts.list_accounts"),
    OperationCommand("account check", "accounts.check_account", ("account_id",)),
    PlainCommand("account login", "accounts:login"),
    PlainCommand("account sync", "accounts:sync"),
    OperationCommand("account remove", "accounts.remove_account", ("account_id",)),
    OperationCommand("account capabilities", "accounts.get_capabilities", ("account_id",)),
    OperationCommand("inbox list", "inboxes.list_inboxes"),
    OperationCommand("inbox create", "inboxes.create_inbox", ("address",), creates_store=True),
    OperationCommand("inbox show", "inboxes.get_inbox", ("inbox_id",)),
    OperationCommand("inbox rename", "inboxes.rename_inbox", ("inbox_id", "name")),
    OperationCommand("inbox delete", "inboxes.delete_inbox", ("inbox_id",)),
    OperationCommand("message list", "mail.messages.list_messages", ("inbox_id",)),
    OperationCommand("message show", "mail.messages.get_message", ("message_id",)),
    OperationCommand(
        "message raw", "mail.attachments.download_message", ("message_id",), saves_to="-"
    ),
    OperationCommand("message link", "mail.attachments.link_message", ("message_id",)),
    OperationCommand(
        "message move", "mail.message_changes.move_message", ("message_id", "destination")
    ),
    OperationCommand("message label", "mail.message_changes.apply_label", ("label", "message_ids")),
    OperationCommand(
        "message flag",
        "mail.message_changes.update_message",
        ("message_id", "flags"),
        help="Set the flags of a message; the list replaces the current one.",
    ),
    OperationCommand("message update", "mail.message_changes.update_message", ("message_id",)),
    OperationCommand(
        "message change",
        "mail.bulk_changes.update_messages",
        ("message_ids",),
        help="Change labels, flags and mailbox of messages. With --message-id, the change is made "
        "immediately; --filter makes a plan, which --plan-id applies. The undo_id in the response "
        "undoes the change: pass it to `postroom rule undo`.",
    ),
    OperationCommand("message delete", "mail.message_changes.delete_message", ("message_id",)),
    OperationCommand("message reply", "outgoing.sending.reply_to_message", ("message_id",)),
    OperationCommand("message forward", "outgoing.sending.forward_message", ("message_id",)),
    OperationCommand("message unsubscribe", "mail.unsubscribing.unsubscribe", ("message_id",)),
    OperationCommand("message wait", "mail.messages.wait_for_message", ("inbox_id",)),
    OperationCommand("message receive", "mail.inbound.receive_message", ("recipient", "raw")),
    OperationCommand("thread list", "mail.threads.list_threads", ("inbox_id",)),
    OperationCommand("thread show", "mail.threads.get_thread", ("thread_id",)),
    OperationCommand("thread merge", "mail.threads.merge_threads", ("thread_ids",)),
    OperationCommand("thread split", "mail.threads.split_thread", ("thread_id", "message_ids")),
    OperationCommand("attachment list", "mail.attachments.list_attachments", ("message_id",)),
    OperationCommand("attachment show", "mail.attachments.get_attachment", ("attachment_id",)),
    OperationCommand(
        "attachment content", "mail.attachments.get_attachment_content", ("attachment_id",)
    ),
    OperationCommand(
        "attachment text",
        "mail.attachments.get_attachment_content",
        ("attachment_id",),
        pin=(("format", "text"),),
        hide=("max_bytes",),
        help="Get the readable text of an attachment.",
    ),
    OperationCommand(
        "attachment save", "mail.attachments.download_attachment", ("attachment_id",), saves_to=""
    ),
    OperationCommand("attachment link", "mail.attachments.link_attachment", ("attachment_id",)),
    OperationCommand("mailbox list", "mail.message_changes.list_mailboxes", ("inbox_id",)),
    OperationCommand("label list", "mail.message_changes.list_labels"),
    OperationCommand("label rename", "mail.message_changes.rename_label", ("label", "name")),
    OperationCommand("label delete", "mail.message_changes.delete_label", ("label",)),
    OperationCommand("memory list", "memory_search.memory_list"),
    OperationCommand("memory add", "memories.memory_add", ("key", "text")),
    OperationCommand("memory show", "memories.memory_get", ("key",)),
    OperationCommand("memory update", "memories.memory_update", ("key", "text")),
    OperationCommand("memory delete", "memories.memory_delete", ("key",)),
    OperationCommand("memory search", "memory_search.memory_search", ("query",)),
    OperationCommand("memory keywords", "memory_search.memory_fulltext_search", ("keywords",)),
    PlainCommand("memory import", "files:import_memories"),
    PlainCommand("memory export", "files:export_memories"),
    OperationCommand("search", "mail.messages.search_messages", ("q",)),
    OperationCommand("send", "outgoing.sending.send_message"),
    PlainCommand("import", "files:import_"),
    PlainCommand("export", "files:export"),
    OperationCommand("identity list", "outgoing.identities.list_identities", ("inbox_id",)),
    OperationCommand("identity create", "outgoing.identities.create_alias", ("email",)),
    OperationCommand("identity update", "outgoing.identities.update_identity", ("identity_id",)),
    OperationCommand("identity delete", "outgoing.identities.delete_identity", ("identity_id",)),
    OperationCommand("draft create", "outgoing.drafts.create_draft"),
    OperationCommand("draft list", "outgoing.drafts.list_drafts", ("inbox_id",)),
    OperationCommand("draft show", "outgoing.drafts.get_draft", ("draft_id",)),
    OperationCommand("draft update", "outgoing.drafts.update_draft", ("draft_id",)),
    OperationCommand("draft delete", "outgoing.drafts.delete_draft", ("draft_id",)),
    OperationCommand("draft send", "outgoing.drafts.send_draft", ("draft_id",)),
    OperationCommand("outbox list", "outgoing.outbox.list_outbox", ("status",)),
    OperationCommand("outbox show", "outgoing.approvals.get_held_mail", ("message_id",)),
    PlainCommand("outbox approve", "administration:approve"),
    PlainCommand("outbox reject", "administration:reject"),
    OperationCommand("outbox retry", "outgoing.outbox.retry_message", ("message_id",)),
    OperationCommand("outbox cancel", "outgoing.outbox.cancel_message", ("message_id",)),
    OperationCommand("outbox pause", "outgoing.outbox.pause_outbox"),
    OperationCommand("outbox resume", "outgoing.outbox.resume_outbox"),
    OperationCommand("policy show", "outgoing.approvals.get_policy", ("inbox_id",)),
    OperationCommand("policy set", "outgoing.approvals.set_policy", ("inbox_id",)),
    OperationCommand("policy test", "outgoing.approvals.check_policy", ("raw",)),
    OperationCommand("webhook create", "webhooks.create_webhook", ("url",)),
    OperationCommand("webhook list", "webhooks.list_webhooks"),
    OperationCommand("webhook update", "webhooks.update_webhook", ("webhook_id",)),
    OperationCommand("webhook ping", "webhooks.ping_webhook", ("webhook_id",)),
    OperationCommand("webhook delete", "webhooks.delete_webhook", ("webhook_id",)),
    OperationCommand("webhook renew", "webhooks.renew_webhook", ("webhook_id",)),
    OperationCommand("webhook deliveries", "webhooks.list_deliveries", ("webhook_id",)),
    OperationCommand("webhook redeliver", "webhooks.redeliver", ("webhook_id", "delivery_id")),
    OperationCommand("events list", "webhooks.list_events", ("inbox_id",)),
    OperationCommand("events tail", "webhooks.stream_events", ("inbox_id",)),
    PlainCommand("rule check", "files:check"),
    OperationCommand("rule create", "rules.create_rule", ("rule_yaml",)),
    OperationCommand("rule list", "rules.list_rules"),
    OperationCommand("rule show", "rules.get_rule", ("rule_id",)),
    OperationCommand("rule update", "rules.update_rule", ("rule_id",)),
    OperationCommand("rule delete", "rules.delete_rule", ("rule_id",)),
    OperationCommand("rule plan", "rules.run_rule_plan", ("rule_id",)),
    OperationCommand("rule read", "rules.get_rule_plan", ("plan_id",)),
    OperationCommand("rule apply", "rules.apply_rule_plan", ("plan_id",)),
    OperationCommand("rule undo", "rules.undo_rule_plan", ("plan_id",)),
    PlainCommand("rule test", "files:test"),
    OperationCommand("audit list", "keys.list_audit", ("target",)),
    PlainCommand("audit verify", "administration:verify_audit"),
    OperationCommand("key create", "keys.create_key", ("name",)),
    OperationCommand("key list", "keys.list_keys"),
    OperationCommand("key update", "keys.update_key", ("key_id",)),
    OperationCommand("key delete", "keys.delete_key", ("key_id",)),
    PlainCommand("key reset", "serve:reset_key"),
    PlainCommand("config", "administration:config"),
    PlainCommand("doctor", "doctor:doctor"),
    PlainCommand("verify", "administration:verify"),
    PlainCommand("reparse", "administration:reparse"),
    PlainCommand("migrate", "backup:migrate"),
    PlainCommand("backup", "backup:backup"),
    PlainCommand("restore", "backup:restore"),
    PlainCommand("completion", "administration:completion"),
    PlainCommand("version", "administration:version"),
)


def operation_at(import_path: str) -> Operation[Any, Any]:
    """The operation of a row: `module.name` in `postroom.operations`."""
    module, _, name = import_path.rpartition(".")
    found: Operation[Any, Any] = getattr(import_module(f"postroom.operations.{module}"), name)
    return found
