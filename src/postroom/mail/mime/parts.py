"""The tree of parts and their header fields (RFC 5322, RFC 2045, RFC 2231), within limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from postroom.mail.data import load
from postroom.mail.mime.decoding import (
    clean,
    decode,
    decode_transfer,
    decode_unknown,
    decode_words,
    transfer_encoding,
)
from postroom.model.limits import Limits

_BLANK = re.compile(rb"\n\r?\n")
_ODD_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))[ \t]{0,80}(?:\r\n|\n|\r(?!\n))")
_FIELD = re.compile(r"([!-9;-~]+)[ \t]*:")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_USUAL_NAMES = frozenset(load("headers")["usual"])
_CHARSET = re.compile(r"charset\s?=\s?\"?([\w-]{1,40})", re.IGNORECASE)
_WORD_CHARSET = re.compile(r"=\?([\w-]{1,40})\?[bqBQ]\?")
_MAX_PARAMETERS, _SHORT = 100, 100
_PARAMETER = re.compile(
    r"""\s*+;?+\s*+([^\s=;"]{1,200}+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)(?:"|$)|([^;]*+))""",
    re.DOTALL,
)
_ESCAPED = re.compile(r'\\(["\\])')  # Windows senders put paths in quotes, as they are
_SECTION = re.compile(r"^([^*]+)\*(\d{1,3})(\*?)$")
_LONE_CR = re.compile(r"\r(?!\n)")


@dataclass(slots=True)
class Fields:
    """Header fields in order, raw but unfolded; look-ups ignore case."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    _index: dict[str, list[str]] = field(default_factory=dict)
    names_with_nul: set[str] = field(default_factory=set)
    """Names, in lower case, of fields that contained a NUL, which cannot be stored."""

    def add(self, name: str, value: str) -> None:
        self.pairs.append((name, value))
        self._index.setdefault(name.lower(), []).append(value)

    def all(self, name: str) -> list[str]:
        return self._index.get(name, [])

    def first(self, name: str) -> str:
        values = self._index.get(name)
        return values[0] if values else ""

    def first_nonempty(self, name: str) -> str:
        """The first value that is not empty."""
        return next((value for value in self.all(name) if value.strip()), "")

    def decoded(self, name: str) -> str:
        return decode_words(self.first_nonempty(name)).strip()

    def charsets(self) -> list[str]:
        """The charsets of the encoded words, each once."""
        found = (match for _, value in self.pairs if "=?" in value
                 for match in _WORD_CHARSET.findall(value))  # fmt: skip
        return list(dict.fromkeys(charset.lower() for charset in found))

    def names(self) -> set[str]:
        return set(self._index)

    def __contains__(self, name: str) -> bool:
        return name in self._index


@dataclass(frozen=True, slots=True)
class HeaderBlock:
    """The fields, where the body begins, and what was odd."""

    fields: Fields
    body_start: int
    defects: tuple[str, ...] = ()


def split_header(raw: bytes, start: int, end: int, *, limits: Limits) -> HeaderBlock:
    """Read the fields at `start`; what cannot be a field begins the body."""
    block_end, body_start = _block_bounds(raw, start, end)
    defects: list[str] = []
    if block_end - start > limits.header_bytes:
        block_end = raw.rfind(b"\n", start, start + limits.header_bytes) + 1
        block_end = block_end or start + limits.header_bytes
        defects.append(f"header block over {limits.header_bytes} bytes; the rest was not read")
    text = _block_text(raw[start:block_end], defects)
    fields = _read_clean(text, limits.header_count)
    if fields is not None:
        return HeaderBlock(fields, body_start, tuple(defects))
    reader = _Reader(limits.header_count, defects)
    broken_off = reader.read(text)
    body_start = body_start if broken_off is None else start + broken_off
    return HeaderBlock(reader.fields, body_start, tuple(defects))


def _block_bounds(raw: bytes, start: int, end: int) -> tuple[int, int]:
    """Where the header block ends and where the body begins."""
    if raw.startswith((b"\n", b"\r\n"), start):
        return start, start + (1 if raw[start : start + 1] == b"\n" else 2)
    if blank := _BLANK.search(raw, start, end):
        return blank.start() + 1, blank.end()
    odd = _ODD_BLANK.search(raw, start, end)
    return odd.span() if odd else (end, end)


def _block_text(block: bytes, defects: list[str]) -> str:
    """The block as text of the same length as its bytes, so that places stay comparable."""
    text = block.decode("latin-1")
    if "\r" in text and _LONE_CR.search(text):
        text = _LONE_CR.sub("\n", text)
        defects.append("bare CR in the header")
    return text


def _read_clean(text: str, max_fields: int) -> Fields | None:
    """The fields of a well-formed block (the fast path), or None."""
    if not text.isascii() or "\0" in text:
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.replace("\n ", " ").replace("\n\t", "\t").rstrip("\n").split("\n")
    if len(lines) > max_fields:
        return None
    parts = [line.partition(":") for line in lines]
    keys = [name.lower() for name, _, _ in parts]
    unusual = set(keys) - _USUAL_NAMES
    if not all(colon for _, colon, _ in parts) or not all(map(_NAME.fullmatch, unusual)):
        return None
    fields = Fields([(name, value.strip()) for name, _, value in parts])
    index = fields._index  # noqa: SLF001 - our own class
    for key, (_, value) in zip(keys, fields.pairs, strict=True):
        index.setdefault(key, []).append(value)
    return fields


def _is_usual(line: str) -> bool:
    """Whether a line begins with the name of a frequent field."""
    name, colon, _ = line.partition(":")
    return bool(colon) and name.rstrip(" \t").lower() in _USUAL_NAMES


class _Reader:
    """Parses malformed header blocks line by line."""

    def __init__(self, max_fields: int, defects: list[str]) -> None:
        self.fields = Fields()
        self._max_fields = max_fields
        self._defects = defects
        self._name = ""
        self._value: list[str] = []
        self._text = ""
        self._charset: str | None = None

    def read(self, text: str) -> int | None:
        """Fill the fields; returns where the header breaks off, None if it is whole.

        A line that is no field continues the one above, or is skipped above the first, if a usual
        field follows it; else it begins the body.
        """
        self._text = text
        at = 0
        lines = text.split("\n")
        last_usual = max((n for n, line in enumerate(lines) if _is_usual(line)), default=-1)
        for number, line in enumerate(lines):
            match = None if line[:1] in (" ", "\t") else _FIELD.match(line)
            if line[:1] in (" ", "\t") and self._name:
                self._value.append(line)
            elif match and (number >= last_usual or _NAME.fullmatch(match[1])):
                self._store()
                if len(self.fields.pairs) >= self._max_fields:
                    self._note(f"more than {self._max_fields} header fields; the rest was not read")
                    return None
                self._name, self._value = match[1], [line[match.end() :]]
            elif line.strip() and not (number == 0 and line.startswith(("From ", ">From "))):
                if number >= last_usual:
                    self._note("no blank line between header and body")
                    self._store()
                    return at
                self._note("a line in the header that is not a field")
                if self._name:
                    self._value.append(f" {line}")
            at += len(line) + 1
        self._store()
        return None

    def _store(self) -> None:
        if not self._name:
            return
        value = "".join(line.rstrip("\r") for line in self._value)
        if not value.isascii():
            value = self._decoded(value.encode("latin-1"))
        if "\0" in value:
            self.fields.names_with_nul.add(self._name.lower())
        self.fields.add(self._name, clean(value.strip()))
        self._name = ""

    def _decoded(self, value: bytes) -> str:
        """Raw 8-bit text: UTF-8, else what the body is in, else what it looks like."""
        if self._charset is None:
            declared = _CHARSET.search(self._text) or _WORD_CHARSET.search(self._text)
            self._charset = declared[1] if declared else ""
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return decode(value, self._charset)[0]

    def _note(self, defect: str) -> None:
        if defect not in self._defects:
            self._defects.append(defect)


_GUESSED_BOUNDARY = re.compile(rb"(?:^|\n)--([^\s-][^\r\n]{0,200}?)[ \t]*\r?\n(?=[!-9;-~]++:)")
_IN_NO_BOUNDARY = re.compile(rb"[^0-9A-Za-z'()+_,./:=?\s-]")
_REST_OF_LINE = re.compile(rb"[ \t]*+(?:\r\n|\n|\r|\Z)")
_MAX_MARKERS = 100_000


@dataclass(slots=True)
class Part:
    """A part of a mail; its body is a range of the raw bytes."""

    fields: Fields
    content_type: str
    parameters: Mapping[str, str]
    raw: bytes = field(repr=False)
    start: int
    end: int
    children: list[Part] = field(default_factory=list)
    message: Part | None = None

    @property
    def disposition(self) -> tuple[str, Mapping[str, str]]:
        return parse_parameters(self.fields.first("content-disposition"))

    @property
    def encoding(self) -> str:
        return transfer_encoding(self.fields.first("content-transfer-encoding"))

    def decoded(self, *, max_bytes: int | None = None) -> bytes:
        """The bytes that were meant; with `max_bytes`, those of so many encoded ones."""
        encoding = self.encoding.partition(";")[0].partition(" ")[0]
        end = self.end if max_bytes is None else min(self.end, self.start + max_bytes)
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
            self.note(f"parts nested over {self.limits.mime_depth} levels; the rest was not read")
            return
        ranges = self._child_ranges(part)
        default = "message/rfc822" if part.content_type == "multipart/digest" else "text/plain"
        for start, end in ranges:
            if self.parts >= self.limits.mime_parts:
                self.note(f"more than {self.limits.mime_parts} MIME parts; the rest was not read")
                return
            part.children.append(self.read_part(start, end, depth=depth + 1, default=default))

    def _child_ranges(self, part: Part) -> list[tuple[int, int]]:
        """Where each child begins and ends."""
        boundary = part.parameters.get("boundary", "").rstrip()
        marker = f"--{boundary}".encode("utf-8", "replace")
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


def split_at(
    raw: bytes, start: int, end: int, marker: bytes, max_ranges: int
) -> list[tuple[int, int]]:
    """The ranges between the lines that are `marker`; the line break before one belongs to it."""
    ranges: list[tuple[int, int]] = []
    opened = -1
    for at in _line_starts(raw, start, end, marker):
        is_close = raw.startswith(b"--", at + len(marker))
        # -1 if anything but white space is left on the line
        rest = _REST_OF_LINE.match(raw, at + len(marker) + 2 * is_close, end)
        line_end = rest.end() if rest else -1
        if line_end < 0 and not (is_close and _IN_NO_BOUNDARY.match(raw, at + len(marker) + 2)):
            continue
        if opened >= 0:
            ranges.append((opened, max(opened, _before_break(raw, at))))
        opened = -1 if is_close else line_end
        if is_close or len(ranges) >= max_ranges:
            break
    if opened >= 0 and len(ranges) < max_ranges:
        ranges.append((opened, end))
    return ranges


def _line_starts(raw: bytes, start: int, end: int, marker: bytes) -> Iterator[int]:
    """Where a line begins with the marker."""
    if raw.startswith(marker, start):
        yield start
    for line_break in (b"\n", b"\r"):
        wanted = line_break + marker
        at = raw.find(wanted, start, end)
        if at < 0:
            continue
        for _ in range(_MAX_MARKERS):
            yield at + 1
            at = raw.find(wanted, at + len(wanted), end)
            if at < 0:
                break
        return


def _before_break(raw: bytes, at: int) -> int:
    above = raw[max(at - 2, 0) : at]
    return at - (2 if above == b"\r\n" else above.endswith((b"\r", b"\n")))


def _content_type(fields: Fields, default: str) -> tuple[str, Mapping[str, str]]:
    value = fields.first("content-type")
    if not value:
        return default, {}
    content_type, parameters = parse_parameters(value)
    content_type = "text/plain" if content_type == "text" else content_type
    return content_type if content_type.count("/") == 1 else default, parameters


def is_embedded_message(part: Part) -> bool:
    """A mail inside the mail."""
    return part.content_type in ("message/rfc822", "message/global", "message/news")


def parse_parameters(value: str) -> tuple[str, Mapping[str, str]]:
    """The value itself, lower case, and its parameters by lower-case name, decoded."""
    # Most mail has the same few, which are kept.
    return (_parameters if len(value) <= _SHORT else _parameters.__wrapped__)(value)


@lru_cache(maxsize=1024)
def _parameters(value: str) -> tuple[str, Mapping[str, str]]:
    head, _, rest = value.partition(";")
    if "=" in head:  # a forgotten semicolon, or a forgotten type
        head, rest = _split_leniently(value) if "/" in head.partition("=")[0] else ("", value)
    raw = _raw_parameters(rest) if "=" in rest else []
    head = head.partition("(")[0] if "/" in head else head  # a comment
    return clean(head.strip().strip('"').lower()), _decoded(raw) if raw else {}


def _split_leniently(value: str) -> tuple[str, str]:
    head, *rest = value.split(None, 1)
    return head.rstrip(";"), "".join(rest)


def _raw_parameters(rest: str) -> list[tuple[str, str]]:
    """Names and values, in order."""
    found: list[tuple[str, str]] = []
    at = 0
    while 0 <= at < len(rest) and len(found) < _MAX_PARAMETERS:
        match = _PARAMETER.match(rest, at)
        if match is None:
            at = rest.find(";", at + 1)
            continue
        value = match[3].strip() if match[2] is None else _ESCAPED.sub(r"\1", match[2])
        found.append((match[1].lower(), value))
        at = match.end()
    return found


def _decoded(raw: list[tuple[str, str]]) -> dict[str, str]:
    plain: dict[str, str] = {}
    sections: dict[str, dict[int, tuple[str, bool]]] = {}
    for name, value in raw:
        section = _SECTION.match(name)
        if section:
            numbered = sections.setdefault(section[1], {})
            numbered.setdefault(int(section[2]), (value, bool(section[3])))
        elif name.endswith("*"):
            sections.setdefault(name[:-1], {}).setdefault(0, (value, True))
        else:
            plain.setdefault(name, decode_words(value))
    for name, numbered in sections.items():
        plain[name] = _join_sections(numbered)
    return {name: clean(value) for name, value in plain.items()}


def _join_sections(numbered: dict[int, tuple[str, bool]]) -> str:
    """The sections of an RFC 2231 parameter, in order, in their charset."""
    ordered = [numbered[number] for number in sorted(numbered)]
    if not any(encoded for _, encoded in ordered):
        return decode_words("".join(value for value, _ in ordered))
    first, first_encoded = ordered[0]
    charset = ""
    if first_encoded and first.count("'") >= 2:
        charset, _, first = first.split("'", 2)
        ordered[0] = (first, True)
    data = b"".join(
        unquote_to_bytes(value) if encoded else value.encode("utf-8", "replace")
        for value, encoded in ordered
    )
    return decode(data, charset)[0] if charset else decode_unknown(data)
