"""Threading: base subjects, references, series, and the thread that a mail belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import islice

from postroom.mail.data import load
from postroom.mail.message import ParsedMessage
from postroom.mail.text.fold import as_key, fold
from postroom.model.mail.storage import NewMessage
from postroom.model.values import dataclass, late_pattern

_PREFIX = late_pattern(
    r"\s*+([^\W\d_]\w{0,19}(?: [^\W\d_]{1,12}){0,2})\.?"
    r"\s?(?:[\[(]\d{1,3}[\])]|[*^]\d{1,3})?\s?[:：]\s*+"
)
_TAG = late_pattern(r"\s*+\[[^\]\[]{1,60}\]\s*+")
_WAS = late_pattern(
    r"\s[(\[](?:was|war|était|era|var|oli|byl[oa]?|было|formerly)\b:? ([^()\[\]]{1,200}"
    r"(?:[\[(][^()\[\]]{1,60}[\])][^()\[\]]{0,200})?)[)\]]\s{0,9}$",
    re.IGNORECASE,
)
_FWD_TAIL = late_pattern(r"\s{1,9}\((?:fwd|forward)\)\s{0,9}$", re.IGNORECASE)
_MAX_PREFIXES = 50


@cache
def _prefixes(kind: str) -> frozenset[str]:
    return frozenset(load("subjects")[kind])


def base_subject(subject: str) -> str:
    """The subject without reply and forward prefixes and list tags, white space collapsed."""
    return _strip_prefixes(subject)[0]


def is_reply_subject(subject: str) -> bool:
    """Whether the subject has a reply prefix."""
    return any(prefix in _prefixes("reply") for prefix in _strip_prefixes(subject)[1])


def answered_subject(subject: str) -> str:
    """The `subject_key` of the mail that a subject claims to answer, empty if it claims none.

    `New title (was: Re: Old title)` answers the old title.
    """
    was = _WAS.search(" ".join(subject.split())[:2_000])
    if was is not None:
        return subject_key(was[1])
    return subject_key(subject) if is_reply_subject(subject) else ""


def without_reply_prefixes(subject: str) -> str:
    """The subject without `Re:` and its kin at its start; tags and `Fwd:` stay."""
    rest = " ".join(subject.split())
    for _ in range(_MAX_PREFIXES):
        match = _PREFIX.match(rest)
        if match is None or match[1].lower() not in _prefixes("reply"):
            break
        rest = rest[match.end() :]
    return rest


def _strip_prefixes(subject: str) -> tuple[str, list[str]]:
    prefixes: list[str] = []
    rest = " ".join(subject.split())[:2_000]
    for _ in range(_MAX_PREFIXES):
        if (match := _PREFIX.match(rest)) and _is_prefix(match[1]):
            prefixes.append(match[1].lower())
        elif not (match := _TAG.match(rest)) or not rest[match.end() :].strip():
            break
        rest = rest[match.end() :]
    rest = _FWD_TAIL.sub("", _WAS.sub("", rest))
    return rest.strip(), prefixes


def _is_prefix(word: str) -> bool:
    return word.lower() in _prefixes("reply") or word.lower() in _prefixes("forward")


_NUMBERED = late_pattern(
    r"(\d{1,3})\s?(?:/|of|von|de|di|van|av|af|из|z)\s?(\d{1,3})(?!\d)", re.IGNORECASE
)
_BRACKETS = late_pattern(r"\[([^\[\]]{1,80})\]")
_PART = late_pattern(
    r"(?:^|\s)[(\[]?(?:part|teil|partie|parte|deel|del|część|часть)\s?(\d{1,3})\s?"
    r"(?:/|of|von|de|di|van|av|af|из|z|sur)\s?(\d{1,3})(?!\d)|[(](\d{1,3})\s?(?:/|of)\s?(\d{1,3})[)]\s{0,9}$",
    re.IGNORECASE,
)
SERIES_WINDOW = timedelta(hours=6)
_SERIES_GAP = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """The place of a mail in a numbered series: `[TAG v2 3/7]`, `(3/7)`, `Part 3 of 7`."""

    tag: str
    total: int
    number: int


@lru_cache(4096)
def series_part(subject: str) -> SeriesPart | None:
    """The part of a series that a subject names; replies are no parts."""
    if not any(digit in subject for digit in "123456789") or is_reply_subject(subject):
        return None
    subject = " ".join(subject.split())[:500]
    for tags in _BRACKETS.findall(subject):
        if found := _NUMBERED.search(tags):
            tag = f"{tags[: found.start()]} {tags[found.end() :]}"
            return _series_part(tag, found[1], found[2])
    found = _PART.search(subject)
    if found is None:
        return None
    tag = " ".join(_BRACKETS.findall(subject))
    return _series_part(f"{tag} part", found[1] or found[3], found[2] or found[4])


def _series_part(tag: str, number: str, total: str) -> SeriesPart | None:
    is_part = 0 < int(number) <= int(total) and int(total) > 1
    is_cover = int(number) == 0 and int(total) > 0
    return SeriesPart(fold(tag), int(total), int(number)) if is_part or is_cover else None


@dataclass(frozen=True, slots=True)
class Sibling:
    """A mail of the same sender and time; `has_reference` if it names a mail that it answers."""

    thread_id: str
    subject: str
    has_reference: bool
    date: datetime


def choose_by_series(
    parsed: Threadable, siblings: Iterable[Sibling], *, date: datetime, joined: str | None
) -> tuple[str, ...]:
    """The threads that belong together with a part of a series, which is in `joined` so far.

    A part without any pointer belongs to the thread of a sibling that points into it; a part that
    points gets the threads of such orphans. A thread has each number once. A series that was
    sent without any pointers stays apart, and cover letters begin threads.
    """
    part = series_part(parsed.subject)
    if part is None:
        return ()
    same = [
        (sibling, found)
        for sibling in sorted(siblings, key=lambda sibling: abs(date - sibling.date))
        if abs(date - sibling.date) <= SERIES_WINDOW
        and (found := series_part(sibling.subject))
        and (found.tag, found.total) == (part.tag, part.total)
    ]
    numbers: dict[str | None, set[int]] = {joined: set()}
    for sibling, found in same:
        numbers.setdefault(sibling.thread_id, set()).add(found.number)
    pointing = {sibling.thread_id for sibling, _ in same if sibling.has_reference}
    dates = [sibling.date for sibling, _ in same if sibling.has_reference]
    if not thread_keys(parsed):
        fitting = (s.thread_id for s, _ in same if s.has_reference and s.thread_id != joined
                   and part.number not in numbers[s.thread_id]
                   and _is_sent_together(date, dates))  # fmt: skip
        return tuple(islice(fitting, 1 if part.number else 0))
    held = numbers[joined] | {part.number, 0}
    orphans: dict[str, None] = {}
    for sibling, found in same:
        is_near = _is_sent_together(sibling.date, [date, *dates])
        is_apart = sibling.thread_id not in pointing | {joined}
        if is_near and is_apart and found.number not in held:
            orphans[sibling.thread_id] = None
            held.add(found.number)
    return tuple(orphans)


def _is_sent_together(date: datetime, others: Iterable[datetime]) -> bool:
    """Whether a part is as near to the others as these are to each other, or half an hour.

    What comes later under a number of the series was sent again, or is another version.
    """
    known = sorted(others)
    if not known:
        return False
    return min(abs(date - one) for one in known) <= max(_SERIES_GAP, known[-1] - known[0])


WINDOW = timedelta(days=30)
_MAX_KEYS = 50
_NOBODY: frozenset[str] = frozenset()


Threadable = ParsedMessage | NewMessage
"""Messages that are parsed, and messages that are about to be stored."""


def thread_keys(parsed: Threadable) -> tuple[str, ...]:
    """Message-IDs that this mail answers, the direct parent first.

    RFC 5322 §3.6.4 puts the parent last in References. Where In-Reply-To names another mail
    than that, it takes precedence, because References lists are often truncated.
    """
    newest_first = parsed.references[::-1]
    parent = (parsed.in_reply_to,) if parsed.in_reply_to else ()
    keys = newest_first if parsed.in_reply_to in newest_first else (*parent, *newest_first)
    unique = dict.fromkeys(key for key in keys if key != parsed.internet_message_id)
    return tuple(unique)[:_MAX_KEYS]


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
    own_addresses: Set[str] = _NOBODY,
) -> str | None:
    """The thread that a mail without a usable reference continues, None for a new one.

    Careful, because two mails called "Invoice" are two conversations: the subject must claim
    to be a reply and say something, the thread must be alive within `WINDOW`, and the people
    must fit. `own_addresses` are the inbox's own: that a stranger writes to us proves nothing.
    """
    if thread_keys(parsed) or not answered_subject(parsed.subject):
        return None
    fitting = [
        candidate
        for candidate in candidates
        if abs(date - candidate.last_date) <= WINDOW
        and _people_fit(parsed, candidate, own_addresses)
    ]
    closest = min(fitting, key=lambda candidate: abs(date - candidate.last_date), default=None)
    return closest.thread_id if closest else None


def _people_fit(parsed: Threadable, candidate: Candidate, own_addresses: Set[str]) -> bool:
    """The sender wrote in the thread before, or answers somebody who did."""
    authors = {fold(person) for person in candidate.authors}
    sender = fold(parsed.sender.address) if parsed.sender else ""
    if sender and sender in authors:
        return True
    answered = authors & {
        fold(address.address) for address in parsed.addresses if address.role in ("to", "cc")
    }
    strangers = answered - {fold(person) for person in own_addresses}
    return bool(strangers) or bool(
        answered and sender in {fold(person) for person in candidate.participants}
    )
