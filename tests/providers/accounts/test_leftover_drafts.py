"""Mail that was not sent leaves no draft at the provider that somebody could send."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from postroom.model.key import OWNER
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import Sent
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing import outbox
from tests.pipeline.outbox_helpers import types, until
from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount
from tests.providers.accounts.remote_mailboxes import PROXIED, GraphRemote, ImapRemote
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.test_refused_changes import refusals
from tests.providers.accounts.test_sent_copies import OUTSIDE, outbox_worker, send
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
    """Make every upload fail, and optionally the deletion of the draft."""
    real = graph.web.answer

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path.startswith("/upload/"):
            return HttpResponse(503, {"error": {"code": "x"}}, {"Retry-After": "1"})
        if request.path.endswith("/permanentDelete") and not drops:
            return HttpResponse(500, {"error": {"code": "x"}})
        return real(request)

    graph.web.answer = answer


async def first_try(synced: SyncedAccount, sent: Sent) -> Recipient:
    """The only recipient of a mail, after the first attempt to send it has failed."""
    ctx = synced.app.context(OWNER)

    async def has_failed() -> bool:
        return "message.deferred" in await types(ctx, sent)

    await until(ctx, has_failed)
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    [recipient] = message.recipients or ()
    return recipient


@pytest.mark.parametrize("remote", ["outlook"], indirect=True)
@pytest.mark.parametrize("may_delete", [True, False])
async def test_a_failed_upload_leaves_no_draft(
    synced: SyncedAccount, remote: GraphRemote, *, may_delete: bool
) -> None:
    await synced.sync()
    remote.graph.may_delete = may_delete
    upload_fails(remote.graph, drops=True)
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, attachments=[LARGE])
        recipient = await first_try(synced, sent)

    assert ("queued", 0) == (recipient.status, len(remote.graph.mails))
    assert "retry in 1 s" in str(recipient.detail)


@pytest.mark.parametrize("remote", ["outlook"], indirect=True)
@pytest.mark.parametrize("ends", ["cancelled", "sent"])
async def test_a_draft_that_could_not_be_deleted_is_deleted_later(
    synced: SyncedAccount, remote: GraphRemote, ends: str
) -> None:
    await synced.sync()
    real = remote.graph.web.answer
    upload_fails(remote.graph, drops=False)
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, attachments=[LARGE])
        recipient = await first_try(synced, sent)
    assert ("queued", 1) == (recipient.status, drafts(remote.graph))
    remote.graph.web.answer = real
    if ends == "sent":
        async with outbox_worker(synced) as worker:
            await ask(synced, outbox.retry_message, message_id=sent.message_id)
            await worker.finish(20)
        assert 1 == len(remote.sent())
    else:
        await ask(synced, outbox.cancel_message, message_id=sent.message_id)
        await synced.sync()
        assert [] == remote.sent()

    assert (0, []) == (drafts(remote.graph), await refusals(synced))


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_a_refused_jmap_submission_leaves_no_draft(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    await synced.sync()
    answered = [["error", {"type": "invalidArguments"}, "0"]]
    remote.proxy.instead = lambda name, _: answered if name == "EmailSubmission/set" else None
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=20)

    assert ("failed", []) == (sent.status, remote.copies("Hello"))


@pytest.mark.parametrize("remote", JMAP, indirect=True)
@pytest.mark.parametrize("ends", ["cancelled", "sent"])
async def test_a_draft_left_at_a_jmap_server_is_deleted_later(
    synced: SyncedAccount, remote: ImapRemote, ends: str
) -> None:
    """The server wants a pause of an hour, and accepts no request before."""
    await synced.sync()
    wait = HttpResponse(429, b"", {"Retry-After": "3600"})
    remote.proxy.instead = lambda name, _: wait if name == "EmailSubmission/set" else None
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=3)
    assert ("queued", ["Drafts"]) == (sent.status, remote.copies("Hello"))
    remote.proxy.instead = None
    synced.app.services.providers._limiters.clear()  # type: ignore[attr-defined]
    if ends == "sent":
        async with outbox_worker(synced) as worker:
            await ask(synced, outbox.retry_message, message_id=sent.message_id)
            await worker.finish(20)
    else:
        await ask(synced, outbox.cancel_message, message_id=sent.message_id)
    await synced.sync()
    remote.imap.noop()

    assert (["Sent"] if ends == "sent" else []) == remote.copies("Hello")
    assert (ends == "sent") == bool(remote.sent())


@pytest.mark.parametrize("remote", JMAP, indirect=True)
@pytest.mark.parametrize("refusal", ["overQuota", "forbiddenToSend"])
async def test_a_copy_that_its_owner_moved_survives_a_retry(
    synced: SyncedAccount, remote: ImapRemote, refusal: str
) -> None:
    await synced.sync()
    remote.proxy.after = lambda name, _: (
        HttpResponse(502, b"") if name == "EmailSubmission/set" else None
    )
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=20)
    remote.proxy.after = None
    assert "unknown" == sent.status
    remote.archive("Hello")
    request = []

    def refuse(name: str, _: Any) -> Any:
        if name != "EmailSubmission/set":
            return None
        request.append(name)
        return [[name, {"notCreated": {"s": {"type": refusal}}}, "0"]]

    remote.proxy.instead = refuse
    async with outbox_worker(synced) as worker:
        await ask(synced, outbox.retry_message, message_id=sent.message_id)
        await worker.finish(20)
    remote.imap.noop()

    assert (1, ["Archive"]) == (len(request), remote.copies("Hello"))
