"""Storing a message: duplicates, thread, contacts, index and events, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from postroom.errors import NotFound, no_such
from postroom.mail.text.fold import folded_addresses
from postroom.model.inbox import HIDDEN_MAILBOXES
from postroom.model.message import findings_of
from postroom.model.storage import Added, NewMessage
from postroom.model.view import Numbers
from postroom.store.search.index import index_message
from postroom.store.sql.events import About, add_event, add_outcomes, count_mail
from postroom.store.sql.messages.thread_choice import (
    choose_thread,
    count_in,
    insert_thread_ids,
    update_contacts,
)
from postroom.store.sql.outbox.queue import apply_report
from postroom.store.sql.rules import apply_rule_effects
from postroom.store.sql.values import (
    caseless,
    dumps,
    flag_bits,
    insert,
    insert_many,
    insert_numbered,
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


def numbers_named(tx: Transaction, table: Table, name: str, inboxes: Numbers) -> list[int]:
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
SET_NAMES = """
    UPDATE messages SET mailboxes = :mailboxes, labels = :labels
     WHERE inbox = :inbox AND number = :message
"""


def add_messages(tx: Transaction, messages: Sequence[NewMessage]) -> list[Added]:
    """Store each message; duplicates are not stored."""
    return [add_message(tx, message) for message in messages]


def add_message(tx: Transaction, message: NewMessage) -> Added:
    """Store one message. Raises NotFound when its inbox was removed."""
    inbox, own_address = _inbox(tx, message.inbox_id)
    known, defects = _duplicate(tx, message, inbox)
    if known is not None:
        return known
    hidden = is_hidden(message.mailboxes)
    if not hidden or message.direction == "outbound":
        message = update_contacts(tx, message, inbox, own_address)
    thread, thread_id = choose_thread(tx, message, inbox)
    mailboxes = [name_of(tx, "mailboxes", inbox, name) for name in message.mailboxes]
    labels = [name_of(tx, "labels", inbox, name) for name in message.labels]
    number = _insert(tx, message, inbox, thread, defects, _names(mailboxes, labels))
    count_in(tx, inbox, thread, seconds(message.date), is_hidden=hidden)
    insert_thread_ids(tx, message, inbox, thread)
    _insert_places(tx, inbox, number, mailboxes, labels)
    insert_texts(tx, message, inbox, number)
    index_message(tx, number, inbox)
    insert_attachments(tx, message, inbox, number, [a.id for a in message.attachments])
    _add_events(tx, message, inbox, thread_id)
    about = About(inbox, thread_id, message.id)
    apply_rule_effects(tx, message.effects, about, message.inbox_id, message.received_at)
    if message.report is not None and message.direction == "inbound":
        apply_report(tx, inbox, message.report, message.received_at)
    return Added(message.id, thread_id, is_duplicate=False)


def _inbox(tx: Transaction, inbox_id: str) -> tuple[int, str]:
    """The number and address of an inbox. Raises NotFound."""
    known: tuple[int, str] | None = tx.known.get(("inbox", inbox_id))
    if known is None:
        row = tx.one("SELECT number, address FROM inboxes WHERE id = :id", id=inbox_id)
        if row is None:
            raise NotFound(no_such("inbox", inbox_id))
        known = tx.known["inbox", inbox_id] = (row[0], row[1])
    return known


def _add_events(tx: Transaction, message: NewMessage, inbox: int, thread_id: str) -> None:
    about = About(inbox, thread_id, message.id)
    if message.direction == "outbound":
        add_outcomes(tx, message.recipients or (), message.received_at, about)
        return
    data: dict[str, object] = {
        "from_address": message.sender.address if message.sender else "",
        "subject": message.subject[:250],
        **({"imported": True} if message.is_imported else {}),
    }
    add_event(tx, "message.received", message.received_at, about, data)
    if not message.is_imported:
        count_mail(tx, "received", inbox, message.received_at)


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


def insert_texts(tx: Transaction, message: NewMessage, inbox: int, number: int) -> None:
    """Insert the texts of a message, for display and for search."""
    at = {"message": number, "inbox": inbox}
    insert(tx, "bodies", **at, text=message.text, new_text=message.new_text)
    insert(
        tx,
        "search_texts",
        **at,
        searchable=message.searchable,
        senders=folded_addresses(message.addresses, ("from",)),
        recipients=folded_addresses(message.addresses, ("to", "cc", "bcc")),
    )


def insert_attachments(
    tx: Transaction, message: NewMessage, inbox: int, number: int, ids: Sequence[str]
) -> None:
    """Insert the attachments of a message, with these ids."""
    rows = [
        {
            "id": attachment_id,
            "message": number,
            "inbox": inbox,
            "position": position,
            "is_inline": int(a.is_inline),
            "size": a.size,
            "filename": a.filename,
            "content_type": a.content_type,
            "sha256": a.sha256,
        }
        for position, (attachment_id, a) in enumerate(zip(ids, message.attachments, strict=True))
    ]
    insert_many(tx, "attachments", rows)


def insert_names(
    tx: Transaction,
    inbox: int,
    number: int,
    *,
    mailboxes: Sequence[Name],
    labels: Sequence[Name],
) -> None:
    """Insert the mailboxes and labels of a message, for filters and for display."""
    _insert_places(tx, inbox, number, mailboxes, labels)
    tx.put(SET_NAMES, inbox=inbox, message=number, **_names(mailboxes, labels))


def _insert_places(
    tx: Transaction, inbox: int, number: int, mailboxes: Sequence[Name], labels: Sequence[Name]
) -> None:
    """Insert the mailboxes and labels of a message, for filters."""
    message = {"inbox": inbox, "message": number}
    rows = [{"mailbox": mailbox, **message} for mailbox, _ in mailboxes]
    insert_many(tx, "message_mailboxes", rows)
    insert_many(tx, "message_labels", [{"label": label, **message} for label, _ in labels])


def _names(mailboxes: Sequence[Name], labels: Sequence[Name]) -> dict[str, str]:
    """The columns with the mailboxes and labels of a message, for display."""
    return {
        "mailboxes": dumps([name for _, name in mailboxes]),
        "labels": dumps([name for _, name in labels]),
    }
