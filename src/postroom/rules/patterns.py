"""Patterns that strangers write: always RE2, whose time grows with the text and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import re2  # type: ignore[import-untyped]

_MOST_BYTES = 4 << 20
"""What a compiled pattern may take."""


def compile_regex(pattern: str) -> Callable[[str], bool]:
    """Whether a text, as it is, has a match. Raises ValueError."""
    return _searcher(pattern)


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Whether a folded text is all of a pattern in which * is any text and ? any character."""
    words = {"*": ".*", "?": "."}
    return _searcher("(?s)^" + "".join(words.get(c) or re2.escape(c) for c in pattern) + "$")


def _searcher(pattern: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.max_mem = _MOST_BYTES
    options.log_errors = False
    try:
        search = re2.compile(pattern, options).search
    except (re2.error, UnicodeError) as error:
        raise ValueError(_reason(error)) from None
    return lambda text: search(_sound(text)) is not None


def _sound(text: str) -> str:
    """Half of a surrogate pair has no bytes; the rest of the text still counts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _reason(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
