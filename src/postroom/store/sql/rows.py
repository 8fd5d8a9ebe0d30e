"""Rows of the database as the shapes that callers see."""

from __future__ import annotations

from postroom.model.attachment import Attachment
from postroom.model.message import (
    AddressLine,
    Direction,
    Message,
    MessageRow,
    Recipient,
    ThreadMessage,
)
from postroom.model.sending import overall_status
from postroom.store.sql.values import flag_names, from_text, moment
from postroom.store.transaction import Row

ROW_COLUMNS = """
    m.id, t.id, i.id, m.is_outbound, m.subject, m.from_address, m.from_name, m.addresses, m.date,
    m.snippet, m.labels, m.mailboxes, m.flags, m.has_attachment
"""
ROW_TABLES = """
    messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
      JOIN inboxes i ON i.number = +m.inbox
"""
ATTACHMENT_COLUMNS = "a.id, m.id, a.filename, a.content_type, a.size, a.is_inline, a.sha256"

_SHOWN_RECIPIENTS = 5
_SHOWN_SUBJECT = 250
_SHOWN_NAME = 100


def direction(is_outbound: int) -> Direction:
    """The word for a stored direction."""
    return "outbound" if is_outbound else "inbound"


def message_row(row: Row, excerpt: str | None = None) -> MessageRow:
    """A message in a list; names and recipients are cut to what a list needs."""
    to = [line[2] for line in from_text(row[7]) if line[0] == "to"]
    return MessageRow(
        id=row[0],
        thread_id=row[1],
        inbox_id=row[2],
        direction=direction(row[3]),
        subject=row[4][:_SHOWN_SUBJECT],
        from_address=row[5],
        from_name=row[6][:_SHOWN_NAME],
        to_addresses=tuple(to[:_SHOWN_RECIPIENTS]),
        to_count=len(to) if len(to) > _SHOWN_RECIPIENTS else None,
        date=moment(row[8]),
        snippet=row[9],
        labels=tuple(from_text(row[10])),
        flags=flag_names(row[12]),
        mailboxes=tuple(from_text(row[11])),
        has_attachment=bool(row[13]),
        excerpt=excerpt,
    )


def thread_message(row: Row, text: str, new_text: str | None) -> ThreadMessage:
    """A message inside its thread."""
    brief = message_row(row)
    values = {name: getattr(brief, name) for name in MessageRow.__slots__}
    return ThreadMessage(**values, new_text=text if new_text is None else new_text, text=text)


MESSAGE_COLUMNS = f"""{ROW_COLUMNS}, m.received_at, m.internet_id, m.size_bytes, m.raw, m.details,
    b.text, b.new_text"""
MESSAGE_TABLES = f"{ROW_TABLES} JOIN bodies b ON +b.inbox = +m.inbox AND b.message = m.number"


def message(row: Row, attachments: tuple[Attachment, ...]) -> Message:
    """A whole message, its texts uncut."""
    lines = tuple(AddressLine(*line) for line in from_text(row[7]))
    details = from_text(row[18])
    recipients = details["recipients"] and tuple(Recipient(**r) for r in details["recipients"])
    return Message(
        id=row[0],
        thread_id=row[1],
        inbox_id=row[2],
        direction=direction(row[3]),
        subject=row[4],
        from_address=row[5],
        from_name=row[6],
        to_addresses=_bare(lines, "to"),
        cc_addresses=_bare(lines, "cc"),
        bcc_addresses=_bare(lines, "bcc"),
        reply_to_addresses=_bare(lines, "reply_to"),
        addresses=lines,
        date=moment(row[8]),
        received_at=moment(row[14]),
        internet_message_id=row[15],
        in_reply_to=details["in_reply_to"],
        references=tuple(details["references"]),
        snippet=row[9],
        labels=tuple(from_text(row[10])),
        flags=flag_names(row[12]),
        mailboxes=tuple(from_text(row[11])),
        has_attachment=bool(row[13]),
        size_bytes=row[16],
        text=row[19],
        attachments=attachments,
        auth=details["auth"],
        security=details["security"],
        defects=tuple(details["defects"]),
        raw=row[17],
        new_text=row[20],
        status=overall_status(recipients) if recipients else None,
        recipients=recipients or None,
    )


def _bare(lines: tuple[AddressLine, ...], role: str) -> tuple[str, ...]:
    return tuple(line.address for line in lines if line.role == role)


def attachment(row: Row) -> Attachment:
    """An attachment without its content."""
    return Attachment(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6])
