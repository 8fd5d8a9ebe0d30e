"""Values that operations answer with. Made by scripts/make_client.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from msgspec import field

from postroom.client.value import ABSENT, Value
from postroom.client.values.memories import RecipientLists


class Account(Value, frozen=True):
    """A login at a provider, whose mail is kept in one inbox.

    `synced` counts the messages that are here. `total` is what the provider counts, if it does,
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


class Capabilities(Value, frozen=True):
    """What can be done with the mail of one account, or of the local inboxes.

    `has_labels` says whether labels reach the provider; if not, they are kept here only.
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


class Identity(Value, frozen=True):
    """An address one may send from. The signature is HTML, made harmless."""

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


class RateLimits(Value, frozen=True):
    """How fast we ask a provider at most."""

    requests_per_second: int = 0
    burst: int = 0


class RefusedChange(Value, frozen=True):
    """A change of a message that its provider did not make: what, when and why."""

    at: datetime = ABSENT
    message_id: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    detail: str = ""


class Rule(Value, frozen=True):
    """A rule that is kept. `inboxes` are those it was made for, and the only ones it runs on."""

    id: str = ""
    name: str = ""
    description: str = ""
    enabled: bool = False
    position: int = 0
    yaml: str = ""
    created_at: datetime = ABSENT
    updated_at: datetime = ABSENT
    warnings: tuple[str, ...] | None = None
