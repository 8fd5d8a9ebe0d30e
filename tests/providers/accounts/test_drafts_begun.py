"""Mail that was not sent does not lie in Drafts, where somebody could send it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from postroom.operations.outgoing import outbox
from tests.providers.accounts.conftest import AS_ROOT, Desk
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.test_refused import refusals
from tests.providers.accounts.test_sent_copies import OUTSIDE, send, working
from tests.providers.accounts.worlds import PROXIED, GraphWorld, ImapWorld
from tests.servers.graph import Graph
from tests.servers.web import HttpRequest, HttpResponse

JMAP = [pytest.param(PROXIED, marks=AS_ROOT)]
LARGE: dict[str, Any] = {
    "filename": "big.bin",
    "content_type": "application/x-data",
    "content": b64encode(bytes(4 * 2**20)).decode(),
}


def drafts(graph: Graph) -> int:
    return sum(mail.is_draft for mail in graph.mails.values())


def upload_fails(graph: Graph, *, drops: bool) -> None:
    """Let no upload end; whether what was begun may be removed then."""
    real = graph.web.answer

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path.startswith("/upload/"):
            return HttpResponse(503, {"error": {"code": "x"}}, {"Retry-After": "1"})
        if request.path.endswith("/permanentDelete") and not drops:
            return HttpResponse(500, {"error": {"code": "x"}})
        return real(request)

    graph.web.answer = answer


@pytest.mark.parametrize("world", ["outlook"], indirect=True)
@pytest.mark.parametrize("may_delete", [True, False])
async def test_an_upload_that_fails_leaves_no_draft(
    desk: Desk, world: GraphWorld, *, may_delete: bool
) -> None:
    await desk.sync()
    world.graph.may_delete = may_delete
    upload_fails(world.graph, drops=True)
    async with working(desk):
        sent = await send(desk, OUTSIDE, attachments=[LARGE], wait_s=4)

    assert ("queued", 0) == (sent.status, len(world.graph.mails))
    assert "retry in 1 s" in str(sent.recipients[0].detail)


@pytest.mark.parametrize("world", ["outlook"], indirect=True)
@pytest.mark.parametrize("ends", ["cancelled", "sent"])
async def test_a_draft_that_could_not_be_removed_goes_later(
    desk: Desk, world: GraphWorld, ends: str
) -> None:
    await desk.sync()
    real = world.graph.web.answer
    upload_fails(world.graph, drops=False)
    async with working(desk):
        sent = await send(desk, OUTSIDE, attachments=[LARGE], wait_s=4)
    assert ("queued", 1) == (sent.status, drafts(world.graph))
    world.graph.web.answer = real
    if ends == "sent":
        async with working(desk) as worker:
            await ask(desk, outbox.retry_message, message_id=sent.message_id)
            await worker.finish(20)
        assert 1 == len(world.sent())
    else:
        await ask(desk, outbox.cancel_message, message_id=sent.message_id)
        await desk.sync()
        assert [] == world.sent()

    assert (0, []) == (drafts(world.graph), await refusals(desk))


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_what_a_jmap_server_refuses_leaves_no_draft(desk: Desk, world: ImapWorld) -> None:
    await desk.sync()
    answered = [["error", {"type": "invalidArguments"}, "0"]]
    world.proxy.instead = lambda name, _: answered if name == "EmailSubmission/set" else None
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=20)

    assert ("failed", []) == (sent.status, world.copies("Hello"))


@pytest.mark.parametrize("world", JMAP, indirect=True)
@pytest.mark.parametrize("ends", ["cancelled", "sent"])
async def test_a_draft_that_a_jmap_server_keeps_goes_later(
    desk: Desk, world: ImapWorld, ends: str
) -> None:
    """It wants us to wait for an hour, and takes nothing before."""
    await desk.sync()
    wait = HttpResponse(429, b"", {"Retry-After": "3600"})
    world.proxy.instead = lambda name, _: wait if name == "EmailSubmission/set" else None
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=3)
    assert ("queued", ["Drafts"]) == (sent.status, world.copies("Hello"))
    world.proxy.instead = None
    desk.app.services.providers._limiters.clear()  # type: ignore[attr-defined]
    if ends == "sent":
        async with working(desk) as worker:
            await ask(desk, outbox.retry_message, message_id=sent.message_id)
            await worker.finish(20)
    else:
        await ask(desk, outbox.cancel_message, message_id=sent.message_id)
    await desk.sync()
    world.imap.noop()

    assert (["Sent"] if ends == "sent" else []) == world.copies("Hello")
    assert (ends == "sent") == bool(world.sent())


@pytest.mark.parametrize("world", JMAP, indirect=True)
@pytest.mark.parametrize("refusal", ["overQuota", "forbiddenToSend"])
async def test_a_copy_that_its_owner_has_put_away_outlives_a_retry(
    desk: Desk, world: ImapWorld, refusal: str
) -> None:
    await desk.sync()
    world.proxy.after = lambda name, _: (
        HttpResponse(502, b"") if name == "EmailSubmission/set" else None
    )
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=20)
    world.proxy.after = None
    assert "unknown" == sent.status
    world.archive("Hello")
    request = []

    def refuse(name: str, _: Any) -> Any:
        if name != "EmailSubmission/set":
            return None
        request.append(name)
        return [[name, {"notCreated": {"s": {"type": refusal}}}, "0"]]

    world.proxy.instead = refuse
    async with working(desk) as worker:
        await ask(desk, outbox.retry_message, message_id=sent.message_id)
        await worker.finish(20)
    world.imap.noop()

    assert (1, ["Archive"]) == (len(request), world.copies("Hello"))
