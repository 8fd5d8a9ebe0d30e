"""How a new message relates to what is stored: its thread, and the contacts of its inbox.

A contact is an address that the inbox has written to or heard from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from postroom.errors import NotFound, no_such
from postroom.mail.addresses import canonical_address
from postroom.mail.senders import (
    find_imitated_domain,
    is_altered,
    organizational_domain,
    skeleton_keys,
)
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
from postroom.model.mail.message import Recipient
from postroom.model.mail.storage import NewMessage
from postroom.store.sql.messages.thread_merging import join_threads
from postroom.store.sql.statements import (
    any_of,
    batches,
    from_text,
    inbox_number,
    insert_numbered,
    moment,
    padded,
    put_many,
    scalar,
    seconds,
)
from postroom.store.transaction import Row, Transaction

_MAX_CANDIDATES = 20
_MAX_MESSAGES = 50
_MAX_RECENT = 1_000

COUNT_IN = """
    UPDATE threads
       SET message_count = message_count + :count,
           first_date = CASE WHEN first_date < :first THEN first_date ELSE :first END,
           last_date = CASE WHEN last_date > :last THEN last_date ELSE :last END
     WHERE inbox = :inbox AND number = :thread
"""
INSERT_THREAD_ID = """
    INSERT INTO thread_ids (inbox, internet_id, thread) VALUES (:inbox, :internet_id, :thread)
    ON CONFLICT (inbox, internet_id) DO NOTHING
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


class InboxThreads:
    """The threads of an inbox, while a transaction adds messages to it.

    The threads of Message-IDs are read once. New Message-IDs and the counts of threads are written
    together by `write`; until then only this object knows them.
    """

    def __init__(self, tx: Transaction, inbox: int) -> None:
        self._tx, self.inbox = tx, inbox
        self._numbers: dict[str, int | None] = {}
        self._threads: dict[int, tuple[str, int]] = {}
        self._new_ids: dict[str, int] = {}
        self._answered: dict[str, tuple[str, ...]] = {}
        self._dates: dict[int, list[int]] = {}

    def known(self, keys: Sequence[str]) -> dict[str, tuple[int, str, int]]:
        """Number, id and pin of the thread of each Message-ID that has one."""
        self.read(keys)
        numbers = ((key, self._numbers[key]) for key in keys)
        return {key: (n, *self._threads[n]) for key, n in numbers if n is not None}

    def read(self, keys: Iterable[str]) -> None:
        """Read the threads of Message-IDs, except those that are known already."""
        for part in batches(key for key in keys if key not in self._numbers):
            self.write()
            among, params = any_of("key", padded(part))
            rows = self._tx.all(KNOWN_IDS.format(among=among), inbox=self.inbox, **params)
            self._numbers |= dict.fromkeys(part)
            self._numbers |= {row[0]: row[1] for row in rows}
            self._threads |= {row[1]: (row[2], row[3]) for row in rows}

    def answered(self, message: NewMessage) -> tuple[str, ...]:
        """The Message-IDs that a message answers."""
        if message.id not in self._answered:
            self._answered[message.id] = thread_keys(message)
        return self._answered[message.id]

    def message_ids(self, message: NewMessage) -> list[str]:
        """The Message-ID of a message, and those that it answers."""
        return [*filter(None, [message.internet_message_id]), *self.answered(message)]

    def is_pinned(self, thread: int) -> bool:
        known = self._threads.get(thread)
        pinned = known[1] if known else scalar(self._tx, IS_PINNED, inbox=self.inbox, thread=thread)
        return bool(pinned)

    def begin(self, message: NewMessage) -> tuple[int, str]:
        """The number and id of a new thread, which a message begins."""
        thread_id = thread_id_of(message.id)
        number = insert_numbered(
            self._tx,
            "threads",
            id=thread_id,
            inbox=self.inbox,
            subject=message.subject,
            base_subject=message.base_subject,
            message_count=0,
        )
        self._threads[number] = thread_id, 0
        return number, thread_id

    def add(self, message: NewMessage, thread: int, *, is_hidden: bool) -> None:
        """Record the Message-IDs that a message names for later replies, and count it."""
        for key in self.message_ids(message):
            if self._numbers.get(key) is None:
                self._new_ids.setdefault(key, thread)
                if key in self._numbers and thread in self._threads:
                    self._numbers[key] = thread
                else:  # it is read when it is asked for
                    self._numbers.pop(key, None)
        if not is_hidden:
            self._dates.setdefault(thread, []).append(seconds(message.date))

    def join(self, into: int, others: Sequence[int]) -> None:
        """Merge threads, also in what is known of them."""
        self.write()
        join_threads(self._tx, self.inbox, into, others)
        for key, number in self._numbers.items():
            if number in others:
                self._numbers[key] = into
        if into not in self._threads:  # they are read when they are asked for
            self._numbers.clear()

    def write(self) -> None:
        """Write the new Message-IDs, and the counts of the threads."""
        inbox = self.inbox
        ids = [{"inbox": inbox, "internet_id": k, "thread": t} for k, t in self._new_ids.items()]
        counts = [
            {"inbox": inbox, "thread": t, "count": len(d), "first": min(d), "last": max(d)}
            for t, d in self._dates.items()
        ]
        put_many(self._tx, INSERT_THREAD_ID, ids)
        put_many(self._tx, COUNT_IN, counts)
        self._new_ids.clear()
        self._dates.clear()


def choose_thread(tx: Transaction, message: NewMessage, threads: InboxThreads) -> tuple[int, str]:
    """The number and id of the thread of a message; a new one if it continues none."""
    if message.thread_id is not None:
        return _named_thread(tx, message.thread_id)
    found = _by_reference(message, threads) or _by_subject(tx, message, threads)
    if series_part(message.subject) is not None:
        return _by_series(tx, message, threads, found)
    return found or threads.begin(message)


def _are_siblings(part: SeriesPart | None, subject: str) -> bool:
    """Whether a subject names a part of the same series."""
    other = series_part(subject)
    return bool(part and other and (part.tag, part.total) == (other.tag, other.total))


def _by_series(
    tx: Transaction, message: NewMessage, threads: InboxThreads, found: tuple[int, str] | None
) -> tuple[int, str]:
    """The thread of a numbered part: with its siblings, if one of them points there."""
    part = series_part(message.subject)
    recent = _same_sender(tx, message, threads.inbox)
    rows = [row for row in recent if _are_siblings(part, row[2])]
    numbers = {row[1]: row[0] for row in rows}
    siblings = [Sibling(row[1], row[2], _points(row[3]), moment(row[4])) for row in rows]
    joined = found[1] if found else None
    if found and threads.is_pinned(found[0]):
        return found
    chosen = choose_by_series(message, siblings, date=message.date, joined=joined)
    if chosen and not threads.answered(message):
        into = (numbers[chosen[0]], chosen[0])
        if found:  # replies to it arrived before it did
            threads.join(into[0], [found[0]])
        return into
    found = found or threads.begin(message)
    if chosen:
        threads.join(found[0], [numbers[other] for other in chosen])
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


def _by_reference(message: NewMessage, threads: InboxThreads) -> tuple[int, str] | None:
    """The thread of the mails that a message refers to; several such threads are merged.

    The message's own id counts last: an earlier reply may have recorded it.
    """
    keys = [*threads.answered(message), *filter(None, [message.internet_message_id])]
    known = threads.known(keys)
    numbers = {thread_id: number for number, thread_id, _ in known.values()}
    apart = {thread_id for _, thread_id, is_pinned in known.values() if is_pinned}
    ids = {key: thread_id for key, (_, thread_id, _) in known.items()}
    chosen, merged = choose_by_reference(keys, ids, kept_apart=apart)
    if chosen is None:
        return None
    if merged:
        threads.join(numbers[chosen], [numbers[other] for other in merged])
    return numbers[chosen], chosen


def _by_subject(
    tx: Transaction, message: NewMessage, threads: InboxThreads
) -> tuple[int, str] | None:
    answered = answered_subject(message.subject)
    if not answered:
        return None
    threads.write()
    inbox = threads.inbox
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
    chosen = choose_by_subject(
        message, candidates, date=message.date, own_addresses=frozenset(own or ())
    )
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


def thread_id_of(message_id: str) -> str:
    """The id of the thread that a message begins: its random part is that of the message."""
    return f"thr_{message_id.partition('_')[2]}"


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
    if (FIND, inbox, key) in tx.known:
        return False
    row = tx.one(FIND, inbox=inbox, address=key)
    if row is None:
        tx.put(ADD, inbox=inbox, address=key, mails=1)
        return True
    mails, is_known = row
    if is_known:
        tx.known[FIND, inbox, key] = True
    else:
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
        known = as_key(organizational_domain(domain))
        rows = [{"inbox": inbox, "skeleton": s, "domain": known} for s in skeleton_keys(domain)]
        tx.many(ADD_SHAPE, rows)


def _imitated(tx: Transaction, inbox: int, domain: str, own_domain: str) -> str | None:
    """The known domain that the domain of a new sender imitates."""
    among, params = any_of("skeleton", sorted(skeleton_keys(domain)))
    similar = [row[0] for row in tx.all(SIMILAR.format(among=among), inbox=inbox, **params)]
    known = [organizational_domain(own_domain), *sorted(similar)]
    is_known = as_key(organizational_domain(domain)) in known
    return None if is_known else find_imitated_domain(domain, known)


def _domain(address: str) -> str:
    return address.rpartition("@")[2].rstrip(".")
