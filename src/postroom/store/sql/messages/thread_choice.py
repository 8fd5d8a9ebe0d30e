"""How a new message relates to what is stored: its thread, and the contacts of its inbox.

A contact is an address that the inbox has written to or heard from.
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from postroom.errors import NotFound, no_such
from postroom.mail.addresses import canonical_address
from postroom.mail.authentication import imitated, is_altered, shapes, site
from postroom.mail.text.fold import as_key
from postroom.mail.threads import (
    SERIES_WINDOW,
    WINDOW,
    Candidate,
    SeriesPart,
    Sibling,
    answered_subject,
    choose_by_reference,
    choose_by_series,
    choose_by_subject,
    series_part,
    thread_keys,
)
from postroom.model.message import Recipient
from postroom.model.storage import NewMessage
from postroom.store.sql.memories.memory_links import redirect_links
from postroom.store.sql.values import (
    any_of,
    from_text,
    inbox_number,
    insert_numbered,
    moment,
    scalar,
    seconds,
)
from postroom.store.transaction import Row, Transaction

_MAX_CANDIDATES = 20
_MAX_MESSAGES = 50
_MAX_RECENT = 1_000

COUNT_IN = """
    UPDATE threads
       SET message_count = message_count + 1,
           first_date = CASE WHEN first_date < :date THEN first_date ELSE :date END,
           last_date = CASE WHEN last_date > :date THEN last_date ELSE :date END
     WHERE inbox = :inbox AND number = :thread
"""
RECOUNT = """
    UPDATE threads SET (message_count, first_date, last_date) = (
        SELECT count(*), min(date), max(date) FROM messages
         WHERE +inbox = :inbox AND thread = :thread AND is_hidden = 0
    ) WHERE inbox = :inbox AND number = :thread
"""
HAS_MESSAGES = "SELECT 1 FROM messages WHERE +inbox = :inbox AND thread = :thread LIMIT 1"
INSERT_THREAD_ID = """
    INSERT INTO thread_ids (inbox, internet_id, thread) VALUES (:inbox, :internet_id, :thread)
    ON CONFLICT (inbox, internet_id) DO NOTHING
"""
INSERT_ALIASES = """
    INSERT INTO thread_aliases (id, thread, inbox)
    SELECT id, CAST(:into AS BIGINT), inbox FROM threads WHERE +inbox = :inbox AND number {among}
"""
NAMED = """
    SELECT number, inbox FROM threads WHERE id = :id
    UNION ALL
    SELECT thread, inbox FROM thread_aliases WHERE id = :id
"""
"""The number and inbox of a thread: a thread is found by its id once, then by both."""

KNOWN_IDS = """
    SELECT i.internet_id, t.number, t.id, t.is_pinned FROM thread_ids i
      JOIN threads t ON +t.inbox = +i.inbox AND t.number = i.thread
     WHERE i.inbox = :inbox AND i.internet_id {among}
"""
SAME_SUBJECT = """
    SELECT number, id, last_date FROM threads
     WHERE inbox = :inbox AND base_subject = :base_subject
       AND last_date BETWEEN :earliest AND :latest
     ORDER BY last_date DESC, number DESC LIMIT :limit
"""
SAME_SENDER = """
    SELECT n.thread, t.id, n.subject, n.details, n.date
      FROM (SELECT thread, subject, details, date, from_address FROM messages
             WHERE inbox = :inbox AND is_hidden = 0 AND date BETWEEN :earliest AND :latest
             ORDER BY date DESC, number DESC LIMIT :limit) AS n
      JOIN threads t ON t.inbox = :inbox AND t.number = n.thread
     WHERE n.from_address = :from_address AND t.is_pinned = 0
"""
IS_PINNED = "SELECT is_pinned FROM threads WHERE inbox = :inbox AND number = :thread"
ADDRESSES = """
    SELECT addresses FROM messages WHERE +inbox = :inbox AND thread = :thread
     ORDER BY date DESC, number DESC LIMIT :limit
"""


def choose_thread(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str]:
    """The number and id of the thread of a message; a new one if it continues none."""
    if message.thread_id is not None:
        return _named_thread(tx, message.thread_id)
    found = _by_reference(tx, message, inbox) or _by_subject(tx, message, inbox)
    if _part(message.subject) is not None:
        return _by_series(tx, message, inbox, found)
    return found or _new_thread(tx, message, inbox)


_part = lru_cache(4096)(series_part)


def _are_siblings(part: SeriesPart | None, subject: str) -> bool:
    """Whether a subject names a part of the same series."""
    other = _part(subject)
    return bool(part and other and (part.tag, part.total) == (other.tag, other.total))


def _by_series(
    tx: Transaction, message: NewMessage, inbox: int, found: tuple[int, str] | None
) -> tuple[int, str]:
    """The thread of a numbered part: with its siblings, if one of them points there."""
    part = _part(message.subject)
    rows = [row for row in _same_sender(tx, message, inbox) if _are_siblings(part, row[2])]
    numbers = {row[1]: row[0] for row in rows}
    siblings = [Sibling(row[1], row[2], _points(row[3]), moment(row[4])) for row in rows]
    joined = found[1] if found else None
    if found and scalar(tx, IS_PINNED, inbox=inbox, thread=found[0]):
        return found
    chosen = choose_by_series(message, siblings, date=message.date, joined=joined)
    if chosen and not thread_keys(message):
        into = (numbers[chosen[0]], chosen[0])
        if found:  # replies to it arrived before it did
            join_threads(tx, inbox, into[0], [found[0]])
        return into
    found = found or _new_thread(tx, message, inbox)
    if chosen:
        join_threads(tx, inbox, found[0], [numbers[other] for other in chosen])
    return found


def _same_sender(tx: Transaction, message: NewMessage, inbox: int) -> list[Row]:
    """Recent mails of the sender: thread number and id, subject, details and date."""
    return tx.all(
        SAME_SENDER,
        inbox=inbox,
        earliest=seconds(message.date - SERIES_WINDOW),
        latest=seconds(message.date + SERIES_WINDOW),
        limit=_MAX_RECENT,
        from_address=message.sender.address if message.sender else "",
    )


def _points(details: str) -> bool:
    """Whether a stored mail names a mail that it answers."""
    stored = from_text(details)
    return bool(stored["in_reply_to"] or stored["references"])


def _named_thread(tx: Transaction, thread_id: str) -> tuple[int, str]:
    row = tx.one(NAMED, id=thread_id)
    if row is None:
        raise NotFound(no_such("thread", thread_id))
    sql = "SELECT id FROM threads WHERE number = :number AND inbox = :inbox"
    return row[0], scalar(tx, sql, number=row[0], inbox=row[1]) or ""


def _by_reference(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str] | None:
    """The thread of the mails that a message refers to; several such threads are merged.

    The message's own id counts last: an earlier reply may have recorded it.
    """
    keys = [*thread_keys(message), *filter(None, [message.internet_message_id])]
    among, params = any_of("key", keys)
    rows = tx.all(KNOWN_IDS.format(among=among), inbox=inbox, **params)
    numbers = {row[2]: row[1] for row in rows}
    apart = {row[2] for row in rows if row[3]}
    chosen, merged = choose_by_reference(keys, {r[0]: r[2] for r in rows}, kept_apart=apart)
    if chosen is None:
        return None
    if merged:
        join_threads(tx, inbox, numbers[chosen], [numbers[other] for other in merged])
    return numbers[chosen], chosen


def join_threads(tx: Transaction, inbox: int, into: int, others: Sequence[int]) -> None:
    """Move all messages of some threads into one, whose aliases their ids become."""
    redirect_links(tx, inbox, into, others)
    among, params = any_of("thread", others)
    tx.put(INSERT_ALIASES.format(among=among), inbox=inbox, into=into, **params)
    for table in ("messages", "thread_ids", "thread_aliases"):
        tx.put(
            f"UPDATE {table} SET thread = :into WHERE +inbox = :inbox AND thread {among}",
            inbox=inbox,
            into=into,
            **params,
        )
    tx.put(f"DELETE FROM threads WHERE +inbox = :inbox AND number {among}", inbox=inbox, **params)
    tx.put(RECOUNT, inbox=inbox, thread=into)


def _by_subject(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str] | None:
    answered = answered_subject(message.subject)
    if not answered:
        return None
    rows = tx.all(
        SAME_SUBJECT,
        inbox=inbox,
        base_subject=answered,
        earliest=seconds(message.date - WINDOW),
        latest=seconds(message.date + WINDOW),
        limit=_MAX_CANDIDATES,
    )
    candidates = [_candidate(tx, inbox, row) for row in rows]
    own = tx.one("SELECT address FROM inboxes WHERE number = :inbox", inbox=inbox)
    chosen = choose_by_subject(message, candidates, date=message.date, own=frozenset(own or ()))
    return next(((row[0], row[1]) for row in rows if row[1] == chosen), None)


def _candidate(tx: Transaction, inbox: int, row: Row) -> Candidate:
    found = tx.all(ADDRESSES, inbox=inbox, thread=row[0], limit=_MAX_MESSAGES)
    lines = [line for (addresses,) in found for line in from_text(addresses)]
    return Candidate(
        thread_id=row[1],
        authors=frozenset(line[2] for line in lines if line[0] == "from"),
        participants=frozenset(line[2] for line in lines),
        last_date=moment(row[2]),
    )


def _new_thread(tx: Transaction, message: NewMessage, inbox: int) -> tuple[int, str]:
    thread_id = thread_id_of(message.id)
    number = insert_numbered(
        tx,
        "threads",
        id=thread_id,
        inbox=inbox,
        subject=message.subject,
        base_subject=message.base_subject,
        message_count=0,
    )
    return number, thread_id


def thread_id_of(message_id: str) -> str:
    """The id of the thread that a message begins, derived from the random id of the message."""
    digest = hashlib.sha256(f"thread of {message_id}".encode()).digest()
    return "thr_" + b32encode(digest[:16]).decode().rstrip("=").lower()


def count_in(tx: Transaction, inbox: int, thread: int, date: int, *, is_hidden: bool) -> None:
    """Count one more message in a thread."""
    if not is_hidden:
        tx.put(COUNT_IN, inbox=inbox, thread=thread, date=date)


def recount(tx: Transaction, inbox: int, thread: int) -> None:
    """Recompute the counts of a thread; a thread without messages is removed."""
    which = {"inbox": inbox, "thread": thread}
    if tx.one(HAS_MESSAGES, **which):
        tx.put(RECOUNT, **which)
        return
    for table in ("thread_ids", "thread_aliases"):
        tx.put(f"DELETE FROM {table} WHERE +inbox = :inbox AND thread = :thread", **which)
    tx.put("DELETE FROM threads WHERE inbox = :inbox AND number = :thread", **which)


def insert_thread_ids(tx: Transaction, message: NewMessage, inbox: int, thread: int) -> None:
    """Record the Message-IDs of a message and its references, for later replies."""
    own = message.internet_message_id
    keys = [*filter(None, [own]), *thread_keys(message)]
    rows = [{"inbox": inbox, "internet_id": key, "thread": thread} for key in keys]
    if rows:
        tx.many(INSERT_THREAD_ID, rows)


KNOWN_AFTER = 3

FIND = "SELECT message_count, is_known FROM contacts WHERE inbox = :inbox AND address = :address"
ADD = """
    INSERT INTO contacts (inbox, address, message_count, is_known)
    VALUES (:inbox, :address, :mails, 0)
    ON CONFLICT (inbox, address) DO NOTHING
"""
COUNT = """
    UPDATE contacts SET message_count = message_count + 1
     WHERE inbox = :inbox AND address = :address
"""
MAKE_KNOWN = """
    UPDATE contacts SET is_known = 1
     WHERE inbox = :inbox AND address = :address AND is_known = 0
"""
ADD_SHAPE = """
    INSERT INTO contact_skeletons (inbox, skeleton, domain) VALUES (:inbox, :skeleton, :domain)
    ON CONFLICT (inbox, skeleton, domain) DO NOTHING
"""
SIMILAR = "SELECT DISTINCT domain FROM contact_skeletons WHERE inbox = :inbox AND skeleton {among}"

BEGINNING = """
    SELECT address FROM contacts
     WHERE inbox = :inbox AND address >= :first AND address < :last AND is_known = 1
     ORDER BY address LIMIT :limit
"""

ARRIVAL_FINDINGS = ("first_time_sender", "imitates")
"""Findings about the sender that are made only on arrival."""

_REACHED = ("sent", "delivered", "unknown")
"""The statuses of recipients whom a mail has reached, or may have."""


def find_contacts(tx: Transaction, inbox_id: str, beginning: str, limit: int) -> tuple[str, ...]:
    """Addresses that are known to an inbox, by their beginning."""
    first = canonical_address(beginning.strip())
    span = {"first": first, "last": f"{first}\U0010ffff", "limit": limit}
    rows = tx.all(BEGINNING, inbox=inbox_number(tx, inbox_id) or 0, **span)
    return tuple(str(row[0]) for row in rows)


def update_contacts(
    tx: Transaction, message: NewMessage, inbox: int, own_address: str
) -> NewMessage:
    """Update the contacts of the inbox, and return the message with warnings about its sender."""
    if message.direction == "outbound":
        if message.recipients is None:  # sent elsewhere: it has left
            roles = ("to", "cc", "bcc")
            _add_written_to(tx, inbox, (a.address for a in message.addresses if a.role in roles))
        else:
            add_reached(tx, inbox, message.recipients)
        return message
    address = canonical_address(message.sender.address) if message.sender else ""
    if "@" not in address or not _is_stranger(tx, message, inbox, address):
        return message
    noticed: dict[str, object] = {"first_time_sender": True}
    if other := _imitated(tx, inbox, _domain(address), _domain(own_address)):
        noticed["imitates"] = other
    return replace(message, security={**message.security, **noticed})


def _is_stranger(tx: Transaction, message: NewMessage, inbox: int, address: str) -> bool:
    """Whether a sender is new; an address with hidden characters never becomes known."""
    if message.sender and is_altered(message.sender.address, message.security):
        return True
    if not message.adds_contact:
        return tx.one(FIND, inbox=inbox, address=as_key(address)) is None
    return _count_sender(tx, inbox, address)


def _count_sender(tx: Transaction, inbox: int, address: str) -> bool:
    """Count a mail of a sender who is not known yet; True if the sender is new."""
    key = as_key(address)
    row = tx.one(FIND, inbox=inbox, address=key)
    if row is None:
        tx.put(ADD, inbox=inbox, address=key, mails=1)
        return True
    mails, is_known = row
    if not is_known:
        tx.put(COUNT, inbox=inbox, address=key)
        if mails + 1 >= KNOWN_AFTER:
            _mark_known(tx, inbox, address)
    return False


def add_reached(tx: Transaction, inbox: int, recipients: Iterable[Recipient]) -> None:
    """Record whom a mail has reached: they are known from then on.

    Mail that waits makes nobody known, because it can still be taken back.
    """
    _add_written_to(tx, inbox, (r.address for r in recipients if r.status in _REACHED))


def _add_written_to(tx: Transaction, inbox: int, addresses: Iterable[str]) -> None:
    for address in dict.fromkeys(map(canonical_address, addresses)):
        if "@" in address:
            tx.put(ADD, inbox=inbox, address=as_key(address), mails=0)
            _mark_known(tx, inbox, address)


def _mark_known(tx: Transaction, inbox: int, address: str) -> None:
    if tx.run(MAKE_KNOWN, inbox=inbox, address=as_key(address)):
        domain = _domain(address)
        known = as_key(site(domain))
        rows = [{"inbox": inbox, "skeleton": s, "domain": known} for s in shapes(domain)]
        tx.many(ADD_SHAPE, rows)


def _imitated(tx: Transaction, inbox: int, domain: str, own_domain: str) -> str | None:
    """The known domain that the domain of a new sender imitates."""
    among, params = any_of("skeleton", sorted(shapes(domain)))
    similar = [row[0] for row in tx.all(SIMILAR.format(among=among), inbox=inbox, **params)]
    known = [site(own_domain), *sorted(similar)]
    return None if as_key(site(domain)) in known else imitated(domain, known)


def _domain(address: str) -> str:
    return address.rpartition("@")[2].rstrip(".")
