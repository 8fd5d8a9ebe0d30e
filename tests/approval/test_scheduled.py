"""A scheduled mail passes the gate again when it is due: policies may have changed since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Forbidden
from postroom.model.mail.message import Message
from postroom.model.mail.storage import MessageQuery
from postroom.operations import inboxes
from postroom.operations.keys import update_key
from postroom.operations.mail import messages
from postroom.operations.outgoing import approvals, outbox
from tests.approval.conftest import KNOWN, UNKNOWN, KeyFactory
from tests.approval.test_risks import FILE, HIDDEN, html_mail, send
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import relay_worker
from tests.servers.relay import relaying

ME, DESK = "me@postroom.localhost", "desk@postroom.localhost"
OTHERS = {"allow": ["bo@example.org"]}
Change = Callable[[RequestContext, RequestContext], Awaitable[Any]]


def of_key(**change: Any) -> Change:
    return lambda owner, agent: call(owner, update_key, {"key_id": agent.caller.key_id, **change})


def of_inbox(**change: Any) -> Change:
    return lambda owner, _: call(owner, approvals.set_policy, {"inbox_id": ME, **change})


async def nothing(_owner: RequestContext, _agent: RequestContext) -> None:
    """The policies stay."""


async def scheduled(agent: RequestContext, *to: str, **more: Any) -> str:
    at = agent.clock() + timedelta(hours=1)
    return (await send(agent, *to, send_at=at.isoformat(), **more)).message_id


async def later(ctx: RequestContext, clock: Clock) -> list[Any]:
    """Two hours later: what the relay has got."""
    async with relaying() as relay, relay_worker(ctx, relay) as worker:
        clock.now += timedelta(hours=2)
        await worker.finish(5)
        return relay.mails


async def read(ctx: RequestContext, message_id: str) -> Message:
    found = await call(ctx, messages.get_message, {"message_id": message_id})
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize(
    ("change", "to", "more", "expected"),
    [
        (nothing, KNOWN, {}, "sent"),
        (nothing, UNKNOWN, {"attachments": [FILE]}, "sent"),
        (of_key(approval="always"), KNOWN, {}, "held"),
        (of_inbox(approval="always"), KNOWN, {}, "held"),
        (of_key(approval="risky"), KNOWN, {}, "sent"),
        (of_key(approval="risky"), UNKNOWN, {}, "held"),
        (of_inbox(approval="risky"), KNOWN, {"attachments": [FILE]}, "held"),
        (of_key(recipients={"deny": [KNOWN]}), KNOWN, {}, "failed"),
        (of_inbox(recipients={"deny": ["@example.com"]}), KNOWN, {}, "failed"),
        (of_key(recipients=OTHERS), KNOWN, {}, "failed"),
    ],
)
async def test_the_policies_of_the_time_when_it_is_due_hold(
    outbox_ctx: RequestContext,
    new_key: KeyFactory,
    clock: Clock,
    received: str,
    change: Change,
    to: str,
    more: dict[str, Any],
    expected: str,
) -> None:
    agent = await new_key(approval="never")
    message_id = await scheduled(agent, to, **more)
    await change(outbox_ctx, agent)

    mails = await later(outbox_ctx, clock)

    message = await read(outbox_ctx, message_id)
    assert (expected, int(expected == "sent")) == (message.status, len(mails))
    if expected == "failed":
        assert "not sent: ana@example.com" in (message.recipients or ())[0].detail
        with pytest.raises(Forbidden):
            await call(agent, outbox.retry_message, {"message_id": message_id})


async def test_what_its_author_did_since_holds_nothing(
    outbox_ctx: RequestContext, new_key: KeyFactory, clock: Clock, received: str
) -> None:
    agent = await new_key(approval="risky")
    message_id = await scheduled(agent, KNOWN)
    clock.now += timedelta(minutes=59)
    await call(agent, messages.get_message, {"message_id": await html_mail(outbox_ctx, HIDDEN)})
    assert "held" == (await send(agent, KNOWN)).status

    mails = await later(outbox_ctx, clock)

    assert (["sent"], 1) == ([(await read(outbox_ctx, message_id)).status], len(mails))


@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_person_decides_about_a_mail_that_is_held_when_it_is_due(
    outbox_ctx: RequestContext,
    new_key: KeyFactory,
    clock: Clock,
    received: str,
    is_approved: bool,
) -> None:
    desk = await call(outbox_ctx, inboxes.create_inbox, {"username": "desk"})
    agent = await new_key(approval="never")
    message_id = await scheduled(agent, KNOWN, DESK, inbox_id=ME)
    await of_key(approval="always")(outbox_ctx, agent)
    assert [] == await later(outbox_ctx, clock)
    query = MessageQuery(outbox_ctx.visible, inbox_id=desk.id)
    assert 0 == (await outbox_ctx.store.messages(query)).total

    held = await call(outbox_ctx, approvals.get_held_mail, {"message_id": message_id})
    decide = approvals.approve_message if is_approved else approvals.reject_message
    await call(outbox_ctx, decide, {"message_id": message_id, "sha256": held.hold.sha256})
    mails = [*await later(outbox_ctx, clock), *await later(outbox_ctx, clock)]

    assert ["every mail of this sender waits for approval"] == list(held.hold.reasons)
    count = int(is_approved)
    assert (count, count) == (len(mails), (await outbox_ctx.store.messages(query)).total)


async def test_an_approved_mail_is_sent_at_its_time(
    outbox_ctx: RequestContext, new_key: KeyFactory, clock: Clock, received: str
) -> None:
    agent = await new_key(approval="always")
    message_id = await scheduled(agent, KNOWN)
    held = await call(outbox_ctx, approvals.get_held_mail, {"message_id": message_id})
    decision = {"message_id": message_id, "sha256": held.hold.sha256}
    await call(outbox_ctx, approvals.approve_message, decision)

    mails = await later(outbox_ctx, clock)

    assert 1 == len(mails)
