"""Flags and labels of one message: set, added and removed."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import InvalidInput
from postroom.operations.mail.message_changes import update_message


@pytest.mark.parametrize(
    ("change", "flags", "labels"),
    [
        ({"add_flags": ["flagged"]}, ("seen", "flagged"), ("Work",)),
        ({"remove_flags": ["seen"]}, (), ("Work",)),
        ({"add_flags": ["answered"], "remove_flags": ["seen"]}, ("answered",), ("Work",)),
        ({"add_labels": ["Todo", "WORK"]}, ("seen",), ("Work", "Todo")),
        ({"remove_labels": ["work"]}, ("seen",), ()),
        ({"labels": ["New"], "add_labels": ["Todo"]}, ("seen",), ("New", "Todo")),
        ({"flags": []}, (), ("Work",)),
    ],
)
async def test_only_what_is_named_changes(
    ctx: RequestContext,
    invoice: str,
    change: dict[str, Any],
    flags: tuple[str, ...],
    labels: tuple[str, ...],
) -> None:
    await call(ctx, update_message, {"message_id": invoice, "flags": ["seen"], "labels": ["Work"]})

    await call(ctx, update_message, {"message_id": invoice, **change})

    message = await ctx.store.message(invoice, ctx.visible)
    assert message is not None
    assert (flags, labels) == (message.flags, message.labels)


async def test_something_must_change(ctx: RequestContext, invoice: str) -> None:
    with pytest.raises(InvalidInput, match="something to change"):
        await call(ctx, update_message, {"message_id": invoice})
