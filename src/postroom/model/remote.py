"""Mail as a provider has it: where it is, how it stands, what changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

Checkpoint = dict[str, Any]
"""How far we have read a provider, in its own terms; JSON."""


class RemoteRef(NamedTuple):
    """One place of a message at its provider.

    `scope` is what a provider numbers messages within: a mailbox of one UIDVALIDITY, a folder, or
    nothing where ids hold for the whole account.
    """

    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class RemoteMessage:
    """How a message stands at its provider.

    `labels` is None where a provider keeps none; `untold` are flags that it does not know.
    """

    ref: RemoteRef
    mailboxes: tuple[str, ...]
    flags: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    arrived_at: datetime | None = None
    size_bytes: int = 0
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteChanges:
    """Something that changed at a provider, and the checkpoint that holds once it is stored.

    `dropped` are scopes that are gone with all that was in them. `total` is how many messages
    there are in all, where it is known. After a part that `is_partial`, other mailboxes were not
    looked at: what is gone from one may be in another.
    """

    checkpoint: Checkpoint
    messages: tuple[RemoteMessage, ...] = ()
    gone: tuple[RemoteRef, ...] = ()
    dropped: tuple[str, ...] = ()
    total: int | None = None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Unfetched:
    """A message that its provider has and did not give out, and when it is asked for again."""

    ref: RemoteRef
    attempts: int
    next_at: datetime


@dataclass(frozen=True, slots=True)
class RemoteIdentity:
    """An address that a provider lets us send from."""

    email: str
    name: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Push:
    """A change that we made and the provider does not know yet.

    `refs` are the places where the message is, each with its mailboxes. A draft of what was not
    sent has none: it is found by its Message-ID. `recipients` are all to whom a copy in Sent went.
    """

    number: int
    message_id: str
    kind: Literal["change", "delete", "save_sent", "drop_draft"]
    refs: tuple[tuple[RemoteRef, tuple[str, ...]], ...] = ()
    add_flags: tuple[str, ...] = ()
    remove_flags: tuple[str, ...] = ()
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    move_to: str | None = None
    raw: str | None = None
    internet_message_id: str | None = None
    recipients: tuple[str, ...] = ()
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a push was given up, and how the message stands at its provider instead."""

    why: str
    at: datetime
    there: tuple[RemoteMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did to the places of a message: those it left, and those it is in now."""

    left: tuple[RemoteRef, ...] = ()
    entered: tuple[tuple[RemoteRef, tuple[str, ...]], ...] = ()
