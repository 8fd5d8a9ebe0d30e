"""Mail whose parts are still on a server: which to fetch, and what they say once they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from postroom.mail.mime.attachments import display_filename
from postroom.mail.mime.bodies import collect, is_body
from postroom.mail.mime.parts import Fields, Part, parse_parameters
from postroom.mail.parse import BodyText, read_body_text
from postroom.model.imap import ImapPart
from postroom.model.limits import Limits

_TEXTS = frozenset(("text/plain", "text/html", "text/enriched", "text/richtext"))
_BYTES_PER_CHAR = {"quoted-printable": 9, "base64": 6}
_STUB_BYTES = 1_200
"""A plain text as short as this may only say that there is HTML."""

_HTML_BYTES = 24 * 1024
"""The length of what precedes the first word of an HTML mail, mostly styles."""


@dataclass(slots=True)
class RemotePart(Part):
    """A part of which perhaps only the beginning is here."""

    number: str = ""
    size_bytes: int = 0

    @property
    def remote_children(self) -> list[RemotePart]:
        return [child for child in self.children if isinstance(child, RemotePart)]

    @property
    def loaded_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_cut(self) -> bool:
        return self.loaded_bytes < self.size_bytes

    @property
    def filename(self) -> str:
        """The sender's name for the part; empty if there is none."""
        name = self.disposition[1].get("filename") or self.parameters.get("name") or ""
        return display_filename(name) if name else ""

    def decoded(self, *, max_bytes: int | None = None) -> bytes:
        data = Part.decoded(self, max_bytes=max_bytes)
        return _without_partial_letter(data) if self.is_cut else data


def _without_partial_letter(data: bytes) -> bytes:
    """Drop the first bytes of a letter whose others did not come (UTF-8)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < size else data
    return data


def remote_part(described: ImapPart, heading: Iterable[tuple[str, str]] = ()) -> RemotePart:
    """The tree of a message as its server describes it, with nothing in it yet.

    `heading` are header fields of a mail inside the mail.
    """
    fields = Fields()
    for name, value in heading:
        fields.add(name, value)
    fields.add("content-transfer-encoding", described.encoding)
    fields.add("content-id", described.content_id)
    if described.disposition:
        value = _header(described.disposition, described.disposition_parameters)
        fields.add("content-disposition", value)
    _, parameters = parse_parameters(_header(described.content_type, described.parameters))
    part = RemotePart(fields, described.content_type, parameters, b"", 0, 0)
    part.number, part.size_bytes = described.number, described.size_bytes
    part.children = [remote_part(child) for child in described.children]
    if described.message is not None:
        part.message = remote_part(described.message, described.heading)
    return part


def _header(value: str, parameters: Iterable[tuple[str, str]]) -> str:
    """A header as it may have been, for the parser that knows all about it."""
    quoted = (
        (name, text.replace("\\", "\\\\").replace('"', '\\"')) for name, text in parameters if name
    )
    return "; ".join((value, *(f'{name}="{text}"' for name, text in quoted)))


def fill_contents(part: RemotePart, contents: Mapping[str, bytes]) -> None:
    """Put in what came, by the numbers of the parts."""
    for child in part.remote_children:
        fill_contents(child, contents)
    if isinstance(part.message, RemotePart):
        fill_contents(part.message, contents)
    if not part.children and part.number in contents:
        part.raw = contents[part.number]
        part.start, part.end = 0, len(part.raw)


def read_text(root: RemotePart, limits: Limits) -> BodyText:
    """What the parts that are here say."""
    return read_body_text(collect(root, limits), limits)


def text_parts(part: RemotePart, *, include_html: bool) -> list[RemotePart]:
    """The parts to read for the text; HTML only where there is no plain text to speak of."""
    found = [
        text
        for child in part.remote_children
        for text in text_parts(child, include_html=include_html)
    ]
    if part.content_type == "multipart/alternative":
        plain = [text for text in found if text.content_type != "text/html"]
        needs_html = include_html or sum(text.size_bytes for text in plain) < _STUB_BYTES
        return found if needs_html else plain
    if part.disposition[0] == "attachment":
        return found
    if isinstance(part.message, RemotePart):
        return [*found, *text_parts(part.message, include_html=include_html)]
    return [*found, part] if part.content_type in _TEXTS else found


def estimated_bytes(part: RemotePart, chars: int) -> int:
    """How much of a part is likely to hold so many characters of text."""
    size = 1024 + chars * _BYTES_PER_CHAR.get(part.encoding, 4)
    if part.content_type == "text/html":
        size += _HTML_BYTES
    return min(part.size_bytes, size)


def file_parts(
    part: RemotePart, *, is_root: bool = True, is_report: bool = False
) -> list[RemotePart]:
    """The parts that are files, as for mail that is here; those of a mail inside it as well."""
    is_report = is_report or part.content_type == "multipart/report"
    if part.children:
        found = (
            file_parts(child, is_root=False, is_report=is_report) for child in part.remote_children
        )
        return [file for files in found for file in files]
    if is_body(part, is_root=is_root):
        return []
    if isinstance(part.message, RemotePart) and not is_report:
        return [part, *file_parts(part.message)]
    return [part]
