"""Encoded words (RFC 2047), also the broken ones."""

from __future__ import annotations

import binascii
import re

from postroom.mail.charsets import clean, decode
from postroom.mail.transfer import decode_base64

# The text of a word may hold what it must not (spaces, question marks), so its end is looked
# for with `find`, which cannot run over the same bytes twice.
_END = re.compile(r"\?=(?![0-9A-F]{2})")
_QUOTED_PAIR = re.compile(r"=[0-9A-F]{2}")
_MOST_WORDS = 5_000
_FEW_WORDS = 20
_START = re.compile(r"=\?([^\s?*]{1,40})(?:\*[^\s?]{0,40})?\?([BbQq])\?")


def decode_words(value: str) -> str:
    """Decode the encoded words of a header; white space between two of them is no content."""
    if "=?" not in value:
        return value
    pieces: list[str] = []
    found = _words(value)
    words = _Run(pieces, detects=len(found) <= _FEW_WORDS)
    at = 0
    for start, end, charset, data in found:
        between = value[at:start]
        if between.strip() or not words.is_open:
            words.close()
            pieces.append(between)
        words.add(charset, data)
        at = end
    words.close()
    pieces.append(value[at:])
    return clean("".join(pieces))


class _Run:
    """Neighbouring words of one charset, decoded together: senders cut letters in two."""

    def __init__(self, pieces: list[str], *, detects: bool) -> None:
        self._pieces = pieces
        self._detects = detects
        self._charset = ""
        self._data: list[bytes] = []

    @property
    def is_open(self) -> bool:
        return bool(self._data)

    def add(self, charset: str, data: bytes) -> None:
        if self._data and charset != self._charset:
            self.close()
        self._charset = charset
        self._data.append(data)

    def close(self) -> None:
        if self._data:
            data = b"".join(self._data)
            self._pieces.append(decode(data, self._charset, detects=self._detects)[0])
            self._data = []


def _words(value: str) -> list[tuple[int, int, str, bytes]]:
    """Each word: where it starts and ends, its charset, its bytes."""
    found: list[tuple[int, int, str, bytes]] = []
    at = 0
    while len(found) < _MOST_WORDS and (match := _START.search(value, at)):
        end = _end_of_word(value, match.end())
        if end < 0:
            break
        payload = value[match.end() : end]
        found.append((match.start(), end + 2, match[1].lower(), _payload(payload, match[2])))
        at = end + 2
    return found


def _end_of_word(value: str, start: int) -> int:
    """The closing `?=`; not one where the question mark belongs to a quoted `=3D` after it."""
    end = value.find("?=", start)
    if end < 0 or not _QUOTED_PAIR.match(value, end + 1):
        return end
    opening = value.find("=?", end + 2)
    better = _END.search(value, end + 2, opening if opening >= 0 else len(value))
    return better.start() if better else end


def _payload(text: str, encoding: str) -> bytes:
    data = text.encode("utf-8", "replace")
    if encoding in "Bb":
        return decode_base64(data)
    return binascii.a2b_qp(data.replace(b" ", b"_"), header=True)
