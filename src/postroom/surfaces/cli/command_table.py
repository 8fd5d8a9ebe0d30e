"""The table of commands. Nothing here imports what it names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroom.model.values import dataclass

if TYPE_CHECKING:
    from postroom.calls.operation import Operation


@dataclass(frozen=True, slots=True)
class Bound:
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
class Own:
    """A command without an operation: `module:command` in `commands`."""

    name: str
    place: str


TOP = {
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
    "label": "Names put on messages.",
    "memory": "Memories: add, search, update, delete.",
    "search": "Find messages by text and filters.",
    "send": "Send a mail.",
    "import": "Import mail from mbox, Maildir or .eml files.",
    "export": "Export the mail of an inbox to files.",
    "identity": "Addresses to send from.",
    "draft": "Drafts.",
    "outbox": "Messages that wait to be sent, or for approval.",
    "policy": "What mail of an inbox needs before it leaves, and whose mail it takes.",
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

COMMANDS: tuple[Bound | Own, ...] = (
    Own("serve", "serve:serve"),
    Own("worker", "serve:worker"),
    Own("mcp", "serve:mcp"),
    Own("web", "administration:web"),
    Own("account add", "accounts:add"),
    Bound("account list", "accounts.list_accounts"),
    Bound("account check", "accounts.check_account", ("account_id",)),
    Own("account login", "accounts:login"),
    Own("account sync", "accounts:sync"),
    Bound("account remove", "accounts.remove_account", ("account_id",)),
    Bound("account capabilities", "accounts.get_capabilities", ("account_id",)),
    Bound("inbox list", "inboxes.list_inboxes"),
    Bound("inbox create", "inboxes.create_inbox", ("address",), creates_store=True),
    Bound("inbox show", "inboxes.get_inbox", ("inbox_id",)),
    Bound("inbox rename", "inboxes.rename_inbox", ("inbox_id", "name")),
    Bound("inbox delete", "inboxes.delete_inbox", ("inbox_id",)),
    Bound("message list", "mail.messages.list_messages", ("inbox_id",)),
    Bound("message show", "mail.messages.get_message", ("message_id",)),
    Bound("message raw", "mail.attachments.download_message", ("message_id",), saves_to="-"),
    Bound("message link", "mail.attachments.link_message", ("message_id",)),
    Bound("message move", "mail.message_changes.move_message", ("message_id", "destination")),
    Bound("message label", "mail.message_changes.apply_label", ("label", "message_ids")),
    Bound(
        "message flag",
        "mail.message_changes.update_message",
        ("message_id", "flags"),
        help="Set the flags of a message; the list replaces the present one.",
    ),
    Bound("message update", "mail.message_changes.update_message", ("message_id",)),
    Bound("message change", "mail.bulk_changes.update_messages", ("message_ids",)),
    Bound("message delete", "mail.message_changes.delete_message", ("message_id",)),
    Bound("message reply", "outgoing.sending.reply_to_message", ("message_id",)),
    Bound("message forward", "outgoing.sending.forward_message", ("message_id",)),
    Bound("message unsubscribe", "mail.unsubscribing.unsubscribe", ("message_id",)),
    Bound("message wait", "mail.messages.wait_for_message", ("inbox_id",)),
    Bound("message receive", "inbound.receive_message", ("recipient", "raw")),
    Bound("thread list", "mail.threads.list_threads", ("inbox_id",)),
    Bound("thread show", "mail.threads.get_thread", ("thread_id",)),
    Bound("thread merge", "mail.threads.merge_threads", ("thread_ids",)),
    Bound("thread split", "mail.threads.split_thread", ("thread_id", "message_ids")),
    Bound("attachment list", "mail.attachments.list_attachments", ("message_id",)),
    Bound("attachment show", "mail.attachments.get_attachment", ("attachment_id",)),
    Bound("attachment content", "mail.attachments.get_attachment_content", ("attachment_id",)),
    Bound(
        "attachment text",
        "mail.attachments.get_attachment_content",
        ("attachment_id",),
        pin=(("format", "text"),),
        hide=("max_bytes",),
        help="Get the readable text of an attachment.",
    ),
    Bound(
        "attachment save", "mail.attachments.download_attachment", ("attachment_id",), saves_to=""
    ),
    Bound("attachment link", "mail.attachments.link_attachment", ("attachment_id",)),
    Bound("mailbox list", "mail.message_changes.list_mailboxes", ("inbox_id",)),
    Bound("label list", "mail.message_changes.list_labels"),
    Bound("label rename", "mail.message_changes.rename_label", ("label", "name")),
    Bound("label delete", "mail.message_changes.delete_label", ("label",)),
    Bound("memory list", "memory_search.memory_list"),
    Bound("memory add", "memories.memory_add", ("key", "text")),
    Bound("memory show", "memories.memory_get", ("key",)),
    Bound("memory update", "memories.memory_update", ("key", "text")),
    Bound("memory delete", "memories.memory_delete", ("key",)),
    Bound("memory search", "memory_search.memory_search", ("query",)),
    Bound("memory keywords", "memory_search.memory_fulltext_search", ("keywords",)),
    Own("memory import", "files:import_memories"),
    Own("memory export", "files:export_memories"),
    Bound("search", "mail.messages.search_messages", ("q",)),
    Bound("send", "outgoing.sending.send_message"),
    Own("import", "files:import_"),
    Own("export", "files:export"),
    Bound("identity list", "outgoing.identities.list_identities", ("inbox_id",)),
    Bound("identity create", "outgoing.identities.create_alias", ("email",)),
    Bound("identity update", "outgoing.identities.update_identity", ("identity_id",)),
    Bound("identity delete", "outgoing.identities.delete_identity", ("identity_id",)),
    Bound("draft create", "outgoing.drafts.create_draft"),
    Bound("draft list", "outgoing.drafts.list_drafts", ("inbox_id",)),
    Bound("draft show", "outgoing.drafts.get_draft", ("draft_id",)),
    Bound("draft update", "outgoing.drafts.update_draft", ("draft_id",)),
    Bound("draft delete", "outgoing.drafts.delete_draft", ("draft_id",)),
    Bound("draft send", "outgoing.drafts.send_draft", ("draft_id",)),
    Bound("outbox list", "outgoing.outbox.list_outbox", ("status",)),
    Bound("outbox show", "outgoing.approvals.get_held_mail", ("message_id",)),
    Own("outbox approve", "administration:approve"),
    Own("outbox reject", "administration:reject"),
    Bound("outbox retry", "outgoing.outbox.retry_message", ("message_id",)),
    Bound("outbox cancel", "outgoing.outbox.cancel_message", ("message_id",)),
    Bound("outbox pause", "outgoing.outbox.pause_outbox"),
    Bound("outbox resume", "outgoing.outbox.resume_outbox"),
    Bound("policy show", "outgoing.approvals.get_policy", ("inbox_id",)),
    Bound("policy set", "outgoing.approvals.set_policy", ("inbox_id",)),
    Bound("policy test", "outgoing.approvals.check_policy", ("raw",)),
    Bound("webhook create", "webhooks.create_webhook", ("url",)),
    Bound("webhook list", "webhooks.list_webhooks"),
    Bound("webhook update", "webhooks.update_webhook", ("webhook_id",)),
    Bound("webhook ping", "webhooks.ping_webhook", ("webhook_id",)),
    Bound("webhook delete", "webhooks.delete_webhook", ("webhook_id",)),
    Bound("webhook renew", "webhooks.renew_webhook", ("webhook_id",)),
    Bound("webhook deliveries", "webhooks.list_deliveries", ("webhook_id",)),
    Bound("webhook redeliver", "webhooks.redeliver", ("webhook_id", "delivery_id")),
    Bound("events list", "webhooks.list_events", ("inbox_id",)),
    Bound("events tail", "webhooks.stream_events", ("inbox_id",)),
    Own("rule check", "files:check"),
    Bound("rule create", "rules.create_rule", ("rule_yaml",)),
    Bound("rule list", "rules.list_rules"),
    Bound("rule show", "rules.get_rule", ("rule_id",)),
    Bound("rule update", "rules.update_rule", ("rule_id",)),
    Bound("rule delete", "rules.delete_rule", ("rule_id",)),
    Bound("rule plan", "rules.run_rule_plan", ("rule_id",)),
    Bound("rule read", "rules.get_rule_plan", ("plan_id",)),
    Bound("rule apply", "rules.apply_rule_plan", ("plan_id",)),
    Bound("rule undo", "rules.undo_rule_plan", ("plan_id",)),
    Own("rule test", "files:test"),
    Bound("audit list", "keys.list_audit", ("target",)),
    Own("audit verify", "administration:verify_audit"),
    Bound("key create", "keys.create_key", ("name",)),
    Bound("key list", "keys.list_keys"),
    Bound("key update", "keys.update_key", ("key_id",)),
    Bound("key delete", "keys.delete_key", ("key_id",)),
    Own("key reset", "serve:reset_key"),
    Own("config", "administration:config"),
    Own("doctor", "doctor:doctor"),
    Own("verify", "administration:verify"),
    Own("reparse", "administration:reparse"),
    Own("migrate", "backup:migrate"),
    Own("backup", "backup:backup"),
    Own("restore", "backup:restore"),
    Own("completion", "administration:completion"),
    Own("version", "administration:version"),
)


def operation_at(place: str) -> Operation[Any, Any]:
    """The operation of a row: `module.name` in `postroom.operations`."""
    module, _, name = place.rpartition(".")
    found: Operation[Any, Any] = getattr(import_module(f"postroom.operations.{module}"), name)
    return found
