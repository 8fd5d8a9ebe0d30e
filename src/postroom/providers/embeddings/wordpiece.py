"""Text cut into the pieces that the bundled model knows: BERT's uncased WordPiece."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
_LONGEST_WORD = 100
_CONTINUES = "##"


class Vocabulary:
    """Turns text into numbers of pieces, always the longest piece first."""

    def __init__(self, path: Path) -> None:
        pieces = path.read_text("utf-8").split("\n")
        self._numbers = {piece: number for number, piece in enumerate(pieces) if piece}
        self._pieces = lru_cache(maxsize=20_000)(self._cut)

    def numbers(self, text: str, most: int) -> list[int]:
        """The pieces of a text between its two marks, at most *most* of them in all."""
        known = self._numbers
        found = [known[START]]
        for word in words(text):
            found += self._pieces(word)
            if len(found) >= most:
                break
        return [*found[: most - 1], known[END]]

    def _cut(self, word: str) -> tuple[int, ...]:
        """The pieces of one word; if a part of it is in none, all of it is unknown."""
        if len(word) > _LONGEST_WORD:
            return (self._numbers[UNKNOWN],)
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else _CONTINUES + word[start:end]
                if piece in self._numbers:
                    break
            else:
                return (self._numbers[UNKNOWN],)
            found.append(self._numbers[piece])
            start = end
        return tuple(found)


def words(text: str) -> Iterator[str]:
    """The words of a text: lower case, without accents; every mark and Han character is one."""
    clean = _clean(text)
    spaced = clean if clean.isascii() else "".join(map(_spaced, clean))
    for word in spaced.split():
        yield from _parted(word)


def _clean(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text.lower()
    kept = "".join(" " if c.isspace() else c for c in text if not _is_control(c))
    # In this order: an upper-case letter may carry a mark that only its lower case shows.
    apart = unicodedata.normalize("NFD", kept)
    return "".join(c.lower() for c in apart if unicodedata.category(c) != "Mn")


def _is_control(character: str) -> bool:
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")


def _spaced(character: str) -> str:
    return f" {character} " if _is_han(ord(character)) else character


def _is_han(code: int) -> bool:
    return code >= 0x3400 and any(first <= code <= last for first, last in _HAN)


_HAN = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


def _parted(word: str) -> Iterator[str]:
    if word.isalnum():
        yield word
        return
    start = 0
    for place, character in enumerate(word):
        if _is_mark(character):
            if start < place:
                yield word[start:place]
            yield character
            start = place + 1
    if start < len(word):
        yield word[start:]


def _is_mark(character: str) -> bool:
    """Punctuation, and every visible ASCII character that is no letter or digit."""
    if character < "\x7f":
        return not character.isalnum()
    return unicodedata.category(character).startswith("P")
