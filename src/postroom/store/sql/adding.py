"""A message is stored: recognised if it is a duplicate, else put into its thread."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import NotFound, no_such
from postroom.mail.fold import fold
from postroom.model.message import AddressLine
from postroom.model.stored import FIELD_BORDER, Added, NewMessage
from postroom.store.search.sets import index_message
from postroom.store.sql.answers import auto_answered
from postroom.store.sql.contacts import introduce
from postroom.store.sql.errands import rules_at_arrival
from postroom.store.sql.events import About, add_event, add_outcomes
from postroom.store.sql.names import is_hidden, name_of
from postroom.store.sql.outcomes import apply_report
from postroom.store.sql.threading import choose_thread, count_in, remember_ids
from postroom.store.sql.values import dumps, flag_bits, seconds
from postroom.store.transaction import Transaction

ADDRESS_END = "\x1e"
"""Between an address and its name; like `FIELD_BORDER`, folding never leaves one inside."""

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
INSERT_MESSAGE = """
    INSERT INTO messages (
        id, inbox, thread, is_outbound, is_hidden, has_attachment, flags, date, received_at,
        size_bytes, parser_version, subject, from_address, from_name, addresses, snippet, labels,
        mailboxes, internet_id, raw, fingerprint, details
    ) VALUES (
        :id, :inbox, :thread, :is_outbound, :is_hidden, :has_attachment, :flags, :date,
        :received_at, :size_bytes, :parser_version, :subject, :from_address, :from_name,
        :addresses, :snippet, :labels, :mailboxes, :internet_id, :raw, :fingerprint, :details
    ) RETURNING number
"""
INSERT_BODY = """
    INSERT INTO bodies (message, inbox, text, new_text)
    VALUES (:message, :inbox, :text, :new_text)
"""
INSERT_TEXTS = """
    INSERT INTO search_texts (message, inbox, searchable, senders, recipients)
    VALUES (:message, :inbox, :searchable, :senders, :recipients)
"""
INSERT_ATTACHMENT = """
    INSERT INTO attachments (
        id, message, inbox, position, is_inline, size, filename, content_type, sha256
    ) VALUES (
        :id, :message, :inbox, :position, :is_inline, :size, :filename, :content_type, :sha256
    )
"""
PUT_MAILBOX = """
    INSERT INTO message_mailboxes (mailbox, message, inbox) VALUES (:mailbox, :message, :inbox)
"""
PUT_LABEL = """
    INSERT INTO message_labels (label, message, inbox) VALUES (:label, :message, :inbox)
"""
SHOW_NAMES = """
    UPDATE messages SET mailboxes = :mailboxes, labels = :labels
     WHERE inbox = :inbox AND number = :message
"""


def add_messages(tx: Transaction, messages: Sequence[NewMessage]) -> list[Added]:
    """Store each message; what is a duplicate is only recognised."""
    return [add_message(tx, message) for message in messages]


def add_message(tx: Transaction, message: NewMessage) -> Added:
    """Store one message. Raises NotFound when its inbox is gone."""
    row = tx.one("SELECT number, address FROM inboxes WHERE id = :id", id=message.inbox_id)
    if row is None:
        raise NotFound(no_such("inbox", message.inbox_id))
    inbox: int = row[0]
    known, defects = _known(tx, message, inbox)
    if known is not None:
        return known
    message = introduce(tx, message, inbox, row[1])
    thread, thread_id = choose_thread(tx, message, inbox)
    hidden = is_hidden(message.mailboxes)
    number = _insert(tx, message, inbox, thread, defects)
    count_in(tx, inbox, thread, seconds(message.date), is_hidden=hidden)
    remember_ids(tx, message, inbox, thread)
    _named(tx, message, inbox, number)
    _tell(tx, message, inbox, thread_id)
    about = About(inbox, thread_id, message.id)
    rules_at_arrival(tx, message.effects, about, message.inbox_id, message.received_at)
    if message.report is not None and message.direction == "inbound":
        apply_report(tx, inbox, message.report, message.received_at)
    return Added(message.id, thread_id, is_duplicate=False)


def _tell(tx: Transaction, message: NewMessage, inbox: int, thread_id: str) -> None:
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


def _known(
    tx: Transaction, message: NewMessage, inbox: int
) -> tuple[Added | None, tuple[str, ...]]:
    """The message that this one repeats, or what is odd about it.

    A sent mail and its own copy in the same inbox are two messages, so the direction counts.
    """
    outbound = int(message.direction == "outbound")
    if message.internet_message_id is None:
        row = tx.one(SAME_BYTES, raw=message.raw, inbox=inbox, is_outbound=outbound)
        return (Added(row[0], row[1], is_duplicate=True) if row else None), message.defects
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
    tx: Transaction, message: NewMessage, inbox: int, thread: int, defects: tuple[str, ...]
) -> int:
    sender = message.sender
    row = tx.one(
        INSERT_MESSAGE,
        id=message.id,
        inbox=inbox,
        thread=thread,
        is_outbound=int(message.direction == "outbound"),
        is_hidden=int(is_hidden(message.mailboxes)),
        has_attachment=int(message.has_attachment),
        flags=flag_bits(message.flags),
        date=seconds(message.date),
        received_at=seconds(message.received_at),
        size_bytes=message.size_bytes,
        parser_version=message.parser_version,
        subject=message.subject,
        from_address=sender.address if sender else "",
        from_name=sender.name if sender else "",
        addresses=dumps([(a.role, a.name, a.address) for a in message.addresses]),
        snippet=message.snippet,
        labels="[]",
        mailboxes="[]",
        internet_id=message.internet_message_id,
        raw=message.raw,
        fingerprint=message.fingerprint,
        details=dumps(details_of(message, defects)),
    )
    return int(row[0]) if row else 0


def details_of(message: NewMessage, defects: tuple[str, ...]) -> dict[str, object]:
    """What is shown with a whole message only, and asked for by nobody."""
    return {
        "in_reply_to": message.in_reply_to,
        "references": message.references,
        "auth": message.auth,
        "security": message.security,
        "defects": defects,
        "recipients": message.recipients,
        **auto_answered(message),
    }


def _named(tx: Transaction, message: NewMessage, inbox: int, number: int) -> None:
    """Put the texts, names and files of a message beside it, and let searches find it."""
    put_texts(tx, message, inbox, number)
    _put_names(tx, message, inbox, number)
    index_message(tx, number, inbox)
    insert_attachments(tx, message, inbox, number, [a.id for a in message.attachments])


def put_texts(tx: Transaction, message: NewMessage, inbox: int, number: int) -> None:
    """Write the texts of a message, as they are read and as they are searched."""
    texts = {"text": message.text, "new_text": message.new_text}
    tx.put(INSERT_BODY, message=number, inbox=inbox, **texts)
    tx.put(
        INSERT_TEXTS,
        message=number,
        inbox=inbox,
        searchable=message.searchable,
        senders=folded_addresses(message.addresses, ("from",)),
        recipients=folded_addresses(message.addresses, ("to", "cc", "bcc")),
    )


def insert_attachments(
    tx: Transaction, message: NewMessage, inbox: int, number: int, ids: Sequence[str]
) -> None:
    """Put the files of a message beside it, under these ids."""
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
    if rows:
        tx.many(INSERT_ATTACHMENT, rows)


def _put_names(tx: Transaction, message: NewMessage, inbox: int, number: int) -> None:
    mailboxes = [name_of(tx, "mailboxes", inbox, name) for name in message.mailboxes]
    labels = [name_of(tx, "labels", inbox, name) for name in message.labels]
    put_names(tx, inbox, number, mailboxes=mailboxes, labels=labels)


def put_names(
    tx: Transaction,
    inbox: int,
    number: int,
    *,
    mailboxes: Sequence[tuple[int, str]],
    labels: Sequence[tuple[int, str]],
) -> None:
    """Write the mailboxes and labels of a message, for filters and for display."""
    message = {"inbox": inbox, "message": number}
    tx.many(PUT_MAILBOX, [{"mailbox": mailbox, **message} for mailbox, _ in mailboxes])
    if labels:
        tx.many(PUT_LABEL, [{"label": label, **message} for label, _ in labels])
    tx.put(
        SHOW_NAMES,
        mailboxes=dumps([name for _, name in mailboxes]),
        labels=dumps([name for _, name in labels]),
        **message,
    )


def folded_addresses(addresses: Sequence[AddressLine], roles: tuple[str, ...]) -> str:
    """Addresses and names as the from and to filters look at them."""
    lines = [f"{fold(a.address)}{ADDRESS_END}{fold(a.name)}" for a in addresses if a.role in roles]
    return FIELD_BORDER + FIELD_BORDER.join(lines) + FIELD_BORDER if lines else ""
