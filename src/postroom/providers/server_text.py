"""Texts of servers: names may hold any character, and answers the password that was given."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MIN_CHARS = 6


def plain_name(name: str) -> str:
    """A name without control characters: they cannot be stored, shown or typed everywhere."""
    return _CONTROLS.sub("\ufffd", name)


def without_secret(text: str, secret: str | None) -> str:
    """A text of a server without the secret; empty if the secret is short.

    A short one may stand in any text, and what is missing there would tell it.
    """
    if not secret:
        return text
    return text.replace(secret, "********") if len(secret) >= _MIN_CHARS else ""
