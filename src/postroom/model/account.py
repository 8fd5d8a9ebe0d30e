"""Logins at providers, and what each of them can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from postroom.model.message import INTERNAL

ProviderName = Literal["imap", "gmail", "outlook", "fastmail"]
PROVIDERS: tuple[ProviderName, ...] = ("imap", "gmail", "outlook", "fastmail")
AccountState = Literal["new", "syncing", "ready", "failing", "needs_reauth"]


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change of a message that its provider did not make: what, when and why."""

    at: datetime
    message_id: str
    change: dict[str, Any]
    detail: str


@dataclass(frozen=True, slots=True)
class Account:
    """A login at a provider, whose mail is kept in one inbox.

    `synced` counts the messages that are here. `total` is what the provider counts, if it does,
    until all was read once; after that it would only be old. `detail` says what is wrong and what
    to do; `last_refusal` is what the provider refused last, which needs nothing to be done.
    """

    id: str
    provider: ProviderName
    address: str
    inbox_id: str
    state: AccountState
    detail: str
    synced: int
    total: int | None
    synced_at: datetime | None
    created_at: datetime
    last_refusal: RefusedChange | None = None
    options: dict[str, Any] = field(default_factory=dict, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How fast we ask a provider at most."""

    requests_per_second: int
    burst: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done with the mail of one account, or of the local inboxes.

    `has_labels` says whether labels reach the provider; if not, they are kept here only.
    """

    provider: str
    has_threading: bool
    has_server_side_rules: bool
    max_attachment_size_mb: int
    rate_limits: RateLimits
    has_labels: bool
    has_push: bool
    can_send: bool
    can_create_alias: bool
    account_id: str | None = None
    address: str | None = None
    state: str | None = None
    last_refusal: RefusedChange | None = None
    # How large a whole mail, its files, decoded and together, and what is left of it without them
    # may be by the provider's word.
    mail_bytes: int | None = field(default=None, metadata=INTERNAL)
    files_bytes: int | None = field(default=None, metadata=INTERNAL)
    text_bytes: int | None = field(default=None, metadata=INTERNAL)
    # Whose mailbox it is, by an id of the provider's, and its address; None where nobody says.
    owner: str | None = field(default=None, metadata=INTERNAL)
    owner_address: str | None = field(default=None, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class CapabilityReport(Capabilities):
    """The same, with every account that the caller may use."""

    accounts: tuple[Capabilities, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """An address one may send from. The signature is HTML, made harmless."""

    id: str
    email: str
    name: str
    signature: str
    inbox_id: str
    account_id: str | None
    is_default: bool
