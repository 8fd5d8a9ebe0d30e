"""The header block of a mail or of a part: from bytes to fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.mail.charsets import clean, decode
from postroom.mail.words import decode_words
from postroom.model.limits import Limits

_BLANK_LINE = re.compile(rb"(?:^|\r\n|\n|\r(?!\n))[ \t]*(?:\r\n|\n|\r(?!\n))")
_FIELD = re.compile(r"([!-9;-~]+)[ \t]*:")
_NAME = re.compile(r"[!-9;-~]+")
_USUAL_NAMES = frozenset(
    ("received", "from", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references",
     "mime-version", "content-type", "content-transfer-encoding", "content-disposition", "sender",
     "return-path", "delivered-to", "reply-to", "user-agent", "x-mailer", "list-id", "precedence",
     "x-mailing-list", "dkim-signature", "authentication-results", "received-spf")
)  # fmt: skip
_LONE_CR = re.compile(r"\r(?!\n)")


@dataclass(slots=True)
class Fields:
    """Header fields in order, raw but unfolded; look-ups ignore case."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    _index: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, value: str) -> None:
        self.pairs.append((name, value))
        self._index.setdefault(name.lower(), []).append(value)

    def all(self, name: str) -> list[str]:
        return self._index.get(name, [])

    def first(self, name: str) -> str:
        values = self._index.get(name)
        return values[0] if values else ""

    def decoded(self, name: str) -> str:
        return decode_words(self.first(name)).strip()

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
        block_end = raw.rfind(b"\n", start, start + limits.header_bytes) + 1 or block_end
        block_end = min(block_end, start + limits.header_bytes)
        defects.append(f"header block over {limits.header_bytes} bytes, read up to there")
    text = _block_text(raw[start:block_end], defects)
    fields = _read_clean(text, limits.header_count)
    consumed = None
    if fields is None:
        fields = Fields()
        consumed = _read_fields(text, fields, limits.header_count, defects)
    if consumed is not None:
        body_start = start + consumed
    return HeaderBlock(fields, body_start, tuple(defects))


def _block_bounds(raw: bytes, start: int, end: int) -> tuple[int, int]:
    """Where the header block ends and where the body begins."""
    if raw.startswith((b"\n", b"\r\n"), start):
        return start, start + (1 if raw[start : start + 1] == b"\n" else 2)
    crlf = raw.find(b"\r\n\r\n", start, end)
    lf = raw.find(b"\n\n", start, end if crlf < 0 else crlf)
    if lf >= 0:
        return lf + 1, lf + 2
    if crlf >= 0:
        return crlf + 2, crlf + 4
    blank = _BLANK_LINE.search(raw, start, end)
    return (blank.start(), blank.end()) if blank else (end, end)


def _block_text(block: bytes, defects: list[str]) -> str:
    """The block as text of the same length as its bytes, so that places stay comparable."""
    text = block.decode("latin-1")
    if "\r" in text and _LONE_CR.search(text):
        text = _LONE_CR.sub("\n", text)
        defects.append("bare CR in the header")
    return text


def _read_clean(text: str, most: int) -> Fields | None:
    """The fields of a block without surprises, which is nearly every one; else None."""
    if not text.isascii() or "\0" in text:
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.replace("\n ", " ").replace("\n\t", "\t").rstrip("\n").split("\n")
    if len(lines) > most:
        return None
    fields = Fields()
    pairs, index = fields.pairs, fields._index
    for line in lines:
        name, colon, value = line.partition(":")
        lower = name.lower()
        if not colon or (lower not in _USUAL_NAMES and not _NAME.fullmatch(name)):
            return None
        value = value.strip()
        pairs.append((name, value))
        if lower in index:
            index[lower].append(value)
        else:
            index[lower] = [value]
    return fields


def _read_fields(text: str, fields: Fields, most: int, defects: list[str]) -> int | None:
    """Fill `fields`; returns where the header breaks off, None if it is whole."""
    name, value = "", []
    at = 0
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line[:1] in (" ", "\t") and name:
            value.append(line)
        elif match := _FIELD.match(line):
            if name:
                _store(fields, name, value)
            if len(fields.pairs) >= most:
                defects.append(f"more than {most} header fields, read up to there")
                return None
            name, value = match[1], [line[match.end() :]]
        elif line.strip() and not _is_envelope_line(line, number):
            if not _header_goes_on(lines, number):
                defects.append("no blank line between header and body")
                if name:
                    _store(fields, name, value)
                return at
            defects.append("a line in the header that is no field")
        at += len(line) + 1
    if name:
        _store(fields, name, value)
    return None


def _is_envelope_line(line: str, number: int) -> bool:
    return number == 0 and line.startswith(("From ", ">From "))


def _header_goes_on(lines: list[str], number: int) -> bool:
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return bool(_FIELD.match(following))


def _store(fields: Fields, name: str, lines: list[str]) -> None:
    value = lines[0] if len(lines) == 1 else "".join(line.rstrip("\r") for line in lines)
    if not value.isascii():
        value = decode(value.encode("latin-1"))[0]
    fields.add(name, clean(value.strip()))


def decoded_pairs(fields: Fields) -> Iterator[tuple[str, str]]:
    """Every field, in order, with its encoded words decoded."""
    for name, value in fields.pairs:
        yield name, decode_words(value) if "=?" in value else value
