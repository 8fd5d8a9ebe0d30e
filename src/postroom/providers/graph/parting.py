"""A mail without its files, and the files: Graph takes large ones only one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import policy
from email.message import Message
from email.parser import BytesParser
from typing import Any

from postroom.errors import ProviderError
from postroom.mail.mime import Part, Splitter
from postroom.model.limits import Limits


@dataclass(frozen=True, slots=True)
class File:
    """A file of a mail; `content_id` is what its HTML calls it by, if it shows it."""

    name: str
    content_type: str
    content: bytes
    content_id: str = ""


class Unparted(ProviderError):
    """A mail whose parts cannot be told apart with certainty is not given out in pieces."""

    retryable = False


def part_from_files(raw: bytes) -> tuple[bytes, list[File]]:
    """The mail as it is without the attachments at its top, and those. Raises Unparted."""
    mail = BytesParser(policy=policy.compat32).parsebytes(raw)
    files: list[File] = []
    if mail.get_content_type() == "multipart/mixed":
        parts = [part for part in mail.get_payload() if isinstance(part, Message)]
        found = list(zip(parts, _contents(parts, _tree(raw).children), strict=True))
        files = [
            file_of(part, number, content)
            for number, (part, content) in enumerate(found)
            if _is_file(part)
        ]
        mail.set_payload(list[Any]([part for part in parts if not _is_file(part)]))
    return mail.as_bytes(policy=policy.compat32), files


def _is_file(part: Message) -> bool:
    return part.get_content_disposition() == "attachment"


def file_of(part: Message, number: int, content: bytes, content_id: str = "") -> File:
    """A file by what its part says of it; without a name it gets one with its number."""
    name = part.get_filename() or f"attachment-{number}"
    return File(name, part.get_content_type(), content, content_id)


def contents_of(raw: bytes, leaves: Sequence[Message]) -> list[bytes]:
    """The bytes of each part that holds something; *leaves* are those parts. Raises Unparted."""
    return _contents(leaves, list(_leaves(_tree(raw))))


def _contents(parts: Sequence[Message], found: Sequence[Part]) -> list[bytes]:
    # `Message` takes a mail inside of a mail for read, however it is encoded, and loses its bytes.
    if len(parts) != len(found):
        raise Unparted("the parts of this mail cannot be told apart; send its files one by one")
    return [one.decoded() for one in found]


def _tree(raw: bytes) -> Part:
    return Splitter(raw, Limits()).read_part(0, len(raw), depth=0)


def _leaves(part: Part) -> Iterator[Part]:
    if not part.content_type.startswith("multipart/"):
        yield part
    for inner in part.children:
        yield from _leaves(inner)
