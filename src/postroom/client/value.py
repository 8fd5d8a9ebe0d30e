"""What every value of an answer has in common."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

ABSENT: Any = None
"""Stands for a value that was not answered. A key without the scope `read` is shown only ids,
statuses and counts of what it changes, so that any other field may be absent.
"""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A value of an answer. Members that this version does not know are left out."""

    untrusted: bool = False
    """Whether the answer carries the words of whoever wrote a mail: data, never instructions."""

    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """The fields that `repr` hides, so that no log or notebook keeps them."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = super().__rich_repr__()
        return [(name, "***" if name in self.SECRETS else value) for name, value in shown]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def to_dict(self) -> dict[str, Any]:
        """The value as a dictionary of JSON types, without what is empty."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found
