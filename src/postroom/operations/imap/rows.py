"""Rows of a live list: from the words of a server to ours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.mail.charsets import clean
from postroom.mail.dates import parse_date
from postroom.mail.headers import Fields, split_header
from postroom.mail.parse import parse_message
from postroom.model.imap import ImapLocator, ImapSummary
from postroom.model.limits import Limits
from postroom.model.live import LiveRow
from postroom.pipeline.receive import effective_date

MOST_FIELD_CHARS = 300
MOST_PAGE_CHARS = 80_000
"""What a page may take of a model's context."""

MOST_FLAGS = 50
_LIMITS = Limits()


def live_row(at: ImapLocator, summary: ImapSummary, snippet_chars: int | None) -> LiveRow:
    """A message in a list."""
    fields = header_fields(summary.header)
    return LiveRow(
        str(at),
        at.mailbox,
        at.uidvalidity,
        at.uid,
        date=message_date(fields, summary.arrived_at),
        from_=shown_field(fields, "from"),
        subject=shown_field(fields, "subject"),
        flags=summary.flags[:MOST_FLAGS],
        snippet=_snippet(summary, snippet_chars) if snippet_chars is not None else None,
    )


def header_fields(header: bytes) -> Fields:
    """The fields of a header block."""
    return split_header(header, 0, len(header), limits=_LIMITS).fields


def shown_field(fields: Fields, name: str, most: int = MOST_FIELD_CHARS) -> str | None:
    """A header on one line, decoded; None if there is none."""
    if name not in fields:
        return None
    return shortened(" ".join(fields.decoded(name).split()), most)


def message_date(fields: Fields, arrived_at: datetime | None) -> datetime | None:
    """The Date header if it can be believed, else the arrival."""
    stated = parse_date(fields.first("date"))
    return stated if arrived_at is None else effective_date(stated, arrived_at)


def shortened(text: str, most: int) -> str:
    """A text that shows that it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _snippet(summary: ImapSummary, chars: int) -> str:
    text = summary.preview
    if text is None:
        parsed = parse_message(summary.header + (summary.text or b""))
        text = parsed.new_text or parsed.text
    return shortened(clean(" ".join(text.split())), chars)


def rows_that_fit(rows: Sequence[LiveRow]) -> list[LiveRow]:
    """As many rows as a reader has room for, at least one."""
    fitting: list[LiveRow] = []
    size = 0
    for row in rows:
        size += _size(row)
        if fitting and size > MOST_PAGE_CHARS:
            break
        fitting.append(row)
    return fitting


def _size(row: LiveRow) -> int:
    texts = (row.message_id, row.mailbox, row.from_, row.subject, row.snippet, *(row.flags or ()))
    # Quotation marks and the like take two characters in JSON.
    return 150 + sum(len(text) + text.count('"') + text.count("\\") for text in texts if text)
