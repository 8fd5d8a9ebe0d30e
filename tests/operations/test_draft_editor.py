"""A draft is stored incomplete, and validated when it is sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, TooLarge
from postroom.model.inbox import Inbox
from postroom.model.view import NOTHING
from postroom.operations.outgoing.drafts import get_draft, list_drafts, save_draft, send_draft
from postroom.operations.outgoing.outbox import cancel_message
from tests.callers import a_caller

NEW = "drf_abcdefghij"
MAIL = {"draft_id": NEW, "to": ["ana@example.com"], "subject": "S", "body_text": "Hi"}


async def test_a_draft_without_recipients_is_stored_and_not_sent(
    ctx: RequestContext, inbox: Inbox
) -> None:
    draft = await call(ctx, save_draft, {"draft_id": NEW, "to": ["ana@"], "body_text": "Hi"})

    assert (NEW, inbox.id, ("ana@",)) == (draft.id, draft.inbox_id, draft.to)
    with pytest.raises(InvalidInput, match="to"):
        await call(ctx, send_draft, {"draft_id": NEW})
    assert draft == await call(ctx, get_draft, {"draft_id": NEW})


async def test_saving_with_one_id_makes_one_draft(ctx: RequestContext, inbox: Inbox) -> None:
    saves = (call(ctx, save_draft, {**MAIL, "subject": str(number)}) for number in range(4))
    results = await asyncio.gather(*saves, return_exceptions=True)
    await call(ctx, save_draft, MAIL)

    assert {Conflict} >= {type(error) for error in results if isinstance(error, Exception)}
    assert [("S", "Hi")] == [
        (draft.subject, draft.body_text) for draft in (await call(ctx, list_drafts, {})).results
    ]


@pytest.mark.parametrize("draft_id", ["drf_a", "drf_ABCDEFGH", "msg_abcdefgh", "../etc", "x" * 64])
async def test_an_id_of_another_form_is_refused(
    ctx: RequestContext, inbox: Inbox, draft_id: str
) -> None:
    with pytest.raises((NotFound, InvalidInput)):
        await call(ctx, save_draft, {**MAIL, "draft_id": draft_id})
    assert 0 == (await call(ctx, list_drafts, {})).total


async def test_a_sent_or_foreign_draft_is_not_changed(ctx: RequestContext, inbox: Inbox) -> None:
    await call(ctx, save_draft, MAIL)
    other_caller = replace(ctx, caller=a_caller("key_stranger", inboxes=NOTHING))
    with pytest.raises(NotFound):
        await call(other_caller, save_draft, {**MAIL, "subject": "Mine"})
    blind = replace(ctx, caller=replace(ctx.caller, scopes=frozenset({"write"})))
    with pytest.raises(Forbidden):
        await call(blind, save_draft, MAIL)
    sent = await call(ctx, send_draft, {"draft_id": NEW})

    with pytest.raises(NotFound, match=f"was sent as {sent.message_id}"):
        await call(ctx, save_draft, {**MAIL, "subject": "Late"})


async def test_too_many_or_too_large_files_are_refused(ctx: RequestContext, inbox: Inbox) -> None:
    files = [{"filename": f"{number}.txt", "content": "YQ=="} for number in range(20)]
    await call(ctx, save_draft, {**MAIL, "add_files": files})

    more = [{"filename": "one.txt", "content": "YQ=="}]
    with pytest.raises(InvalidInput, match="21 files; the limit is 20"):
        await call(ctx, save_draft, {**MAIL, "add_files": more})
    await call(ctx, save_draft, {**MAIL, "remove_file": 0, "file_count": 20})
    big = [{"filename": "one.txt", "content": "YWFh" * 9_000_000}]
    with pytest.raises(TooLarge, match="the limit is"):
        await call(ctx, save_draft, {**MAIL, "add_files": big})
    assert 19 == len((await call(ctx, get_draft, {"draft_id": NEW})).attachments)


async def test_a_draft_keeps_the_mail_that_it_replaces(ctx: RequestContext, inbox: Inbox) -> None:
    later = ctx.clock() + timedelta(days=1)
    await call(ctx, save_draft, {**MAIL, "send_at": later.isoformat()})
    sent = await call(ctx, send_draft, {"draft_id": NEW})
    await call(ctx, cancel_message, {"message_id": sent.message_id})

    stored = await ctx.store.draft(NEW, ctx.visible)
    assert stored is not None
    assert stored.replaces is not None
    assert ("S", ("ana@example.com",)) == (stored.replaces.subject, stored.replaces.recipients)
