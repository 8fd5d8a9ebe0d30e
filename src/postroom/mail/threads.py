"""Which conversation a mail belongs to. Pure decisions; the store brings what it knows.

A mail is threaded in three steps:

1. `thread_keys(parsed)` names the Message-IDs it answers. The store looks them up together with
   the mail's own id among the ids it has *seen or heard of* in this inbox: a parent that has not
   come yet already belongs to the thread of its children.
2. `choose_by_reference(keys, known)` says which of those threads the mail joins, and which
   others turn out to be the same conversation.
3. Without a thread from step 2, the store offers recent threads of the same inbox with the same
   `subject_key` to `choose_by_subject`. Without one from there, the mail opens a new thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from postroom.mail.fold import fold
from postroom.mail.keying import as_key
from postroom.mail.subjects import base_subject, is_reply_subject

__all__ = [
    "WINDOW", "Candidate", "base_subject", "choose_by_reference", "choose_by_subject",
    "is_reply_subject", "subject_key", "thread_keys",
]  # fmt: skip

WINDOW = timedelta(days=30)
_MOST_KEYS = 50
_NOBODY: frozenset[str] = frozenset()


class Correspondent(Protocol):
    """Somebody in one of the address headers of a mail."""

    @property
    def role(self) -> str: ...
    @property
    def address(self) -> str: ...


class Threadable(Protocol):
    """What a mail tells about its conversation; a parsed message and a stored one both do."""

    @property
    def subject(self) -> str: ...
    @property
    def sender(self) -> Correspondent | None: ...
    @property
    def addresses(self) -> Sequence[Correspondent]: ...
    @property
    def internet_message_id(self) -> str | None: ...
    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def references(self) -> tuple[str, ...]: ...


def thread_keys(parsed: Threadable) -> tuple[str, ...]:
    """Message-IDs that this mail answers, the direct parent first.

    RFC 5322 §3.6.4 puts the parent last in References. Where In-Reply-To names another mail
    than that, it is believed first: it names one mail, while lists of ids get cut.
    """
    newest_first = parsed.references[::-1]
    parent = (parsed.in_reply_to,) if parsed.in_reply_to else ()
    keys = newest_first if parsed.in_reply_to in newest_first else (*parent, *newest_first)
    unique = dict.fromkeys(key for key in keys if key != parsed.internet_message_id)
    return tuple(unique)[:_MOST_KEYS]


def choose_by_reference(
    keys: Iterable[str], known: Mapping[str, str], *, kept_apart: Set[str] = _NOBODY
) -> tuple[str | None, tuple[str, ...]]:
    """The thread to join, and the threads to merge into it.

    `keys` are the thread keys and then the mail's own id, `known` the thread of each id that
    the inbox has seen or heard of. A reply joins its parent's thread even if older ancestors
    were split off; `kept_apart` are threads that somebody split by hand, which never merge.
    """
    threads = list(dict.fromkeys(known[key] for key in keys if key in known))
    if not threads:
        return None, ()
    first, *others = threads
    return first, tuple(other for other in others if not {first, other} & kept_apart)


def subject_key(subject: str) -> str:
    """The form in which base subjects are compared."""
    return as_key(fold(base_subject(subject)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recent thread of the same inbox with the same `subject_key`.

    `authors` are the addresses that wrote in it; `participants` also those that were written to.
    """

    thread_id: str
    authors: frozenset[str]
    participants: frozenset[str]
    last_date: datetime


def choose_by_subject(
    parsed: Threadable,
    candidates: Iterable[Candidate],
    *,
    date: datetime,
    own: Set[str] = _NOBODY,
) -> str | None:
    """The thread that a mail without a usable reference continues, None for a new one.

    Careful, because two mails called "Invoice" are two conversations: the subject must claim
    to be a reply and say something, the thread must be alive within `WINDOW`, and the people
    must fit. `own` are the inbox's own addresses: that a stranger writes to us proves nothing.
    """
    if thread_keys(parsed) or not is_reply_subject(parsed.subject):
        return None
    if not subject_key(parsed.subject):
        return None
    fitting = [
        candidate
        for candidate in candidates
        if abs(date - candidate.last_date) <= WINDOW and _people_fit(parsed, candidate, own)
    ]
    if not fitting:
        return None
    return min(fitting, key=lambda candidate: abs(date - candidate.last_date)).thread_id


def _people_fit(parsed: Threadable, candidate: Candidate, own: Set[str]) -> bool:
    """The sender wrote in the thread before, or answers somebody who did."""
    authors = {fold(person) for person in candidate.authors}
    sender = fold(parsed.sender.address) if parsed.sender else ""
    if sender and sender in authors:
        return True
    answered = authors & {
        fold(address.address) for address in parsed.addresses if address.role in ("to", "cc")
    }
    strangers = answered - {fold(person) for person in own}
    return bool(strangers) or bool(
        answered and sender in {fold(person) for person in candidate.participants}
    )
