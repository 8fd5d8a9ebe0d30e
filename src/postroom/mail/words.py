"""Encoded words (RFC 2047), also the broken ones."""

from __future__ import annotations

import binascii
import re

from postroom.mail.charsets import clean, decode
from postroom.mail.transfer import decode_base64

# The text of a word may hold what it must not (spaces, question marks), so its end is looked
# for with `find`, which cannot run over the same bytes twice.
_MOST_WORDS = 5_000
_START = re.compile(r"=\?([^\s?*]{1,40})(?:\*[^\s?]{0,40})?\?([BbQq])\?")


def decode_words(value: str) -> str:
    """Decode the encoded words of a header; white space between two of them is no content."""
    if "=?" not in value:
        return value
    pieces: list[str] = []
    words = _Run(pieces)
    at = 0
    for start, end, charset, data in _words(value):
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

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces
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
            self._pieces.append(decode(b"".join(self._data), self._charset)[0])
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
    while 0 <= end and value[end + 2 : end + 4].isalnum() and _is_hex(value[end + 2 : end + 4]):
        further = value.find("?=", end + 2)
        opening = value.find("=?", end + 2)
        if further < 0 or 0 <= opening < further:
            break
        end = further
    return end


def _is_hex(pair: str) -> bool:
    return len(pair) == 2 and all(c in "0123456789ABCDEF" for c in pair)


def _payload(text: str, encoding: str) -> bytes:
    data = text.encode("utf-8", "replace")
    if encoding in "Bb":
        return decode_base64(data)
    return binascii.a2b_qp(data.replace(b" ", b"_"), header=True)
