"""Ids that nobody can guess."""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def random_id(prefix: str) -> str:
    """Make an id that nobody can guess: a prefix and 130 random bits."""
    number = secrets.randbits(130)
    return prefix + "_" + "".join(_ALPHABET[number >> shift & 31] for shift in range(0, 130, 5))
