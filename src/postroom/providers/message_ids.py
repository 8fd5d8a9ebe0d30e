"""By which a provider finds a mail of ours again."""

from __future__ import annotations

from email.parser import BytesHeaderParser


def message_id_of(raw: bytes) -> str:
    """The Message-ID of a mail, in its brackets; one that finds nothing if it has none."""
    head = raw.partition(b"\r\n\r\n")[0]
    return str(BytesHeaderParser().parsebytes(head)["Message-ID"] or "none").strip()
