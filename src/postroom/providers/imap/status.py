"""Lines that say how something went, and how they may be repeated to people."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STATUS = re.compile(
    rb"(OK|NO|BAD|BYE|PREAUTH)(?: |$)(?:\[([^\] ]+)(?: ([^\]]*))?\] ?)?(.*)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Status:
    """A word, a code in brackets with its data, and a text for people."""

    word: str
    code: str
    data: bytes
    text: str


def read_status(line: bytes) -> Status | None:
    """Read what follows a tag or a star; None if it is no status."""
    found = _STATUS.fullmatch(line)
    if found is None:
        return None
    word, code, data, text = found.groups()
    return Status(
        word.decode().upper(),
        (code or b"").decode("ascii", "replace").upper(),
        data or b"",
        text.decode("utf-8", "replace"),
    )


def shown(text: str) -> str:
    """What a server says, fit to be repeated: one line, not too long."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:1000]).split())[:200]
