"""Names of mailboxes and labels as providers list them, which may hold any character."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def plain_name(name: str) -> str:
    """A name without control characters: they cannot be stored, shown or typed everywhere."""
    return _CONTROLS.sub("\ufffd", name)
