"""The command line: read the table and you know it. Nothing here imports what it names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """A command on an operation. `plain` are arguments that need no option in front."""

    name: str
    operation: str
    plain: tuple[str, ...] = ()
    saves_to: str | None = None


@dataclass(frozen=True, slots=True)
class Own:
    """A command of the terminal alone: `module:command` in this package."""

    name: str
    place: str


TOP = {
    "serve": "Start the server: REST, and MCP over HTTP.",
    "mcp": "Serve an MCP client over stdin and stdout.",
    "account": "Mailboxes at providers: IMAP, Gmail, Outlook, Fastmail.",
    "inbox": "Addresses whose mail is kept.",
    "message": "Mail: list, read, move, label, answer.",
    "thread": "Conversations.",
    "attachment": "Files that came with mail.",
    "label": "Names put on messages.",
    "memory": "What agents know: keep, find, forget.",
    "search": "Find messages by text and filters.",
    "send": "Send a mail.",
    "import": "Take in mail from mbox, Maildir or .eml files.",
    "export": "Write the mail of an inbox to files, byte for byte.",
    "identity": "Addresses to send from.",
    "draft": "Mail that is not sent yet.",
    "outbox": "Mail on its way out.",
    "webhook": "URLs that are told what happens.",
    "events": "What happened to mail: list it, or watch it happen.",
    "rule": "Rules for mail: check, plan, apply, undo, test.",
    "audit": "Who did what, in a log that cannot be edited quietly.",
    "key": "Keys for programs and agents.",
    "config": "Show every setting and where it comes from.",
    "doctor": "Look for problems and name the fix of each.",
    "verify": "Check that all that is stored is whole.",
    "reparse": "Read stored mail again with the parser of today.",
    "completion": "Print what makes your shell complete commands.",
    "version": "Show the version.",
}
"""What there is at the top, in the order in which help shows it."""

COMMANDS: tuple[Bound | Own, ...] = (
    Own("serve", "serving:serve"),
    Own("mcp", "serving:mcp"),
    Own("account add", "accounts:add"),
    Bound("account list", "accounts.list_accounts"),
    Bound("account check", "accounts.check_account", ("account_id",)),
    Own("account login", "accounts:login"),
    Own("account sync", "accounts:sync"),
    Bound("account remove", "accounts.remove_account", ("account_id",)),
    Bound("account capabilities", "accounts.get_capabilities", ("account_id",)),
    Bound("inbox list", "inboxes.list_inboxes"),
    Bound("inbox create", "inboxes.create_inbox", ("address",)),
    Bound("inbox show", "inboxes.get_inbox", ("inbox_id",)),
    Bound("inbox rename", "inboxes.rename_inbox", ("inbox_id", "name")),
    Bound("inbox delete", "inboxes.delete_inbox", ("inbox_id",)),
    Bound("message list", "messages.list_messages", ("inbox_id",)),
    Bound("message show", "messages.get_message", ("message_id",)),
    Bound("message raw", "attachments.download_message", ("message_id",), saves_to="-"),
    Bound("message move", "messages.move_message", ("message_id", "destination")),
    Bound("message label", "messages.apply_label", ("label", "message_ids")),
    Bound("message flag", "messages.update_message", ("message_id", "flags")),
    Bound("message update", "messages.update_message", ("message_id",)),
    Bound("message delete", "messages.delete_message", ("message_id",)),
    Bound("message reply", "sending.reply_to_message", ("message_id",)),
    Bound("message forward", "sending.forward_message", ("message_id",)),
    Bound("message wait", "waiting.wait_for_message", ("inbox_id",)),
    Bound("message receive", "receiving.receive_message", ("recipient", "raw")),
    Bound("thread list", "threads.list_threads", ("inbox_id",)),
    Bound("thread show", "threads.get_thread", ("thread_id",)),
    Bound("thread merge", "threads.merge_threads", ("thread_ids",)),
    Bound("thread split", "threads.split_thread", ("thread_id", "message_ids")),
    Bound("attachment list", "attachments.list_attachments", ("message_id",)),
    Bound("attachment show", "attachments.get_attachment", ("attachment_id",)),
    Bound("attachment content", "attachments.get_attachment_content", ("attachment_id",)),
    Bound("attachment save", "attachments.download_attachment", ("attachment_id",), saves_to=""),
    Bound("label list", "messages.list_labels"),
    Bound("memory list", "memories.memory_list"),
    Bound("memory add", "memories.memory_add", ("key", "text")),
    Bound("memory show", "memories.memory_get", ("key",)),
    Bound("memory update", "memories.memory_update", ("key", "text")),
    Bound("memory delete", "memories.memory_delete", ("key",)),
    Bound("memory search", "recalling.memory_search", ("query",)),
    Bound("memory keywords", "recalling.memory_fulltext_search", ("keywords",)),
    Own("memory import", "memory:import_"),
    Own("memory export", "memory:export"),
    Bound("search", "messages.search_messages", ("q",)),
    Bound("send", "sending.send_message"),
    Own("import", "transfer:import_"),
    Own("export", "transfer:export"),
    Bound("identity list", "identities.list_identities", ("inbox_id",)),
    Bound("identity create", "identities.create_alias", ("email",)),
    Bound("identity update", "identities.update_identity", ("identity_id",)),
    Bound("draft create", "drafts.create_draft"),
    Bound("draft list", "drafts.list_drafts", ("inbox_id",)),
    Bound("draft show", "drafts.get_draft", ("draft_id",)),
    Bound("draft update", "drafts.update_draft", ("draft_id",)),
    Bound("draft delete", "drafts.delete_draft", ("draft_id",)),
    Bound("draft send", "drafts.send_draft", ("draft_id",)),
    Bound("outbox list", "outbox.list_outbox", ("status",)),
    Bound("outbox retry", "outbox.retry_message", ("message_id",)),
    Bound("outbox cancel", "outbox.cancel_message", ("message_id",)),
    Bound("outbox pause", "outbox.pause_outbox"),
    Bound("outbox resume", "outbox.resume_outbox"),
    Bound("webhook create", "webhooks.create_webhook", ("url",)),
    Bound("webhook list", "webhooks.list_webhooks"),
    Bound("webhook delete", "webhooks.delete_webhook", ("webhook_id",)),
    Bound("webhook renew", "webhooks.renew_webhook", ("webhook_id",)),
    Bound("webhook deliveries", "webhooks.list_deliveries", ("webhook_id",)),
    Bound("webhook redeliver", "webhooks.redeliver", ("webhook_id", "delivery_id")),
    Bound("events list", "events.list_events", ("inbox_id",)),
    Bound("events tail", "events.stream_events", ("inbox_id",)),
    Own("rule check", "rules:check"),
    Bound("rule create", "rules.create_rule", ("rule_yaml",)),
    Bound("rule list", "rules.list_rules"),
    Bound("rule show", "rules.get_rule", ("rule_id",)),
    Bound("rule update", "rules.update_rule", ("rule_id",)),
    Bound("rule delete", "rules.delete_rule", ("rule_id",)),
    Bound("rule plan", "rules.run_rule_plan", ("rule_id",)),
    Bound("rule read", "rules.get_rule_plan", ("plan_id",)),
    Bound("rule apply", "rules.apply_rule_plan", ("plan_id",)),
    Bound("rule undo", "rules.undo_rule_plan", ("plan_id",)),
    Own("rule test", "rules:test"),
    Bound("audit list", "audit.list_audit", ("target",)),
    Own("audit verify", "auditing:verify"),
    Bound("key create", "keys.create_key", ("name",)),
    Bound("key list", "keys.list_keys"),
    Bound("key delete", "keys.delete_key", ("key_id",)),
    Own("key reset", "serving:reset_key"),
    Own("config", "settings:config"),
    Own("doctor", "doctor:doctor"),
    Own("verify", "verify:verify"),
    Own("reparse", "reparse:reparse"),
    Own("completion", "settings:completion"),
    Own("version", "settings:version"),
)
