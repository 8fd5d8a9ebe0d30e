"""Which conversation a mail belongs to. Pure decisions; the store brings the candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from postroom.mail.fold import fold
from postroom.mail.subjects import base_subject, is_reply_subject

__all__ = ["Candidate", "Threadable", "base_subject", "choose_thread", "is_reply_subject", "subject_key",
           "thread_keys"]  # fmt: skip

_REPLY_WINDOW = timedelta(days=60)
_MOST_KEYS = 50


class HasAddress(Protocol):
    """Somebody with an address."""

    @property
    def address(self) -> str: ...


class Threadable(Protocol):
    """What a mail tells about its conversation; a parsed message and a stored one both do."""

    @property
    def subject(self) -> str: ...
    @property
    def addresses(self) -> Sequence[HasAddress]: ...
    @property
    def internet_message_id(self) -> str | None: ...
    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def references(self) -> tuple[str, ...]: ...


def thread_keys(parsed: Threadable) -> tuple[str, ...]:
    """Message-IDs that this mail answers, the most telling first.

    The direct parent comes first (RFC 5322 §3.6.4 puts it last in References), then older
    ancestors: a reply joins its parent's thread even if older ancestors were split off.
    """
    keys = [parsed.in_reply_to] if parsed.in_reply_to else []
    newest_first = [*reversed(parsed.references)]
    if newest_first and parsed.in_reply_to not in parsed.references:
        keys = [*keys, *newest_first]
    else:
        keys = newest_first or keys
    unique = dict.fromkeys(key for key in keys if key != parsed.internet_message_id)
    return tuple(unique)[:_MOST_KEYS]


def subject_key(subject: str) -> str:
    """The form in which base subjects are compared; empty if it says too little to join by."""
    return fold(base_subject(subject))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recent thread of the same inbox with the same `subject_key`."""

    thread_id: str
    participants: frozenset[str]
    last_date: datetime


def choose_thread(
    parsed: Threadable, candidates: Iterable[Candidate], *, date: datetime
) -> str | None:
    """The thread that a mail without a usable reference continues, None for a new one.

    Only a mail whose subject claims to be a reply, within the window, from or to somebody
    who took part: two mails called "Invoice" are two conversations.
    """
    if thread_keys(parsed) or not is_reply_subject(parsed.subject):
        return None
    people = {fold(address.address) for address in parsed.addresses if address.address}
    near = [
        candidate
        for candidate in candidates
        if abs(date - candidate.last_date) <= _REPLY_WINDOW
        and people & {fold(person) for person in candidate.participants}
    ]
    return min(near, key=lambda c: abs(date - c.last_date)).thread_id if near else None
