"""Events, webhooks and deliveries; audit entries, chained by HMAC so that edits are detected."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Literal

from postroom.model.inbox import Visible
from postroom.model.mail.message import INTERNAL, Message
from postroom.model.memory import Namespaces
from postroom.model.page import Slice
from postroom.model.values import dataclass
from postroom.model.view import View

EventType = Literal[
    "message.received",
    "message.scheduled",
    "message.queued",
    "message.sent",
    "message.delivered",
    "message.captured",
    "message.deferred",
    "message.bounced",
    "message.failed",
    "message.unknown",
    "message.held",
    "message.approved",
    "message.rejected",
    "message.refused",
    "rule.matched",
    "rule.failed",
]

FIRST = "evt_0"
"""The cursor before the first event."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a message, written in the same transaction."""

    id: str
    type: str
    at: datetime
    inbox_id: str
    thread_id: str | None = None
    message_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    number: int = field(default=0, metadata=INTERNAL)
    visible_inboxes: View | None = field(default=None, metadata=INTERNAL)
    """The inboxes of the rule that it is about; None if it is about no rule."""

    def visible_to(self, visible: Visible) -> Event:
        """The event for a caller: a rule that does not exist for them is not named."""
        if self.visible_inboxes is None or visible.covers(self.visible_inboxes):
            return self
        return replace(self, data={})

    @property
    def is_imported(self) -> bool:
        """Whether the mail was imported: it ends no wait and is not sent to subscribers."""
        return bool(self.data.get("imported"))


@dataclass(frozen=True, slots=True)
class EventQuery:
    """A query for events, oldest first by default; all conditions must hold."""

    visible: Visible
    inbox_id: str | None = None
    message_id: str | None = None
    types: tuple[str, ...] = ()
    page: Slice = Slice()
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events as they happen; None if nothing happened for a while."""

    events: AsyncIterator[Event | None]


@dataclass(frozen=True, slots=True)
class Waited:
    """The message that was waited for, or the position from which to continue."""

    message: Message | None
    timed_out: bool
    extracted: str | None = None
    since: str | None = None


SIGNING_PREFIX = "whsec_"

_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
WEBHOOK_URL = (
    rf"^[Hh][Tt][Tt][Pp][Ss]?://(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:.]{{2,45}}\])"
    rf"(?::{_PORT})?(?:[/?#][!-\[\]-~]*)?$"
)
"""The form of a webhook's URL: a host name or an address, perhaps a port, and printable ASCII."""


def new_webhook_secret() -> str:
    """Create the secret that signs deliveries."""
    return SIGNING_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that gets events. `secret` is shown only when it is created or renewed."""

    id: str
    url: str
    types: tuple[str, ...]
    inboxes: View
    created_at: datetime
    enabled: bool = True
    secret: str | None = field(default=None, kw_only=True, repr=False)
    stopped: str | None = field(default=None, kw_only=True)
    """Why deliveries have stopped; None while active."""
    made_by: str | None = field(default=None, kw_only=True, metadata=INTERNAL)
    """The id of the key that created it; None if unknown."""


@dataclass(frozen=True, slots=True)
class WebhookChange:
    """What to change of a webhook; None leaves it as it is."""

    url: str | None = None
    types: tuple[str, ...] | None = None
    enabled: bool | None = None
    made_by: str | None = None
    """The key that it belongs to from now on."""


@dataclass(frozen=True, slots=True)
class WebhookPing:
    """The response to a request that was sent to try a webhook."""

    webhook_id: str
    status: Literal["delivered", "failed"]
    code: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event on its way to one webhook."""

    id: str
    webhook_id: str
    event_id: str
    type: str
    status: str
    attempts: int
    code: int | None
    detail: str
    created_at: datetime
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeliveryBody:
    """A delivery with its body as it would be sent now; None if its event is gone."""

    delivery: WebhookDelivery
    body: str | None


@dataclass(frozen=True, slots=True)
class WebhookJob:
    """A delivery that a worker has claimed; `webhook`, `inbox` and `number` are row numbers.

    `secrets` is empty if those of the webhook cannot be decrypted here.
    """

    webhook: int
    inbox: int
    number: int
    delivery_id: str
    url: str
    secrets: tuple[str, ...] = field(metadata=INTERNAL)
    event: Event | None
    attempts: int
    first_at: datetime
    holder: str
    webhook_id: str = ""
    made_by: str | None = None


@dataclass(frozen=True, slots=True)
class WebhookCapacity:
    """The limit of concurrent deliveries per webhook, and their current numbers."""

    each: int
    under_way: Mapping[int, int] = field(default_factory=dict)

    @property
    def full(self) -> list[int]:
        """The numbers of the webhooks at the limit."""
        return sorted(number for number, count in self.under_way.items() if count >= self.each)


EVERY_WEBHOOK = WebhookCapacity(each=2**31 - 1)
"""No limit."""


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """The response to a webhook delivery; without a code there was none."""

    code: int | None
    detail: str

    @property
    def is_success(self) -> bool:
        return self.code is not None and 200 <= self.code < 300


Via = Literal["rest", "mcp", "mcp-stdio", "cli", "web", "smtp", "rule", "sync"]
"""How a change was requested."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who acts and how; it is stored with the changes. `namespace` is that of a changed memory.

    Without `via`, an entry has that of the store which writes it.
    """

    actor: str
    action: str
    at: datetime
    targets: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    namespace: str | None = None
    via: Via | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One effect. `hash` depends on the entry, all previous entries and a key that is stored
    elsewhere.

    `via` is null in entries of versions before schema 41.
    """

    id: str
    at: datetime
    actor: str
    via: str | None
    action: str
    target: str
    details: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A query for entries, newest first; all conditions must hold."""

    visible: Visible
    namespaces: Namespaces
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    via: str | None = None
    after_date: datetime | None = None
    before_date: datetime | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """The result of a verification of the audit log; `is_complete` if it reached the end."""

    entries: int
    problems: tuple[str, ...]
    is_complete: bool = True

    @property
    def is_whole(self) -> bool:
        return not self.problems
