"""Reading: texts truncated to a size, with an offset to continue."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.operations.mail import messages, threads
from postroom.operations.mail.messages import fair_max_length
from postroom.surfaces.to_json import response_body
from tests.mails import deliver, mail, new_inbox


async def test_a_long_text_is_read_in_parts_without_loss(ctx: RequestContext) -> None:
    text = "\n".join(f"line {number}" for number in range(3000))
    added = await deliver(ctx, await new_inbox(ctx), mail("Long", text))

    parts, offset = [], 0
    while True:
        message = await call(
            ctx,
            messages.get_message,
            {"message_id": added.message_id, "text_offset": offset, "max_chars": 7000},
        )
        parts.append(message.text)
        if message.next_offset is None:
            break
        assert message.truncated
        assert message.total_chars is not None
        offset = message.next_offset

    assert text == "".join(parts).rstrip("\n")


async def test_only_requested_fields_are_present_even_if_empty(
    ctx: RequestContext,
) -> None:
    inbox = await new_inbox(ctx)
    await deliver(ctx, inbox, mail("The first of this sender"))
    added = await deliver(ctx, inbox, mail("Short"))

    plain = await call(ctx, messages.get_message, {"message_id": added.message_id})
    shape = response_body(messages.get_message, plain)

    absent = {"html", "headers", "quoted_text", "signature", "truncated", "next_offset", "status"}
    assert absent.isdisjoint(shape)
    assert ([], None, {}) == (shape["labels"], shape["in_reply_to"], shape["security"])
    assert "raw" not in shape


async def test_attachments_are_included_as_far_as_they_fit(ctx: RequestContext) -> None:
    files = [("small.txt", "text/plain", b"abc"), ("big.bin", "application/x-bin", b"x" * 90_000)]
    added = await deliver(ctx, await new_inbox(ctx), mail("Files", attachments=files))

    message = await call(
        ctx,
        messages.get_message,
        {"message_id": added.message_id, "include_attachments": True},
    )

    small, big = message.attachments
    assert ("YWJj", None) == (small.content, small.content_omitted)
    assert (None, True) == (big.content, big.content_omitted)


async def test_a_thread_of_long_mails_fits_and_says_what_was_cut(ctx: RequestContext) -> None:
    inbox = await new_inbox(ctx)
    root = await deliver(ctx, inbox, mail("Root", "short", message_id="<r@x>"))
    for number in range(40):
        await deliver(ctx, inbox, mail(f"Re {number}", "word " * 4000, in_reply_to="<r@x>"))

    thread = await call(ctx, threads.get_thread, {"thread_id": root.thread_id})

    assert len(json.dumps(response_body(threads.get_thread, thread))) < 60_000
    assert thread.messages[0].truncated is None
    assert all(message.truncated for message in thread.messages[1:])


@given(st.lists(st.integers(0, 5000), max_size=60), st.integers(1, 100_000))
def test_a_fair_cut_keeps_to_the_budget_and_wastes_nothing(lengths: list[int], budget: int) -> None:
    cut = fair_max_length(lengths, budget)

    kept = sum(min(length, cut) for length in lengths)
    assert kept <= max(budget, 0)
    if any(length > cut for length in lengths):
        assert kept + len(lengths) >= budget
