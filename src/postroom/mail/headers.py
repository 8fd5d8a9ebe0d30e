"""The header block of a mail or of a part: from bytes to fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.mail.charsets import clean, decode
from postroom.mail.words import decode_words
from postroom.model.limits import Limits

_BLANK = re.compile(rb"\n\r?\n")
_ODD_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))[ \t]{0,80}(?:\r\n|\n|\r(?!\n))")
_FIELD = re.compile(r"([!-9;-~]+)[ \t]*:")
_NAME = re.compile(r"[!-9;-~]+")
_USUAL_NAMES = frozenset(
    ("received", "from", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references",
     "mime-version", "content-type", "content-transfer-encoding", "content-disposition", "sender",
     "return-path", "delivered-to", "reply-to", "user-agent", "x-mailer", "list-id", "precedence",
     "x-mailing-list", "dkim-signature", "authentication-results", "received-spf")
)  # fmt: skip
_CHARSET = re.compile(r"charset\s?=\s?\"?([\w-]{1,40})", re.IGNORECASE)
_ATTESTED = frozenset(("authentication-results", "arc-authentication-results", "received-spf"))
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
        block_end = raw.rfind(b"\n", start, start + limits.header_bytes) + 1
        block_end = block_end or start + limits.header_bytes
        defects.append(f"header block over {limits.header_bytes} bytes, read up to there")
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
    blank = _BLANK.search(raw, start, end)
    if blank:
        return blank.start() + 1, blank.end()
    odd = _ODD_BLANK.search(raw, start, end)
    return (odd.start(), odd.end()) if odd else (end, end)


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


class _Reader:
    """The long way through a header block, for one with surprises in it."""

    def __init__(self, most: int, defects: list[str]) -> None:
        self.fields = Fields()
        self._most = most
        self._defects = defects
        self._name = ""
        self._value: list[str] = []
        self._text = ""
        self._charset: str | None = None

    def read(self, text: str) -> int | None:
        """Fill the fields; returns where the header breaks off, None if it is whole."""
        self._text = text
        at = 0
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if line[:1] in (" ", "\t") and self._name:
                self._value.append(line)
            elif match := _FIELD.match(line):
                self._store()
                if len(self.fields.pairs) >= self._most:
                    self._note(f"more than {self._most} header fields, read up to there")
                    return None
                self._name, self._value = match[1], [line[match.end() :]]
            elif line.strip() and not _is_envelope_line(line, number):
                if not _FIELD.match(lines[number + 1] if number + 1 < len(lines) else ""):
                    self._note("no blank line between header and body")
                    self._store()
                    return at
                self._note("a line in the header that is no field")
            at += len(line) + 1
        self._store()
        return None

    def _store(self) -> None:
        if not self._name:
            return
        value = "".join(line.rstrip("\r") for line in self._value)
        if not value.isascii():
            value = self._decoded(value.encode("latin-1"))
        self.fields.add(self._name, clean(value.strip()))
        self._name = ""

    def _decoded(self, value: bytes) -> str:
        """Raw 8-bit text: UTF-8, else what the body is in, else what it looks like."""
        if self._charset is None:
            declared = _CHARSET.search(self._text)
            self._charset = declared[1] if declared else ""
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return decode(value, self._charset)[0]

    def _note(self, defect: str) -> None:
        if defect not in self._defects:
            self._defects.append(defect)


def _is_envelope_line(line: str, number: int) -> bool:
    return number == 0 and line.startswith(("From ", ">From "))


def decoded_pairs(fields: Fields) -> Iterator[tuple[str, str]]:
    """Every field, in order, with its encoded words decoded.

    What servers attest stays as it is: a decoded word could end a verdict and begin another.
    """
    for name, value in fields.pairs:
        is_encoded = "=?" in value and name.lower() not in _ATTESTED
        yield name, decode_words(value) if is_encoded else value
