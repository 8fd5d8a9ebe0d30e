"""Values that operations answer with. Made by scripts/make_client.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from msgspec import field

from postroom.client.responses import ABSENT, Value
from postroom.client.values.mail import Attachment, Header, Message, Recipient
from postroom.client.values.memories import Hold, RecipientLists


class Account(Value, frozen=True):
    """A login at a provider, whose mail is synced with one inbox.

    `synced` counts the stored messages. `total` is what the provider counts, if it does,
    until all was read once; after that it would only be old. `detail` says what is wrong and what
    to do; `last_refusal` is what the provider refused last, which needs nothing to be done.
    """

    id: str = ""
    provider: str = ""
    address: str = ""
    inbox_id: str = ""
    state: str = ""
    detail: str = ""
    synced: int = 0
    total: int | None = None
    synced_at: datetime | None = None
    created_at: datetime = ABSENT
    last_refusal: RefusedChange | None = None


class AuditEntry(Value, frozen=True):
    """One effect. `hash` depends on the entry, all previous entries and a key that is stored
    elsewhere.

    `via` is null in entries of versions before schema 41.
    """

    id: str = ""
    at: datetime = ABSENT
    actor: str = ""
    via: str | None = None
    action: str = ""
    target: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    hash: str = ""


class Capabilities(Value, frozen=True):
    """The features that one account, or the local inboxes, support.

    `has_labels` says whether labels reach the provider; if not, they are stored in Postroom only.
    """

    provider: str = ""
    has_threading: bool = False
    has_server_side_rules: bool = False
    max_attachment_size_mb: int = 0
    rate_limits: RateLimits = ABSENT
    has_labels: bool = False
    has_push: bool = False
    can_send: bool = False
    can_create_alias: bool = False
    account_id: str | None = None
    address: str | None = None
    state: str | None = None
    last_refusal: RefusedChange | None = None


class CapabilityReport(Capabilities, frozen=True):
    """The same, with every account that the caller may use."""

    accounts: tuple[Capabilities, ...] = ()


class Draft(Value, frozen=True, rename={"from_": "from"}):
    """A mail that can be reviewed and changed before it is sent, immediately or at `send_at`."""

    id: str = ""
    inbox_id: str = ""
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    subject: str = ""
    body_text: str | None = None
    body_html: str | None = None
    in_reply_to: str | None = None
    thread_id: str | None = None
    attachments: tuple[DraftFile, ...] = ()
    send_at: datetime | None = None
    created_at: datetime = ABSENT
    updated_at: datetime = ABSENT
    reply_to: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    from_: str | None = None


class DraftFile(Value, frozen=True):
    """A file of a draft: an uploaded one, or a stored attachment."""

    filename: str | None = None
    content_type: str | None = None
    size: int | None = None
    attachment_id: str | None = None


class DryRunPlan(Value, frozen=True):
    """What a rule would do: one page of its messages, each with actions and reasons."""

    plan_id: str = ""
    rule_id: str | None = None
    created_at: datetime = ABSENT
    expires_at: datetime = ABSENT
    total_matches: int = 0
    actions_by_type: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    matched_messages: tuple[dict[str, Any], ...] = ()
    count: int = 0
    total: int = 0
    total_count: int = 0
    limit: int = 0
    offset: int = 0
    has_more: bool = False
    next_cursor: str | None = None


class EarlierMail(Value, frozen=True):
    """The content of a mail before it was cancelled and changed, or rejected and rewritten.

    `files` are the names of its attachments, `note` is why it was rejected.
    """

    message_id: str = ""
    recipients: tuple[str, ...] = ()
    subject: str = ""
    text: str = ""
    files: tuple[str, ...] = ()
    note: str | None = None


class Event(Value, frozen=True):
    """Something that happened to a message, written in the same transaction."""

    id: str = ""
    type: str = ""
    at: datetime = ABSENT
    inbox_id: str = ""
    thread_id: str | None = None
    message_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


class HeldMail(Value, frozen=True):
    """A mail that waits for approval, as the person who decides sees it.

    `answers` is the message that it replies to, and `answered_text` what that says. `text` has what
    a reader sees of an HTML mail, `body_html` all of it, and `hidden_chars` counts the rest.
    `bcc_addresses` has every recipient that the mail itself does not name, `new_recipients` those
    that its inbox has never written to or heard from. `authors` are the keys that wrote it, by name
    for those who may know it. `replaces` is the mail before it, if it was changed.
    """

    message_id: str = ""
    inbox_id: str = ""
    from_address: str = ""
    to_addresses: tuple[str, ...] = ()
    cc_addresses: tuple[str, ...] = ()
    bcc_addresses: tuple[str, ...] = ()
    recipients: tuple[Recipient, ...] = ()
    subject: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    status: str = ""
    hold: Hold = ABSENT
    send_at: datetime | None = None
    answers: str | None = None
    answered_text: str | None = None
    body_html: str | None = None
    hidden_chars: int = 0
    reply_to: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    authors: tuple[str, ...] = ()
    new_recipients: tuple[str, ...] = ()
    replaces: EarlierMail | None = None


class Identity(Value, frozen=True):
    """An address to send from. The signature is sanitised HTML."""

    id: str = ""
    email: str = ""
    name: str = ""
    signature: str = ""
    inbox_id: str = ""
    account_id: str | None = None
    is_default: bool = False


class Key(Value, frozen=True):
    """A caller with scopes. `key` is the secret itself, shown once, when it is made.

    A key that is limited to inboxes or accounts has no namespaces but those that it names, whenever
    it was made: memories hold what came out of any mail.
    """

    id: str = ""
    name: str = ""
    scopes: tuple[str, ...] = ()
    inboxes: tuple[str, ...] | None = None
    namespaces: tuple[str, ...] | None = None
    accounts: tuple[str, ...] | None = None
    created_at: datetime = ABSENT
    last_used_at: datetime | None = None
    expires_at: datetime | None = None
    key: str | None = None
    approval: str = ""
    recipients: RecipientLists = ABSENT
    signed_in: bool | None = None
    SECRETS: ClassVar = frozenset(["key"])


class OutboxEntry(Value, frozen=True):
    """A sent message that waits in the outbox, or failed.

    One that `is_paused` waits until the outbox is resumed.
    """

    message_id: str = ""
    thread_id: str = ""
    inbox_id: str = ""
    subject: str = ""
    status: str = ""
    recipients: tuple[Recipient, ...] = ()
    attempts: int = 0
    queued_at: datetime = ABSENT
    next_attempt_at: datetime | None = None
    is_paused: bool = False
    send_at: datetime | None = None
    hold: Hold | None = None


class OutboxState(Value, frozen=True):
    """Whether the outbox is paused, and how much mail waits."""

    is_paused: bool = False
    waiting: int = 0


class RateLimits(Value, frozen=True):
    """The maximum rate of requests to a provider."""

    requests_per_second: int = 0
    burst: int = 0


class RefusedChange(Value, frozen=True):
    """A change of a message that its provider did not make: what, when and why."""

    at: datetime = ABSENT
    message_id: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    detail: str = ""


class Rule(Value, frozen=True):
    """A saved rule. `inboxes` are those it was created for, and the only ones on which it runs."""

    id: str = ""
    name: str = ""
    description: str = ""
    enabled: bool = False
    position: int = 0
    yaml: str = ""
    created_at: datetime = ABSENT
    updated_at: datetime = ABSENT
    warnings: tuple[str, ...] | None = None


class Sent(Value, frozen=True):
    """The response to every send. `status` is the worst of the recipients'.

    `send_at` is set while it is scheduled, `draft_id` once it was cancelled and is a draft again.
    """

    message_id: str = ""
    thread_id: str = ""
    status: str = ""
    recipients: tuple[Recipient, ...] = ()
    deduplicated: bool | None = None
    warnings: tuple[str, ...] | None = None
    send_at: datetime | None = None
    draft_id: str | None = None


class Unsubscribed(Value, frozen=True):
    """How the sender of a list was notified: a request was `accepted`, or a mail has its status."""

    message_id: str = ""
    method: str = ""
    status: str = ""
    host: str | None = None
    mailto: str | None = None
    sent_message_id: str | None = None
    warnings: tuple[str, ...] | None = None


class Waited(Value, frozen=True):
    """The message that was waited for, or the position from which to continue."""

    message: Message | None = None
    timed_out: bool = False
    extracted: str | None = None
    since: str | None = None


class Webhook(Value, frozen=True):
    """A URL that gets events. `secret` is shown only when it is created or renewed."""

    id: str = ""
    url: str = ""
    types: tuple[str, ...] = ()
    inboxes: tuple[str, ...] | None = None
    created_at: datetime = ABSENT
    enabled: bool = False
    secret: str | None = None
    stopped: str | None = None
    SECRETS: ClassVar = frozenset(["secret"])


class WebhookDelivery(Value, frozen=True):
    """One event on its way to one webhook."""

    id: str = ""
    webhook_id: str = ""
    event_id: str = ""
    type: str = ""
    status: str = ""
    attempts: int = 0
    code: int | None = None
    detail: str = ""
    created_at: datetime = ABSENT
    next_attempt_at: datetime | None = None


class WebhookPing(Value, frozen=True):
    """The response to a request that was sent to try a webhook."""

    webhook_id: str = ""
    status: str = ""
    code: int | None = None
    detail: str = ""
