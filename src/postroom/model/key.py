"""Callers and what they may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from postroom.model.inbox import Visible
from postroom.model.memory import Namespaces


class Scope(StrEnum):
    """What a key allows. Nothing includes another: a key that reads and sends has both."""

    READ = "read"
    WRITE = "write"
    SEND = "send"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Key:
    """A caller with scopes. `key` is the secret itself, shown once, when it is made."""

    id: str
    name: str
    scopes: tuple[str, ...]
    inboxes: tuple[str, ...] | None
    namespaces: tuple[str, ...] | None
    accounts: tuple[str, ...] | None
    created_at: datetime
    last_used_at: datetime | None
    key: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking. `key_id` names whose limits and idempotency keys apply.

    `is_owner` says that it is the owner who speaks, and not an agent with the owner's rights.
    `secret_hash` finds the key again, for as long as there is one.
    """

    key_id: str
    scopes: frozenset[Scope] = ALL_SCOPES
    inboxes: Visible = None
    is_metered: bool = True
    accounts: frozenset[str] | None = None
    namespaces: Namespaces = None
    is_owner: bool = False
    secret_hash: bytes | None = field(default=None, repr=False, compare=False)


OWNER = Caller(key_id="owner", is_metered=False, is_owner=True)
"""The person at the terminal."""

OWNERS_AGENT = Caller(key_id="owner", is_metered=False)
"""The agent that they started over stdio: it may do the same, but its word is not theirs."""

POSTING = Caller(key_id="inbound", scopes=frozenset({Scope.WRITE}))
"""A provider that posts mail to us: it has no key, and its own signature is checked instead."""
