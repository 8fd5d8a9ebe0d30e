"""The tree of parts: a linear split of the bytes, with the limits built in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.mail.mime.decoding import decode_transfer
from postroom.mail.mime.headers import Fields, parse_parameters, split_header
from postroom.model.limits import Limits

_GUESSED_BOUNDARY = re.compile(rb"(?:^|\n)--([^\s-][^\r\n]{0,200}?)[ \t]*\r?\n(?=[!-9;-~]++:)")
_IN_NO_BOUNDARY = re.compile(rb"[^0-9A-Za-z'()+_,./:=?\s-]")
_REST_OF_LINE = re.compile(rb"[ \t]*+(?:\r\n|\n|\r|\Z)")
_MAX_MARKERS = 100_000
_EMBEDDED = frozenset(("message/rfc822", "message/global", "message/news"))


@dataclass(slots=True)
class Part:
    """A part of a mail; its body is a range of the raw bytes."""

    fields: Fields
    content_type: str
    parameters: dict[str, str]
    raw: bytes = field(repr=False)
    start: int
    end: int
    children: list[Part] = field(default_factory=list)
    message: Part | None = None

    @property
    def disposition(self) -> tuple[str, dict[str, str]]:
        return parse_parameters(self.fields.first("content-disposition"))

    @property
    def encoding(self) -> str:
        return self.fields.first("content-transfer-encoding").strip().strip('"').lower()

    def decoded(self, *, most: int | None = None) -> bytes:
        """The bytes that were meant; with `most`, those of so many encoded ones."""
        encoding = self.encoding.partition(";")[0].partition(" ")[0]
        end = self.end if most is None else min(self.end, self.start + most)
        return decode_transfer(self.raw[self.start : end], encoding)


@dataclass(slots=True)
class Splitter:
    """Reads parts off the bytes until a limit says stop."""

    raw: bytes
    limits: Limits
    defects: list[str] = field(default_factory=list)
    parts: int = 0

    def read_part(self, start: int, end: int, *, depth: int, default: str = "text/plain") -> Part:
        """The part whose header begins at `start`, with all its children."""
        self.parts += 1
        block = split_header(self.raw, start, end, limits=self.limits)
        self.defects.extend(block.defects)
        content_type, parameters = _content_type(block.fields, default)
        body_start = min(block.body_start, end)
        part = Part(block.fields, content_type, parameters, self.raw, body_start, end)
        if content_type.startswith("multipart/"):
            self._read_children(part, depth)
        elif is_embedded_message(part):
            self._read_message(part, depth)
        return part

    def _read_message(self, part: Part, depth: int) -> None:
        """The mail inside the mail; limits are counted through."""
        if depth >= self.limits.mime_depth or self.parts >= self.limits.mime_parts:
            return
        if part.encoding not in ("base64", "quoted-printable"):
            part.message = self.read_part(part.start, part.end, depth=depth + 1)
            return
        content = part.decoded()
        inner = Splitter(content, self.limits, self.defects, self.parts)
        part.message = inner.read_part(0, len(content), depth=depth + 1)
        self.parts = inner.parts

    def _read_children(self, part: Part, depth: int) -> None:
        if depth >= self.limits.mime_depth:
            self.note(f"parts nested over {self.limits.mime_depth} levels, read up to there")
            return
        ranges = self._ranges(part)
        default = "message/rfc822" if part.content_type == "multipart/digest" else "text/plain"
        for start, end in ranges:
            if self.parts >= self.limits.mime_parts:
                self.note(f"more than {self.limits.mime_parts} MIME parts, read up to there")
                return
            part.children.append(self.read_part(start, end, depth=depth + 1, default=default))

    def _ranges(self, part: Part) -> list[tuple[int, int]]:
        """Where each child begins and ends."""
        boundary = part.parameters.get("boundary", "").rstrip()
        marker = b"--" + boundary.encode("utf-8", "replace")
        budget = self.limits.mime_parts - self.parts + 1
        if boundary and (ranges := split_at(self.raw, part.start, part.end, marker, budget)):
            return ranges
        guessed = _GUESSED_BOUNDARY.search(self.raw, part.start, min(part.end, part.start + 65_536))
        if guessed is None:
            self.note("multipart without parts")
            return []
        self.note("multipart boundary missing or wrong, guessed from the body")
        return split_at(self.raw, part.start, part.end, b"--" + guessed[1], budget)

    def note(self, defect: str) -> None:
        if defect not in self.defects:
            self.defects.append(defect)


def split_at(raw: bytes, start: int, end: int, marker: bytes, most: int) -> list[tuple[int, int]]:
    """The ranges between the lines that are `marker`; the line break before one belongs to it."""
    ranges: list[tuple[int, int]] = []
    opened = -1
    for at in _line_starts(raw, start, end, marker):
        is_close = raw.startswith(b"--", at + len(marker))
        line_end = _line_end(raw, at + len(marker) + 2 * is_close, end)
        if line_end < 0 and not (is_close and _IN_NO_BOUNDARY.match(raw, at + len(marker) + 2)):
            continue
        if opened >= 0:
            ranges.append((opened, max(opened, _before_break(raw, at))))
        opened = -1 if is_close else line_end
        if is_close or len(ranges) >= most:
            break
    if opened >= 0 and len(ranges) < most:
        ranges.append((opened, end))
    return ranges


def _line_starts(raw: bytes, start: int, end: int, marker: bytes) -> Iterator[int]:
    """Where a line begins with the marker."""
    if raw.startswith(marker, start):
        yield start
    for line_break in (b"\n", b"\r"):
        wanted = line_break + marker
        at = raw.find(wanted, start, end)
        found = at >= 0
        for _ in range(_MAX_MARKERS):
            if at < 0:
                break
            yield at + 1
            at = raw.find(wanted, at + len(wanted), end)
        if found:
            return


def _line_end(raw: bytes, at: int, end: int) -> int:
    """The start of the next line if nothing but white space is left on this one, else -1."""
    match = _REST_OF_LINE.match(raw, at, end)
    return match.end() if match else -1


def _before_break(raw: bytes, at: int) -> int:
    if raw[at - 1 : at] == b"\n":
        return at - 2 if raw[at - 2 : at - 1] == b"\r" else at - 1
    return at - 1 if raw[at - 1 : at] == b"\r" else at


def _content_type(fields: Fields, default: str) -> tuple[str, dict[str, str]]:
    value = fields.first("content-type")
    if not value:
        return default, {}
    content_type, parameters = parse_parameters(value)
    if content_type == "text":
        content_type = "text/plain"
    return content_type if content_type.count("/") == 1 else default, parameters


def is_embedded_message(part: Part) -> bool:
    """A mail inside the mail."""
    return part.content_type in _EMBEDDED
