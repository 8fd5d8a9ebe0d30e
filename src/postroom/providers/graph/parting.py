"""A mail without its files, and the files: Graph takes large ones only one by one."""

from __future__ import annotations

from dataclasses import dataclass
from email import policy
from email.message import Message
from email.parser import BytesParser
from typing import Any


@dataclass(frozen=True, slots=True)
class File:
    """A file of a mail; `content_id` is what its HTML calls it by, if it shows it."""

    name: str
    content_type: str
    content: bytes
    content_id: str = ""


def part_from_files(raw: bytes) -> tuple[bytes, list[File]]:
    """The mail as it is without the attachments at its top, and those."""
    mail = BytesParser(policy=policy.compat32).parsebytes(raw)
    files: list[File] = []
    if mail.get_content_type() == "multipart/mixed":
        parts = [part for part in mail.get_payload() if isinstance(part, Message)]
        kept = [part for part in parts if part.get_content_disposition() != "attachment"]
        files = [_file(part, number) for number, part in enumerate(parts) if part not in kept]
        mail.set_payload(list[Any](kept))
    return mail.as_bytes(policy=policy.compat32), files


def _file(part: Message, number: int) -> File:
    content = part.get_payload(decode=True)
    return File(
        part.get_filename() or f"attachment-{number}",
        part.get_content_type(),
        content if isinstance(content, bytes) else b"",
    )
