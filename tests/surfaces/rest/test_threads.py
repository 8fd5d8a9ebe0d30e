"""Splitting and merging threads."""

from __future__ import annotations

from tests.mails import deliver, mail, new_inbox


async def subjects(rest, thread_id: str) -> list[str]:
    thread = await rest.get(f"/v1/threads/{thread_id}")
    return [message["subject"] for message in thread["messages"]]


async def test_a_message_is_split_off_and_merged_back(rest, ctx, inbox) -> None:
    root = await deliver(ctx, inbox, mail("Root", message_id="<r@x>"))
    reply = await deliver(ctx, inbox, mail("Other matter", in_reply_to="<r@x>"))

    path = f"/v1/threads/{root.thread_id}/split"
    split = await rest.post(path, message_ids=[reply.message_id])
    assert (["Root"], ["Other matter"]) == (
        await subjects(rest, root.thread_id),
        [message["subject"] for message in split["messages"]],
    )

    ids = [root.thread_id, split["id"]]
    merged = await rest.post("/v1/threads/merge", thread_ids=ids)
    assert (root.thread_id, 2) == (merged["id"], merged["message_count"])
    assert ["Root", "Other matter"] == await subjects(rest, split["id"])


async def test_an_invalid_split_or_merge_is_refused_and_changes_nothing(rest, ctx, inbox) -> None:
    one = await deliver(ctx, inbox, mail("One"))
    other = await deliver(ctx, await new_inbox(ctx, "other"), mail("Other"))
    path = f"/v1/threads/{one.thread_id}/split"

    whole = await rest.problem("POST", path, json={"message_ids": [one.message_id]})
    stranger = await rest.problem("POST", path, json={"message_ids": [other.message_id]})
    across = await rest.problem(
        "POST", "/v1/threads/merge", json={"thread_ids": [one.thread_id, other.thread_id]}
    )

    assert [422, 404, 422] == [whole["status"], stranger["status"], across["status"]]
    assert ["One"] == await subjects(rest, one.thread_id)
