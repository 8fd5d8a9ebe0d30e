"""Mail read again by a newer parser keeps its id, its names and its place."""

from __future__ import annotations

from unittest.mock import patch

from postroom.model.inbox import Inbox
from postroom.model.stored import Change, MessageQuery
from postroom.pipeline import receive
from postroom.pipeline.house import House
from postroom.pipeline.reparsing import reparse
from tests.mails import deliver, mail


async def all_batches(house: House, version: int) -> int:
    return sum([count async for count in reparse(house, version=version)])


async def test_words_threads_and_search_follow_from_the_raw_bytes(
    house: House, inbox: Inbox
) -> None:
    files = [("a.txt", "text/plain", b"a")]
    with patch.object(receive, "PARSER_VERSION", 0):
        parent = await deliver(house, inbox, mail("Root", message_id="<r@x>", attachments=files))
        child = await deliver(house, inbox, mail("Answer", "New words", in_reply_to="<r@x>"))
    await house.store.change_messages([child.message_id], Change(add_labels=("Kept",)), None)
    before = await house.store.message(parent.message_id, None)

    assert 2 == await house.store.count_outdated(1)
    assert 2 == await all_batches(house, 1)

    after = await house.store.message(parent.message_id, None)
    assert before == after
    found = await house.store.messages(MessageQuery(q="new words"))
    assert [(child.message_id, ("Kept",))] == [(row.id, row.labels) for row in found.rows]
    assert 0 == await house.store.count_outdated(1)
    assert 0 == await all_batches(house, 1)
    assert () == await house.store.problems()


async def test_a_better_reading_replaces_the_old_one_everywhere(house: House, inbox: Inbox) -> None:
    def worse(parsed: object) -> str:
        return "nothing of the kind"

    with (
        patch.object(receive, "PARSER_VERSION", 0),
        patch.object(receive, "searchable", worse),
    ):
        added = await deliver(house, inbox, mail("Subject", "The true words"))
    assert 1 == (await house.store.messages(MessageQuery(q="nothing"))).total

    await all_batches(house, 1)

    assert 0 == (await house.store.messages(MessageQuery(q="nothing"))).total
    found = await house.store.messages(MessageQuery(q="true words"))
    assert [added.message_id] == [row.id for row in found.rows]


async def test_threads_that_were_split_or_merged_by_hand_stay_so(
    house: House, inbox: Inbox
) -> None:
    root = await deliver(house, inbox, mail("Root", message_id="<r@x>"))
    reply = await deliver(house, inbox, mail("Re: Root", in_reply_to="<r@x>"))
    other = await deliver(house, inbox, mail("Other"))
    await house.store.split_thread(root.thread_id, [reply.message_id], "thr_split", None)
    await house.store.merge_threads([root.thread_id, other.thread_id], None)

    assert 3 == await all_batches(house, 99)

    threads = [
        message.thread_id
        for added in (root, reply, other)
        if (message := await house.store.message(added.message_id, None))
    ]
    assert [root.thread_id, "thr_split", root.thread_id] == threads
    assert () == await house.store.problems()
