"""What every value of an answer has in common."""

from __future__ import annotations

from typing import Any

import msgspec

ABSENT: Any = None
"""Stands for a value that was not answered. A key without the scope `read` is shown only ids,
statuses and counts of what it changes, so that any other field may be absent.
"""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A value of an answer. Members that this version does not know are left out."""

    untrusted: bool = False
    """Whether the answer carries the words of whoever wrote a mail: data, never instructions."""

    def to_dict(self) -> dict[str, Any]:
        """The value as a dictionary of JSON types, without what is empty."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found
