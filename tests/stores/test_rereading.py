"""Reparsed mail keeps its id, its labels and its mailbox."""

from __future__ import annotations

from unittest.mock import patch

from postroom.model.inbox import Inbox
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline import ingest
from postroom.pipeline.maintenance import reparse
from postroom.pipeline.services import Services
from tests.mails import deliver, mail


async def all_batches(services: Services, version: int) -> int:
    return sum([count async for count in reparse(services, version=version)])


async def test_text_threads_and_search_are_derived_from_the_raw_bytes(
    services: Services, inbox: Inbox
) -> None:
    files = [("a.txt", "text/plain", b"a")]
    with patch.object(ingest, "PARSER_VERSION", 0):
        parent = await deliver(services, inbox, mail("Root", message_id="<r@x>", attachments=files))
        child = await deliver(services, inbox, mail("Answer", "New words", in_reply_to="<r@x>"))
    await services.store.change_messages(
        [child.message_id], Change(add_labels=("Kept",)), EVERYTHING
    )
    before = await services.store.message(parent.message_id, EVERYTHING)

    assert 2 == await services.store.count_outdated(1)
    assert 2 == await all_batches(services, 1)

    after = await services.store.message(parent.message_id, EVERYTHING)
    assert before == after
    found = await services.store.messages(MessageQuery(visible=EVERYTHING, q="new words"))
    assert [(child.message_id, ("Kept",))] == [(row.id, row.labels) for row in found.rows]
    assert 0 == await services.store.count_outdated(1)
    assert 0 == await all_batches(services, 1)
    assert () == await services.store.problems()


async def test_reparsing_replaces_the_old_result_everywhere(
    services: Services, inbox: Inbox
) -> None:
    def worse(parsed: object) -> str:
        return "nothing of the kind"

    with (
        patch.object(ingest, "PARSER_VERSION", 0),
        patch.object(ingest, "searchable", worse),
    ):
        added = await deliver(services, inbox, mail("Subject", "The true words"))
    assert 1 == (await services.store.messages(MessageQuery(visible=EVERYTHING, q="nothing"))).total

    await all_batches(services, 1)

    assert 0 == (await services.store.messages(MessageQuery(visible=EVERYTHING, q="nothing"))).total
    found = await services.store.messages(MessageQuery(visible=EVERYTHING, q="true words"))
    assert [added.message_id] == [row.id for row in found.rows]


async def test_threads_split_or_merged_by_users_stay_so(services: Services, inbox: Inbox) -> None:
    root = await deliver(services, inbox, mail("Root", message_id="<r@x>"))
    reply = await deliver(services, inbox, mail("Re: Root", in_reply_to="<r@x>"))
    other = await deliver(services, inbox, mail("Other"))
    await services.store.split_thread(root.thread_id, [reply.message_id], "thr_split", EVERYTHING)
    await services.store.merge_threads([root.thread_id, other.thread_id], EVERYTHING)

    assert 3 == await all_batches(services, 99)

    threads = [
        message.thread_id
        for added in (root, reply, other)
        if (message := await services.store.message(added.message_id, EVERYTHING))
    ]
    assert [root.thread_id, "thr_split", root.thread_id] == threads
    assert () == await services.store.problems()
