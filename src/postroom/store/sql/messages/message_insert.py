"""Storing a message: duplicates, thread, contacts, index and events, in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Literal

from postroom.errors import NotFound, no_such
from postroom.mail.text.fold import folded_addresses
from postroom.model.inbox import HIDDEN_MAILBOXES
from postroom.model.mail.message import findings_of
from postroom.model.mail.storage import Added, NewMessage
from postroom.model.view import Numbers
from postroom.store.search.index import buffer_row
from postroom.store.sql.events import (
    MessageRef,
    add_event,
    add_outcomes,
    count_mail,
    event_row,
    subscribers,
)
from postroom.store.sql.messages.mailboxes import canonical_mailboxes
from postroom.store.sql.messages.thread_choice import (
    InboxThreads,
    choose_thread,
    update_contacts,
)
from postroom.store.sql.outbox.queue import apply_report
from postroom.store.sql.rules import apply_rule_effects
from postroom.store.sql.statements import (
    any_of,
    batches,
    caseless,
    dumps,
    flag_bits,
    insert_many,
    insert_numbered,
    padded,
    seconds,
    within,
)
from postroom.store.transaction import Transaction

Table = Literal["labels", "mailboxes"]
Name = tuple[int, str]
"""The number and the original spelling of a label or mailbox."""

_HIDDEN = frozenset(caseless(name) for name in HIDDEN_MAILBOXES)


def is_hidden(mailboxes: Sequence[str]) -> bool:
    """Whether a message in these mailboxes is left out of lists."""
    return all(caseless(name) in _HIDDEN for name in mailboxes)


def name_of(tx: Transaction, table: Table, inbox: int, name: str) -> tuple[int, str]:
    """The number and the original spelling of a label or mailbox, which is created if it is new."""
    folded = caseless(name)
    known: tuple[int, str] | None = tx.known.get((table, inbox, folded))
    if known is None:
        known = tx.known[table, inbox, folded] = _look_up(tx, table, inbox, name, folded)
    return known


def _look_up(tx: Transaction, table: Table, inbox: int, name: str, folded: str) -> tuple[int, str]:
    row = tx.one(
        f"SELECT number, name FROM {table} WHERE inbox = :inbox AND folded = :folded",
        inbox=inbox,
        folded=folded,
    )
    if row is None:
        return insert_numbered(tx, table, inbox=inbox, name=name, folded=folded), name
    return row[0], row[1]


def numbers_by_name(tx: Transaction, table: Table, name: str, inboxes: Numbers) -> list[int]:
    """The numbers of a label or mailbox name, one per inbox that has it."""
    where, params = within("inbox", inboxes)
    rows = tx.all(
        f"SELECT number FROM {table} WHERE folded = :folded AND {where}",
        folded=caseless(name),
        **params,
    )
    return [row[0] for row in rows]


SAME_MESSAGE_ID = """
    SELECT m.id, t.id, m.fingerprint
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.inbox = :inbox AND m.internet_id = :internet_id AND m.is_outbound = :is_outbound
     ORDER BY m.number
"""
SAME_BYTES = """
    SELECT m.id, t.id
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.raw = :raw AND m.inbox = :inbox AND m.is_outbound = :is_outbound
     ORDER BY m.number
"""
STORED_IDS = "SELECT internet_id FROM messages WHERE inbox = :inbox AND internet_id {among}"
SET_NAMES = """
    UPDATE messages SET mailboxes = :mailboxes, labels = :labels
     WHERE inbox = :inbox AND number = :message
"""


def add_message(tx: Transaction, message: NewMessage) -> Added:
    """Store one message. Raises NotFound when its inbox was removed."""
    return add_messages(tx, [message])[0]


def add_messages(tx: Transaction, messages: Sequence[NewMessage]) -> list[Added]:
    """Store each message; duplicates are not stored. Raises NotFound."""
    by_inbox: dict[str, list[NewMessage]] = {}
    for message in messages:
        by_inbox.setdefault(message.inbox_id, []).append(message)
    rows = NewRows(tx)
    inboxes = {
        inbox_id: NewMessages(tx, rows, inbox_id, in_inbox)
        for inbox_id, in_inbox in by_inbox.items()
    }
    added = [inboxes[message.inbox_id].add(message) for message in messages]
    for inbox in inboxes.values():
        inbox.threads.write()
    rows.write()
    return added


class NewMessages:
    """Adds messages to an inbox. What they refer to is read once for several of them."""

    def __init__(
        self, tx: Transaction, rows: NewRows, inbox_id: str, messages: Sequence[NewMessage]
    ) -> None:
        self._tx, self._rows = tx, rows
        self._inbox, self._own_address = _inbox(tx, inbox_id)
        self.threads = InboxThreads(tx, self._inbox)
        self._stored_ids: set[str] | None = None
        if len(messages) > 1:
            self.threads.read(dict.fromkeys(chain(*map(self.threads.message_ids, messages))))
            ids = dict.fromkeys(m.internet_message_id for m in messages if m.internet_message_id)
            self._stored_ids = _stored_ids(tx, self._inbox, ids)

    def add(self, message: NewMessage) -> Added:
        tx, inbox = self._tx, self._inbox
        known, defects = self._duplicate(message)
        if known is not None:
            return known
        if any(action.type == "move" for effect in message.effects for action in effect.actions):
            mailboxes = canonical_mailboxes(tx, message.mailboxes, inbox)
            message = replace(message, mailboxes=mailboxes)
        hidden = is_hidden(message.mailboxes)
        if not hidden or message.direction == "outbound":
            message = update_contacts(tx, message, inbox, self._own_address)
        thread, thread_id = choose_thread(tx, message, self.threads)
        places = [name_of(tx, "mailboxes", inbox, name) for name in message.mailboxes]
        labels = [name_of(tx, "labels", inbox, name) for name in message.labels]
        number = _insert(tx, message, inbox, thread, defects, _display_columns(places, labels))
        self.threads.add(message, thread, is_hidden=hidden)
        _add_places(self._rows, inbox, number, places, labels)
        add_texts(self._rows, message, inbox, number)
        self._rows.add("search_buffer", **buffer_row(number, inbox))
        add_attachments(self._rows, message, inbox, number, [a.id for a in message.attachments])
        self._add_events(message, MessageRef(inbox, thread_id, message.id))
        return Added(message.id, thread_id, is_duplicate=False)

    def _duplicate(self, message: NewMessage) -> tuple[Added | None, tuple[str, ...]]:
        """The message that this one duplicates, or its defects."""
        own = message.internet_message_id
        if own is None or self._stored_ids is None:
            return _duplicate(self._tx, message, self._inbox)
        if own not in self._stored_ids:
            self._stored_ids.add(own)
            return None, message.defects
        return _duplicate(self._tx, message, self._inbox)

    def _add_events(self, message: NewMessage, about: MessageRef) -> None:
        """Add the events of a message, and what rules and reports do because of it."""
        tx, is_report = self._tx, message.report is not None and message.direction == "inbound"
        if message.direction == "inbound":
            self._rows.add_received(message, about)
        if not (message.recipients or message.effects or is_report):
            return
        self.threads.write()
        self._rows.write()
        if message.direction == "outbound":
            add_outcomes(tx, message.recipients or (), message.received_at, about)
        apply_rule_effects(tx, message.effects, about, message.inbox_id, message.received_at)
        if message.report is not None and is_report:
            apply_report(tx, about.inbox, message.report, message.received_at)


class NewRows:
    """Rows that nothing reads while messages are added; each table gets them together."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._rows: dict[str, list[dict[str, object]]] = {}
        self._received: Counter[tuple[int, datetime]] = Counter()
        self._is_subscribed: dict[int, bool] = {}

    def add(self, table: str, **columns: object) -> None:
        self._rows.setdefault(table, []).append(columns)

    def add_received(self, message: NewMessage, about: MessageRef) -> None:
        """Add the event of a received message; one that goes to webhooks needs its number now."""
        at = message.received_at
        data: dict[str, object] = {
            "from_address": message.sender.address if message.sender else "",
            "subject": message.subject[:250],
            **({"imported": True} if message.is_imported else {}),
        }
        if message.is_imported or not self._has_subscribers(about.inbox):
            self.add("events", **event_row("message.received", at, about, data))
        else:
            self.write()
            add_event(self._tx, "message.received", at, about, data)
        if not message.is_imported:
            self._received[about.inbox, at] += 1

    def _has_subscribers(self, inbox: int) -> bool:
        if inbox not in self._is_subscribed:
            self._is_subscribed[inbox] = bool(subscribers(self._tx, "message.received", inbox))
        return self._is_subscribed[inbox]

    def write(self) -> None:
        """Insert the rows, and count the received mail."""
        if "events" in self._rows:
            self._tx.announce("events")
        for table, rows in self._rows.items():
            insert_many(self._tx, table, rows)
        for (inbox, at), count in self._received.items():
            count_mail(self._tx, "received", inbox, at, count=count)
        for written in (self._rows, self._received, self._is_subscribed):
            written.clear()


def _stored_ids(tx: Transaction, inbox: int, ids: Iterable[str]) -> set[str]:
    """Those of some Message-IDs that messages of an inbox have."""
    found: set[str] = set()
    for part in batches(ids):
        among, params = any_of("key", padded(part))
        found.update(
            row[0] for row in tx.all(STORED_IDS.format(among=among), inbox=inbox, **params)
        )
    return found


def _inbox(tx: Transaction, inbox_id: str) -> tuple[int, str]:
    """The number and address of an inbox. Raises NotFound."""
    known: tuple[int, str] | None = tx.known.get(("inbox", inbox_id))
    if known is None:
        row = tx.one("SELECT number, address FROM inboxes WHERE id = :id", id=inbox_id)
        if row is None:
            raise NotFound(no_such("inbox", inbox_id))
        known = tx.known["inbox", inbox_id] = (row[0], row[1])
    return known


def _duplicate(
    tx: Transaction, message: NewMessage, inbox: int
) -> tuple[Added | None, tuple[str, ...]]:
    """The message that this one duplicates, or its defects.

    A sent mail and its received copy in the same inbox are two messages, so the direction is
    compared.
    """
    outbound = int(message.direction == "outbound")
    if message.internet_message_id is None:
        row = tx.one(SAME_BYTES, raw=message.raw, inbox=inbox, is_outbound=outbound)
        known = Added(row[0], row[1], is_duplicate=True, same_bytes=True) if row else None
        return known, message.defects
    rows = tx.all(
        SAME_MESSAGE_ID,
        inbox=inbox,
        internet_id=message.internet_message_id,
        is_outbound=outbound,
    )
    for message_id, thread_id, fingerprint in rows:
        if fingerprint == message.fingerprint:
            return Added(message_id, thread_id, is_duplicate=True), ()
    if not rows:
        return None, message.defects
    return None, (*message.defects, f"another mail here has this Message-ID: {rows[0][0]}")


def _insert(
    tx: Transaction,
    message: NewMessage,
    inbox: int,
    thread: int,
    defects: tuple[str, ...],
    names: dict[str, str],
) -> int:
    return insert_numbered(
        tx,
        "messages",
        id=message.id,
        inbox=inbox,
        is_outbound=int(message.direction == "outbound"),
        is_hidden=int(is_hidden(message.mailboxes)),
        flags=flag_bits(message.flags),
        received_at=seconds(message.received_at),
        size_bytes=message.size_bytes,
        raw=message.raw,
        **names,
        **parsed_columns(message, thread, details_of(message, defects)),
    )


def parsed_columns(
    message: NewMessage, thread: int, details: dict[str, object]
) -> dict[str, object]:
    """The columns that depend on the parser, and change when a message is parsed again."""
    sender = message.sender
    return {
        "thread": thread,
        "has_attachment": int(message.has_attachment),
        "date": seconds(message.date),
        "parser_version": message.parser_version,
        "subject": message.subject,
        "from_address": sender.address if sender else "",
        "from_name": sender.name if sender else "",
        "addresses": dumps([(a.role, a.name, a.address) for a in message.addresses]),
        "snippet": message.snippet,
        "internet_id": message.internet_message_id,
        "fingerprint": message.fingerprint,
        "details": dumps(details),
        "is_suspicious": int(bool(findings_of(details))),
    }


def details_of(message: NewMessage, defects: tuple[str, ...]) -> dict[str, object]:
    """The fields that are returned with a whole message only and cannot be searched."""
    return {
        "in_reply_to": message.in_reply_to,
        "references": message.references,
        "auth": message.auth,
        "security": message.security,
        "defects": defects,
        "recipients": message.recipients,
        **({"auto_answered": message.auto_answered} if message.auto_answered else {}),
        **({"list_unsubscribe": message.list_unsubscribe} if message.list_unsubscribe else {}),
        **({"send_at": seconds(message.send_at)} if message.send_at else {}),
        **({"hold": message.hold} if message.hold else {}),
    }


def add_texts(rows: NewRows, message: NewMessage, inbox: int, number: int) -> None:
    """Add the texts of a message, for display and for search."""
    at = {"message": number, "inbox": inbox}
    rows.add("bodies", **at, text=message.text, new_text=message.new_text)
    rows.add(
        "search_texts",
        **at,
        searchable=message.searchable,
        senders=folded_addresses(message.addresses, ("from",)),
        recipients=folded_addresses(message.addresses, ("to", "cc", "bcc")),
    )


def add_attachments(
    rows: NewRows, message: NewMessage, inbox: int, number: int, ids: Sequence[str]
) -> None:
    """Add the attachments of a message, with these ids."""
    for position, (attachment_id, a) in enumerate(zip(ids, message.attachments, strict=True)):
        rows.add(
            "attachments",
            id=attachment_id,
            message=number,
            inbox=inbox,
            position=position,
            is_inline=int(a.is_inline),
            size=a.size,
            filename=a.filename,
            content_type=a.content_type,
            sha256=a.sha256,
        )


def insert_names(
    tx: Transaction,
    inbox: int,
    number: int,
    *,
    mailboxes: Sequence[Name],
    labels: Sequence[Name],
) -> None:
    """Insert the mailboxes and labels of a message, for filters and for display."""
    rows = NewRows(tx)
    _add_places(rows, inbox, number, mailboxes, labels)
    rows.write()
    tx.put(SET_NAMES, inbox=inbox, message=number, **_display_columns(mailboxes, labels))


def _add_places(
    rows: NewRows, inbox: int, number: int, mailboxes: Sequence[Name], labels: Sequence[Name]
) -> None:
    """Add the mailboxes and labels of a message, for filters."""
    for mailbox, _ in mailboxes:
        rows.add("message_mailboxes", mailbox=mailbox, inbox=inbox, message=number)
    for label, _ in labels:
        rows.add("message_labels", label=label, inbox=inbox, message=number)


def _display_columns(mailboxes: Sequence[Name], labels: Sequence[Name]) -> dict[str, str]:
    """The columns with the mailboxes and labels of a message, for display."""
    return {
        "mailboxes": dumps([name for _, name in mailboxes]),
        "labels": dumps([name for _, name in labels]),
    }
