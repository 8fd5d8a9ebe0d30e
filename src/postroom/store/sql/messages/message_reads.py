"""One message, its attachments, and pages of attachments."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import NotFound, no_such
from postroom.model.inbox import Visible
from postroom.model.mail.message import Attachment, Message, MessageRow
from postroom.model.mail.storage import AttachmentQuery, RawMessage, SearchTexts
from postroom.model.page import Found
from postroom.model.view import EVERYTHING
from postroom.store.sql.messages.message_search import (
    ATTACHMENT_COLUMNS,
    MESSAGE_COLUMNS,
    MESSAGE_TABLES,
    ROW_COLUMNS,
    ROW_TABLES,
    attachment,
    message,
    message_row,
    thread_number,
    visible_inbox,
)
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    all_among,
    flag_names,
    from_text,
    inbox_number,
    moment,
    scalar,
)
from postroom.store.transaction import Row, Transaction

PLACE = "SELECT inbox, number FROM messages WHERE id = :id"
"""A message is found by its id once, then by its inbox and number."""

NUMBERS = """
    SELECT m.id, m.number, i.id FROM messages m JOIN inboxes i ON i.number = m.inbox
     WHERE m.id {among}
"""
MESSAGE = f"""
    SELECT {MESSAGE_COLUMNS}, m.inbox, m.number FROM {MESSAGE_TABLES}
     WHERE m.inbox = :inbox AND m.number = :number
"""
MESSAGE_ROW = f"""
    SELECT {ROW_COLUMNS} FROM {ROW_TABLES} WHERE m.inbox = :inbox AND m.number = :number
"""
SEARCH_TEXTS = """
    SELECT searchable, senders, recipients FROM search_texts
     WHERE inbox = :inbox AND message = :number
"""
MESSAGE_BY_INTERNET_ID = f"""
    SELECT {MESSAGE_COLUMNS}, m.inbox, m.number FROM {MESSAGE_TABLES}
     WHERE m.inbox = :inbox AND m.internet_id = :internet_id
     ORDER BY m.is_outbound, m.number DESC LIMIT 1
"""
NEWEST = f"""
    SELECT {MESSAGE_COLUMNS}, m.inbox, m.number FROM {MESSAGE_TABLES}
     WHERE +m.inbox = :inbox AND m.thread = :thread
     ORDER BY m.is_hidden, m.is_outbound, m.date DESC, m.number DESC LIMIT 1
"""
FILE_TABLES = "attachments a JOIN messages m ON +m.inbox = +a.inbox AND m.number = a.message"
_FILES = Listing(
    ATTACHMENT_COLUMNS, FILE_TABLES, "m.date, m.number, -a.position", is_newest_first=True
)
"""Newest message first, and the files of one message in order."""

ATTACHMENTS_OF = f"""
    SELECT {ATTACHMENT_COLUMNS} FROM {FILE_TABLES}
     WHERE a.inbox = :inbox AND a.message = :message ORDER BY a.position
"""
ATTACHMENT = f"""
    SELECT {ATTACHMENT_COLUMNS}, i.id FROM {FILE_TABLES} JOIN inboxes i ON i.number = m.inbox
     WHERE a.id = :id
"""
RAW_AFTER = """
    SELECT m.number, m.id, m.date, m.from_address, m.raw, m.size_bytes, m.mailboxes, m.flags
      FROM messages m
     WHERE m.inbox = :inbox AND m.number > :after ORDER BY m.number LIMIT :limit
"""


def count_messages(tx: Transaction) -> int:
    return int(scalar(tx, "SELECT count(*) FROM messages"))


def get_message(tx: Transaction, message_id: str, visible: Visible) -> Message | None:
    place = tx.one(PLACE, id=message_id)
    row = place and tx.one(MESSAGE, inbox=place[0], number=place[1])
    return _whole(tx, row, visible)


def messages_by_id(
    tx: Transaction, message_ids: Sequence[str], visible: Visible
) -> dict[str, Message]:
    """Some messages by their ids, without those that do not exist for the caller."""
    found = ((id_, get_message(tx, id_, visible)) for id_ in message_ids)
    return {id_: message for id_, message in found if message is not None}


def message_numbers(
    tx: Transaction, message_ids: Sequence[str], visible: Visible
) -> dict[str, int]:
    """The numbers of some messages, without those that do not exist for the caller."""
    rows = all_among(tx, NUMBERS, message_ids)
    return {row[0]: row[1] for row in rows if visible.sees(row[2])}


def get_message_row(tx: Transaction, message_id: str) -> MessageRow | None:
    """A message as lists show it."""
    place = tx.one(PLACE, id=message_id)
    row = place and tx.one(MESSAGE_ROW, inbox=place[0], number=place[1])
    return message_row(row) if row else None


def search_texts(tx: Transaction, message_id: str) -> SearchTexts | None:
    """The texts of a message that filters match."""
    place = tx.one(PLACE, id=message_id)
    row = place and tx.one(SEARCH_TEXTS, inbox=place[0], number=place[1])
    return SearchTexts(*row) if row else None


def message_by_internet_id(
    tx: Transaction, inbox_id: str, internet_message_id: str
) -> Message | None:
    """The newest message of an inbox with this Message-ID, preferably a received one."""
    inbox = inbox_number(tx, inbox_id)
    row = tx.one(MESSAGE_BY_INTERNET_ID, inbox=inbox, internet_id=internet_message_id)
    return _whole(tx, row, EVERYTHING)


def newest_message(tx: Transaction, thread_id: str, visible: Visible) -> Message | None:
    """The newest inbound message of a thread; if there is none, the newest."""
    named = tx.one(NAMED, id=thread_id)
    row = named and tx.one(NEWEST, thread=named[0], inbox=named[1])
    return _whole(tx, row, visible)


def _whole(tx: Transaction, row: Row | None, visible: Visible) -> Message | None:
    if row is None or not visible.sees(row[2]):
        return None
    files = tx.all(ATTACHMENTS_OF, inbox=row[-2], message=row[-1])
    return message(row, tuple(attachment(file) for file in files))


def get_attachment(tx: Transaction, attachment_id: str, visible: Visible) -> Attachment | None:
    row = tx.one(ATTACHMENT, id=attachment_id)
    if row is None or not visible.sees(row[-1]):
        return None
    return attachment(row)


_INBOX_OF = {
    "inb": "inboxes x JOIN inboxes i ON i.number = x.number",
    "msg": "messages x JOIN inboxes i ON i.number = x.inbox",
    "thr": "threads x JOIN inboxes i ON i.number = x.inbox",
    "att": "attachments x JOIN inboxes i ON i.number = x.inbox",
}


def ids_from(tx: Transaction, prefix: str, visible: Visible, *, limit: int) -> tuple[str, ...]:
    """The first ids of inboxes, messages, threads or attachments that begin with *prefix*."""
    where = Conditions()
    # Ids are ASCII and compared by code point, so "~" comes after all of them.
    where.add("x.id >= :prefix AND x.id < :end", prefix=prefix, end=f"{prefix}~")
    where.within("i.id", visible)
    rows = tx.all(
        f"SELECT x.id FROM {_INBOX_OF[prefix[:3]]} WHERE {where.sql} ORDER BY x.id LIMIT :limit",
        **where.params,
        limit=limit,
    )
    return tuple(row[0] for row in rows)


def find_attachments(tx: Transaction, query: AttachmentQuery) -> Found[Attachment]:
    """Attachments of the newest messages first, those of one message in order. Raises NotFound."""
    return _FILES.page(tx, _conditions(tx, query), query.page, attachment)


def _conditions(tx: Transaction, query: AttachmentQuery) -> Conditions:
    where = Conditions()
    if query.inbox_id is not None:
        where.add("a.inbox = :inbox", inbox=visible_inbox(tx, query.inbox_id, query.visible))
    if query.thread_id is not None:
        thread, inbox = thread_number(tx, query.thread_id, query.visible)
        where.add("m.thread = :thread", thread=thread)
        where.add("+m.inbox = :inbox_of_thread", inbox_of_thread=inbox)
    if query.message_id is None:
        where.add("m.is_hidden = 0")
        return where
    message = get_message(tx, query.message_id, query.visible)
    if message is None:
        raise NotFound(no_such("message", query.message_id))
    where.add("m.id = :message_id", message_id=query.message_id)
    inbox = inbox_number(tx, message.inbox_id)
    where.add("+m.inbox = :inbox_of_message", inbox_of_message=inbox)
    return where


def raw_after(
    tx: Transaction, inbox_id: str, visible: Visible, after: int, limit: int
) -> list[RawMessage]:
    """The next messages of an inbox in order of arrival. Raises NotFound."""
    inbox = visible_inbox(tx, inbox_id, visible)
    rows = tx.all(RAW_AFTER, inbox=inbox, after=after, limit=limit)
    return [
        RawMessage(
            r[0], r[1], moment(r[2]), r[3], r[4], r[5], tuple(from_text(r[6])), flag_names(r[7])
        )
        for r in rows
    ]
