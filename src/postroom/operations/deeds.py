"""What the audit log says of a call: who, what, to which things; never what was written in it."""

from __future__ import annotations

from enum import Enum
from typing import Any

from postroom.model.audit import Deed
from postroom.operations.context import Context
from postroom.operations.request import Request

_NAMED = frozenset(
    ("label", "labels", "flags", "destination", "mailbox", "to", "cc", "bcc", "recipient", "scopes",
     "name", "address", "username", "url", "types", "status", "tags", "namespace")
)  # fmt: skip
"""Texts that say what was done. Bodies, subjects and secrets are not among them."""

_MOST_CHARS = 200
_MOST_ITEMS = 20


def deed_of(ctx: Context, action: str, request: Request) -> Deed:
    """Who does what now."""
    values = {name: getattr(request, name) for name in type(request).model_fields}
    return Deed(
        actor=ctx.caller.key_id,
        action=action,
        at=ctx.clock(),
        targets=tuple(_targets(values)),
        details={name: shown for name, v in values.items() if (shown := _shown(name, v))},
        namespace=values.get("namespace"),
    )


def _targets(values: dict[str, Any]) -> list[str]:
    """The things that are named; the first kind of them is what the call is about."""
    for name, value in values.items():
        if name.endswith("_id") and isinstance(value, str):
            return [value]
        if name.endswith("_ids") and isinstance(value, list):
            return list(dict.fromkeys(value))
    return []


def _shown(name: str, value: object) -> object:
    if isinstance(value, (bool, int)) and not isinstance(value, Enum):
        return value
    if name not in _NAMED:
        return None
    if isinstance(value, list):
        return [str(item)[:_MOST_CHARS] for item in value[:_MOST_ITEMS]]
    return value[:_MOST_CHARS] if isinstance(value, str) else None
