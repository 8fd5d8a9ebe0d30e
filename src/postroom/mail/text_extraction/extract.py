"""The text of attached files: PDF, Word, Excel, PowerPoint, RTF.

Everything here runs in a process that can be killed, without files and network: what it needs is
imported beforehand.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from importlib import import_module

from postroom.mail.message import HiddenText
from postroom.model.values import dataclass

PDF, OFFICE, RTF = "pdf", "office", "rtf"
READERS = {
    kind: (f"postroom.mail.text_extraction.{kind}", f"read_{kind}") for kind in (PDF, OFFICE, RTF)
}
"""The module and function that read a kind of file."""

_START = 1_024
_MAX_PIECES = 10_000
_CODECS = {
    PDF: ("utf_16_le", "utf_16"),
    OFFICE: ("cp437", "utf_16"),
    RTF: (
        *("cp437", "cp850", "cp852", "cp866", "cp874", "cp932", "gbk", "cp949", "cp950"),
        *(f"cp{number}" for number in range(1250, 1259)),
        *("mac_roman", "utf_16"),
    ),
}
_LIBRARIES = {PDF: ("pypdfium2",), OFFICE: (), RTF: ()}


def modules_for(kind: str) -> tuple[str, ...]:
    """The modules that reading a kind of document needs."""
    codecs = [f"encodings.{name}" for name in _CODECS[kind]]
    return (READERS[kind][0], *_LIBRARIES[kind], *codecs)


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The text that a reader of a document sees, and what was left out of it."""

    text: str
    warnings: tuple[str, ...] = ()
    hidden: tuple[HiddenText, ...] = ()


@dataclass(slots=True)
class TextBuilder:
    """Collects the text of a document up to a length, and counts what is hidden in it."""

    max_chars: int
    hidden: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)
    _pieces: list[str] = field(default_factory=list)
    _chars: int = 0

    @property
    def is_full(self) -> bool:
        """Whether one more character than requested exists, which means that the text continues."""
        return self._chars > self.max_chars

    def write(self, text: str) -> None:
        if not self.is_full:
            self._pieces.append(text)
            self._chars += len(text)

    def hide(self, text: str, reason: str) -> None:
        """Leave a text out."""
        if count := len("".join(text.split())):
            if self.hidden[reason] <= self.max_chars:
                self.words.setdefault(reason, []).append(text)
            self.hidden[reason] += count

    def hide_words(self, text: str, reason: str) -> None:
        """Leave out a text that has a separate warning."""
        kept = self.words.setdefault(reason, []) if text.strip() else []
        if sum(map(len, kept[-1:])) <= self.max_chars and len(kept) < _MAX_PIECES:
            kept.append(f"{text} ")

    def take_hidden(self, other: TextBuilder) -> None:
        """Count what is hidden in a part that was read apart."""
        self.hidden += other.hidden
        for reason, pieces in other.words.items():
            self.words.setdefault(reason, []).extend(pieces)

    def result(self) -> ExtractedText:
        lines = "".join(self._pieces).replace("\0", "").split("\n")
        text = "\n".join(line.rstrip() for line in lines).strip("\n")
        hidden = [
            f"hidden text omitted: {count} characters ({reason})"
            for reason, count in sorted(self.hidden.items())
        ]
        warnings = (*hidden, *dict.fromkeys(self.warnings))
        return ExtractedText(text[: self.max_chars + 1], warnings, tuple(self._findings()))

    def _findings(self) -> Iterator[HiddenText]:
        for reason, pieces in sorted(self.words.items()):
            words = " ".join("".join(pieces).split())
            digest = hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()
            yield HiddenText(reason, digest, len(words))


def file_kind(data: bytes) -> str | None:
    """The kind of document by its first bytes; None if that kind is not supported."""
    if b"%PDF-" in data[:_START]:
        return PDF
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return OFFICE
    return RTF if data[:_START].lstrip().startswith(b"{\\rt") else None


def extract_text(data: bytes, max_chars: int) -> ExtractedText:
    """The text up to *max_chars* characters, and one more if there is more.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    kind = file_kind(data)
    if kind is None:
        raise ValueError("it is not a PDF, Office or RTF file")
    module, name = READERS[kind]
    found: ExtractedText = getattr(import_module(module), name)(data, max_chars)
    return found


def extract_as_json(data: bytes, max_chars: int) -> str:
    """`extract_text` with a result that passes through a pipe."""
    found = extract_text(data, max_chars)
    text = found.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    hidden = [(one.reason, one.sha256, one.chars) for one in found.hidden]
    answer = {"text": text, "warnings": found.warnings, "hidden": hidden}
    return json.dumps(answer, ensure_ascii=False)


def from_json(answer: str) -> ExtractedText:
    """The opposite of `extract_as_json`, in the process that asked."""
    found = json.loads(answer)
    hidden = tuple(HiddenText(*one) for one in found["hidden"])
    return ExtractedText(found["text"], tuple(found["warnings"]), hidden)
