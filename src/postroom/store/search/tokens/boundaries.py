"""Token boundaries: how a text and a query are split into tokens.

Whether there is a boundary depends only on the two characters beside it, so a boundary inside a
query is a boundary in every text that contains the query. A run of letters is a token, a run of
digits is a token, and every other character is a token of its own; so are the characters of scripts
without spaces between words. The ranges must never change: existing segments were built with them.
"""

from __future__ import annotations

import re

from postroom.model.values import late_pattern

LETTERS = "a-z\u00c0-\u0dff\u10c0-\u177f\u1800-\u1fff\u2c00-\u2dff\ua500-\ud7ff"
"""Every range is made of whole blocks of 64 characters, so the first two bytes of UTF-8 decide."""

_FIRST_TOKEN = late_pattern(f"[{LETTERS}]+|[0-9]+|.", re.DOTALL)
_NEXT_TOKEN = late_pattern(f"( ?)([{LETTERS}]+|[0-9]+|[^ ])")


def utf8(text: str) -> bytes:
    """Encode a query; a lone surrogate occurs in no text, and is not an error."""
    return text.encode(errors="surrogatepass")


def split_query(folded: str) -> tuple[str, str]:
    """Split a query into its first token, and the rest from that token's last character on.

    The rest is empty if the query is a single token.
    """
    match = _FIRST_TOKEN.match(folded)
    first = match.group() if match else ""
    return first, folded[len(first) - 1 :] if len(first) < len(folded) else ""


def later_windows(rest: str, lookahead: int) -> list[tuple[str, str]]:
    """Cover the tokens of *rest* after the first *lookahead* with overlapping windows.

    Each window is a pair as `split_query` returns it, with *lookahead* tokens after its first.
    """
    matches = list(_NEXT_TOKEN.finditer(rest, 1))
    last = len(matches) - 1 - lookahead
    firsts = [*range(lookahead - 1, last, lookahead), last] if last >= 0 else []
    return [(matches[n].group(2), rest[matches[n].end() - 1 :]) for n in firsts]


def has_longer_token(folded: str, size: int) -> bool:
    """Whether a token of a query has more than *size* bytes."""
    if len(utf8(folded)) <= size:
        return False
    return any(len(utf8(match[2])) > size for match in _NEXT_TOKEN.finditer(folded))


def following_tokens(rest: str) -> list[tuple[bool, str]]:
    """The tokens after the first character, each with whether a space precedes it."""
    return [(bool(space), token) for space, token in _NEXT_TOKEN.findall(rest, 1)]
