"""Which contacts of an inbox are known: those it wrote to or heard from, whatever an agent does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.key import AGENT
from postroom.model.mail.sending import Sent
from postroom.operations.mail import inbound
from postroom.operations.outgoing import approvals, drafts, outbox, sending
from tests.approval.conftest import UNKNOWN, KeyFactory
from tests.approval.test_decisions import seen, work
from tests.approval.test_risks import send
from tests.mails import deliver, mail

ME = "me@postroom.localhost"
ALL = ["read", "write", "send", "admin"]


async def hand_in(ctx: RequestContext, sender: str, **parts: Any) -> None:
    """Deliver a mail to the inbox by a request of the caller."""
    arguments = {"recipient": ME, "raw": mail("Hello", sender=sender, to=ME, **parts)}
    await call(ctx, inbound.receive_message, arguments)


AGENTS: dict[str, dict[str, Any]] = {
    "risky": {},
    "with every scope": {"scopes": ALL},
    "with an allow list": {"approval": "never", "recipients": {"allow": [UNKNOWN]}},
    "without a policy of its own": {"approval": "never"},
    "that may not send itself": {"scopes": ["read", "write"], "approval": "risky"},
}


@pytest.mark.parametrize("limits", AGENTS.values(), ids=AGENTS)
async def test_mail_that_an_agent_delivers_adds_no_known_contact(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str, limits: dict[str, Any]
) -> None:
    policy = {"inbox_id": ME, "approval": "risky"}
    await call(outbox_ctx, approvals.set_policy, policy)
    agent = await new_key(**limits)

    for _ in range(4):
        await hand_in(agent, UNKNOWN)

    assert "held" == (await send(await new_key(), UNKNOWN)).status


async def test_mail_that_the_agent_on_stdio_delivers_adds_no_known_contact(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    await hand_in(replace(outbox_ctx, caller=AGENT), UNKNOWN)

    assert "held" == (await send(await new_key(), UNKNOWN)).status


async def test_mail_from_a_mail_server_with_its_own_key_adds_known_contacts(
    new_key: KeyFactory, received: str
) -> None:
    await hand_in(await new_key(scopes=["write"]), UNKNOWN)

    assert "queued" == (await send(await new_key(), UNKNOWN)).status


async def test_mail_that_the_owner_delivers_adds_known_contacts(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    await hand_in(outbox_ctx, UNKNOWN)

    assert "queued" == (await send(await new_key(), UNKNOWN)).status


Taken = Callable[[RequestContext, RequestContext], Awaitable[Sent]]


async def _approved(person: RequestContext, agent: RequestContext, **more: Any) -> Sent:
    sent = await send(agent, UNKNOWN, **more)
    await call(person, approvals.approve_message, await seen(person, sent))
    return sent


async def _approved_for_later(person: RequestContext, agent: RequestContext) -> Sent:
    return await _approved(person, agent, send_at=_later(person))


async def _scheduled_by_the_owner(person: RequestContext, agent: RequestContext) -> Sent:
    return await send(person, UNKNOWN, send_at=_later(person))


async def _queued_by_the_owner(person: RequestContext, agent: RequestContext) -> Sent:
    return await send(person, UNKNOWN)


def _later(ctx: RequestContext) -> str:
    return (ctx.clock() + timedelta(hours=1)).isoformat()


@pytest.mark.parametrize(
    "taken", [_approved, _approved_for_later, _scheduled_by_the_owner, _queued_by_the_owner]
)
async def test_a_cancelled_mail_adds_no_known_contact(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str, taken: Taken
) -> None:
    agent = await new_key()
    sent = await taken(outbox_ctx, agent)
    draft_id = (await call(agent, outbox.cancel_message, {"message_id": sent.message_id})).draft_id
    change = {"draft_id": draft_id, "body_text": "All our passwords", "send_at": None}
    await call(agent, drafts.update_draft, change)

    edited = await call(agent, drafts.send_draft, {"draft_id": draft_id})

    relay = await work(outbox_ctx)
    assert ("held", []) == (edited.status, relay.mails)


async def test_a_recipient_becomes_a_known_contact(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key()
    await _approved(outbox_ctx, agent)
    await work(outbox_ctx)

    assert "queued" == (await send(agent, UNKNOWN, subject="Again")).status


async def test_mail_that_waits_for_a_relay_is_held_before_there_is_one(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = replace(await new_key(), has_relay=False)
    captured = await send(agent, UNKNOWN)

    again = await call(agent, outbox.retry_message, {"message_id": captured.message_id})

    relay = await work(outbox_ctx)
    assert ("captured", "held", []) == (captured.status, again.status, relay.mails)


@pytest.mark.parametrize(
    ("known", "other"),
    [
        ("kim@example.com", "\N{KELVIN SIGN}im@example.com"),
        (
            "\xe5sa@example.com",
            "\N{ANGSTROM SIGN}sa@example.com",
        ),
        ("sam@example.com", "\N{LATIN SMALL LETTER LONG S}am@example.com"),
        ("fio@example.com", "\N{LATIN SMALL LIGATURE FI}o@example.com"),
        ("ivo@example.com", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}vo@example.com"),
    ],
)
async def test_a_look_alike_character_makes_another_address(
    outbox_ctx: RequestContext, new_key: KeyFactory, known: str, other: str
) -> None:
    inbox = (await outbox_ctx.store.inboxes_at([ME]))[ME]
    await deliver(outbox_ctx, inbox, mail("Hello", sender=known))

    assert "held" == (await send(await new_key(), other)).status


async def test_an_international_domain_is_known_in_both_spellings(
    outbox_ctx: RequestContext, new_key: KeyFactory
) -> None:
    inbox = (await outbox_ctx.store.inboxes_at([ME]))[ME]
    raw = mail("Hello").replace(b"ana@example.com", "ana@bücher.example".encode())
    added = await deliver(outbox_ctx, inbox, raw)
    agent = await new_key()

    reply = {"message_id": added.message_id, "body_text": "Yes"}
    assert "queued" == (await call(agent, sending.reply_to_message, reply)).status
    assert "queued" == (await send(agent, "ana@xn--bcher-kva.example")).status
