"""Where a text falls into tokens. A border depends on the two characters beside it alone.

So a border inside a query is a border inside every text that contains the query. Letters run
together, digits run together, and every other character is a token by itself; so are those of
scripts that do not put spaces between words. The ranges are our own and must never change: an
index that was made with others would answer wrongly.
"""

from __future__ import annotations

import re

LETTERS = "a-z\u00c0-\u0dff\u10c0-\u177f\u1800-\u1fff\u2c00-\u2dff\ua500-\ud7ff"
"""Each range begins and ends with a block of 64, so two bytes of UTF-8 tell them apart."""

_FIRST_TOKEN = re.compile(f"[{LETTERS}]+|[0-9]+|.", re.DOTALL)
_NEXT_TOKEN = re.compile(f"( ?)([{LETTERS}]+|[0-9]+|[^ ])")


def utf8(text: str) -> bytes:
    """The bytes of a query; half a character is in no text, but it is no reason to fail."""
    return text.encode(errors="surrogatepass")


def split_query(folded: str) -> tuple[str, str]:
    """A query as its first token, and all of it from that token's last character on.

    The second part is empty if there is no border inside.
    """
    match = _FIRST_TOKEN.match(folded)
    first = match.group() if match else ""
    return first, folded[len(first) - 1 :] if len(first) < len(folded) else ""


def later_parts(rest: str, ahead: int) -> list[tuple[str, str]]:
    """A text after its first so many tokens, as `split_query` gives it, in parts that overlap.

    Each has so many tokens after its first; together with those before they are the whole.
    """
    matches = list(_NEXT_TOKEN.finditer(rest, 1))
    last = len(matches) - 1 - ahead
    firsts = [*range(ahead - 1, last, ahead), last] if last >= 0 else []
    return [(matches[n].group(2), rest[matches[n].end() - 1 :]) for n in firsts]


def has_longer_token(folded: str, size: int) -> bool:
    """Whether a token of a query has more bytes than this."""
    if len(utf8(folded)) <= size:
        return False
    return any(len(utf8(match[2])) > size for match in _NEXT_TOKEN.finditer(folded))


def follow_up(rest: str) -> list[tuple[bool, str]]:
    """The tokens after the first character of a text, and whether a space is before each."""
    return [(bool(space), token) for space, token in _NEXT_TOKEN.findall(rest, 1)]
