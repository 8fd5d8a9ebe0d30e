"""What a server says, in the shapes of our model."""

from __future__ import annotations

from postroom.mail.charsets import clean, guess
from postroom.model.imap import ImapMailbox, ImapPart, ImapSummary
from postroom.providers.imap.client import Listed
from postroom.providers.imap.faults import Unreadable
from postroom.providers.imap.names import decode_name
from postroom.providers.imap.responses import Row
from postroom.providers.imap.structures import read_structure

_USES = {
    use.lower(): use
    for use in (r"\All", r"\Archive", r"\Drafts", r"\Flagged", r"\Junk", r"\Sent", r"\Trash")
}


def mailbox_of(row: Listed) -> ImapMailbox:
    """A mailbox by the name that people gave it."""
    use = next((use for name, use in _USES.items() if name in row.attributes), None)
    return ImapMailbox(clean(decode_name(row.name)), row.delimiter, use)


def mailbox_order(mailbox: ImapMailbox) -> tuple[bool, bool, str]:
    """INBOX comes first, then what has a special use, then the rest by name."""
    return mailbox.name.upper() != "INBOX", mailbox.special_use is None, mailbox.name


def summary_of(row: Row) -> ImapSummary:
    """A message in a list."""
    text, preview = row.items.get(b"BODY[TEXT]"), row.items.get(b"PREVIEW")
    return ImapSummary(
        row.uid,
        row.flags or (),
        row.arrived_at,
        row.header_fields(),
        preview=guess(preview) if isinstance(preview, bytes) else None,
        text=row.data(b"BODY[TEXT]") if text is not None else None,
    )


def structure_of(row: Row) -> ImapPart | None:
    """The parts of a message; None if the server does not tell, or nobody can read it."""
    value = row.items.get(b"BODYSTRUCTURE")
    try:
        return read_structure(value) if value is not None else None
    except Unreadable:
        return None


def merged(rows: list[Row]) -> Row | None:
    """Some servers tell in two responses what was asked in one command."""
    if not rows:
        return None
    items = {name: value for row in rows for name, value in row.items.items()}
    return Row(rows[0].sequence, items)
