"""Who is no stranger: addresses that an inbox wrote to or heard from, whatever an agent does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.key import AGENT
from postroom.model.sending import Sent
from postroom.operations import inbound
from postroom.operations.outgoing import approvals, drafts, outbox, sending
from tests.approval.conftest import STRANGER, Keyed
from tests.approval.test_decisions import seen, work
from tests.approval.test_risks import send
from tests.mails import deliver, mail

ME = "me@postroom.localhost"
ALL = ["read", "write", "send", "admin"]


async def hand_in(ctx: RequestContext, sender: str, **parts: Any) -> None:
    """Deliver a mail to the inbox by the caller's own request."""
    arguments = {"recipient": ME, "raw": mail("Hello", sender=sender, to=ME, **parts)}
    await call(ctx, inbound.receive_message, arguments)


AGENTS: dict[str, dict[str, Any]] = {
    "risky": {},
    "with every scope": {"scopes": ALL},
    "with an allow list": {"approval": "never", "recipients": {"allow": [STRANGER]}},
    "without a policy of its own": {"approval": "never"},
    "that may not send itself": {"scopes": ["read", "write"], "approval": "risky"},
}


@pytest.mark.parametrize("limits", AGENTS.values(), ids=AGENTS)
async def test_an_agent_makes_nobody_known_with_mail_that_it_hands_in(
    post: RequestContext, keyed: Keyed, heard: str, limits: dict[str, Any]
) -> None:
    policy = {"inbox_id": ME, "approval": "risky"}
    await call(post, approvals.set_policy, policy)
    agent = await keyed(**limits)

    for _ in range(4):
        await hand_in(agent, STRANGER)

    assert "held" == (await send(await keyed(), STRANGER)).status


async def test_nor_does_the_agent_without_a_key(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    await hand_in(replace(post, caller=AGENT), STRANGER)

    assert "held" == (await send(await keyed(), STRANGER)).status


async def test_a_mail_server_with_a_key_of_its_own_makes_senders_known(
    keyed: Keyed, heard: str
) -> None:
    await hand_in(await keyed(scopes=["write"]), STRANGER)

    assert "queued" == (await send(await keyed(), STRANGER)).status


async def test_the_owner_hands_in_mail_that_counts(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    await hand_in(post, STRANGER)

    assert "queued" == (await send(await keyed(), STRANGER)).status


Taken = Callable[[RequestContext, RequestContext], Awaitable[Sent]]


async def _approved(person: RequestContext, agent: RequestContext, **more: Any) -> Sent:
    sent = await send(agent, STRANGER, **more)
    await call(person, approvals.approve_message, await seen(person, sent))
    return sent


async def _approved_for_later(person: RequestContext, agent: RequestContext) -> Sent:
    return await _approved(person, agent, send_at=_later(person))


async def _scheduled_by_the_owner(person: RequestContext, agent: RequestContext) -> Sent:
    return await send(person, STRANGER, send_at=_later(person))


async def _queued_by_the_owner(person: RequestContext, agent: RequestContext) -> Sent:
    return await send(person, STRANGER)


def _later(ctx: RequestContext) -> str:
    return (ctx.clock() + timedelta(hours=1)).isoformat()


@pytest.mark.parametrize(
    "taken", [_approved, _approved_for_later, _scheduled_by_the_owner, _queued_by_the_owner]
)
async def test_a_mail_that_was_taken_back_makes_nobody_known(
    post: RequestContext, keyed: Keyed, heard: str, taken: Taken
) -> None:
    agent = await keyed()
    sent = await taken(post, agent)
    draft_id = (await call(agent, outbox.cancel_message, {"message_id": sent.message_id})).draft_id
    change = {"draft_id": draft_id, "body_text": "All our passwords", "send_at": None}
    await call(agent, drafts.update_draft, change)

    edited = await call(agent, drafts.send_draft, {"draft_id": draft_id})

    relay = await work(post)
    assert ("held", []) == (edited.status, relay.mails)


async def test_who_was_written_to_is_known(post: RequestContext, keyed: Keyed, heard: str) -> None:
    agent = await keyed()
    await _approved(post, agent)
    await work(post)

    assert "queued" == (await send(agent, STRANGER, subject="Again")).status


async def test_mail_that_waits_for_a_relay_is_held_before_there_is_one(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    agent = replace(await keyed(), has_relay=False)
    captured = await send(agent, STRANGER)

    again = await call(agent, outbox.retry_message, {"message_id": captured.message_id})

    relay = await work(post)
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
async def test_a_letter_that_only_looks_the_same_is_another(
    post: RequestContext, keyed: Keyed, known: str, other: str
) -> None:
    inbox = (await post.store.inboxes_at([ME]))[ME]
    await deliver(post, inbox, mail("Hello", sender=known))

    assert "held" == (await send(await keyed(), other)).status


async def test_an_international_domain_is_known_in_both_spellings(
    post: RequestContext, keyed: Keyed
) -> None:
    inbox = (await post.store.inboxes_at([ME]))[ME]
    raw = mail("Hello").replace(b"ana@example.com", "ana@bücher.example".encode())
    added = await deliver(post, inbox, raw)
    agent = await keyed()

    reply = {"message_id": added.message_id, "body_text": "Yes"}
    assert "queued" == (await call(agent, sending.reply_to_message, reply)).status
    assert "queued" == (await send(agent, "ana@xn--bcher-kva.example")).status
