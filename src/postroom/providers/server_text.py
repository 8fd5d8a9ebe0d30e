"""Texts of servers, some of which repeat the password that they were given."""

from __future__ import annotations

_MIN_CHARS = 6


def without_secret(text: str, secret: str | None) -> str:
    """A text of a server without the secret; empty if the secret is short.

    A short one may stand in any text, and what is missing there would tell it.
    """
    if not secret:
        return text
    return text.replace(secret, "********") if len(secret) >= _MIN_CHARS else ""
