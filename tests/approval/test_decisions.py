"""What a person decides about held mail happens once, to exactly the mail they saw."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, Forbidden, InvalidInput, MailError, NotFound
from postroom.model.key import ALL_SCOPES
from postroom.model.mail.message import Header
from postroom.model.mail.sending import OutboxQuery, Sent
from postroom.model.view import EVERYTHING
from postroom.operations import keys
from postroom.operations.mail import message_changes
from postroom.operations.outgoing import approvals, outbox, sending
from postroom.operations.outgoing.approvals import approve_message, get_held_mail, reject_message
from postroom.operations.outgoing.outbox import ListOutbox
from tests.approval.conftest import KNOWN, STRANGER, Keyed
from tests.pipeline.clock import Clock
from tests.pipeline.posting import statuses, types, working
from tests.servers.relay import Relay, relaying

MAIL = {"to": [STRANGER], "bcc": [KNOWN], "subject": "Offer", "body_text": "Ten per cent."}


@pytest.fixture
async def held(post: RequestContext, keyed: Keyed, heard: str) -> Sent:
    agent = await keyed()
    return await call(agent, sending.send_message, MAIL)


async def seen(ctx: RequestContext, sent: Sent) -> dict[str, Any]:
    """The arguments of a decision by somebody who has looked at the mail."""
    mail = await call(ctx, get_held_mail, {"message_id": sent.message_id})
    return {"message_id": sent.message_id, "sha256": mail.hold.sha256}


async def work(ctx: RequestContext) -> Relay:
    async with relaying() as relay, working(ctx, relay) as worker:
        await worker.finish(5)
    return relay


async def test_the_sender_is_told_why_and_what_to_do(post: RequestContext, held: Sent) -> None:
    (warning, *_) = held.warnings or ()

    assert "held" == held.status
    assert STRANGER in warning
    assert "person" in warning
    assert ["message.held"] == await types(post, held)


async def test_nothing_of_a_mail_is_hidden_from_who_decides(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    html = '<p>Hello.</p><div style="display:none">the secret</div><!-- and more -->'
    others = {"reply_to": ["m@evil.example"], "headers": [{"name": "X-Data", "value": "more"}]}
    copies = {"cc": ["Cee <C@Example.com>"], "bcc": ["bcc@münchen.example"]}
    mail = {**MAIL, "body_text": None, "body_html": html, **others, **copies}
    sent = await call(await keyed(), sending.send_message, mail)

    seen = await call(post, get_held_mail, {"message_id": sent.message_id})

    assert ("Hello.", len("the secret")) == (seen.text, seen.hidden_chars)
    assert html in (seen.body_html or "")
    assert ((STRANGER,), 1, 1) == (
        seen.to_addresses,
        len(seen.cc_addresses),
        len(seen.bcc_addresses),
    )
    assert ("c@example.com", "bcc@") == (seen.cc_addresses[0].lower(), seen.bcc_addresses[0][:4])
    assert (("m@evil.example",), (Header("X-Data", "more"),)) == (seen.reply_to, seen.headers)


async def test_approved_mail_leaves_once_and_as_it_was_seen(
    post: RequestContext, held: Sent
) -> None:
    decision = await seen(post, held)
    raw = (await post.store.message(held.message_id, EVERYTHING)).raw  # type: ignore[union-attr]

    await call(post, approve_message, decision)
    await call(post, approve_message, decision)
    relay = await work(post)

    [mail] = relay.mails
    assert {STRANGER, KNOWN} == set(mail.recipients)
    composed = await post.blobs.read(raw)
    assert composed.partition(b"\r\n\r\n")[2].strip() in mail.data
    assert {STRANGER: "sent", KNOWN: "sent"} == await statuses(post, held)
    assert ["message.held", "message.approved", "message.queued"] == (await types(post, held))[:3]


async def test_fifty_people_at_once_are_one_decision(post: RequestContext, held: Sent) -> None:
    decision = await seen(post, held)
    deciding = [
        call(post, approve_message if n % 2 else reject_message, decision) for n in range(50)
    ]

    outcomes = await asyncio.gather(*deciding, return_exceptions=True)
    relay = await work(post)

    unexpected = [o for o in outcomes if not isinstance(o, (Sent, Conflict))]
    message = await post.store.message(held.message_id, EVERYTHING)
    assert message is not None
    assert message.hold is not None
    assert ([], message.hold.decision == "approved") == (unexpected, len(relay.mails) == 1)


async def test_another_mail_than_the_one_that_was_seen_is_not_approved(
    post: RequestContext, held: Sent
) -> None:
    decision = {**await seen(post, held), "sha256": "0" * 64}

    with pytest.raises(Conflict, match="read it again"):
        await call(post, approve_message, decision)
    assert [] == (await work(post)).mails


async def test_rejected_mail_never_leaves(post: RequestContext, held: Sent) -> None:
    decision = await seen(post, held)
    await call(post, reject_message, {**decision, "note": "Too cheap."})

    for operation, arguments in (
        (approve_message, decision),
        (outbox.retry_message, {"message_id": held.message_id}),
    ):
        with pytest.raises(MailError):
            await call(post, operation, arguments)
    message = await post.store.message(held.message_id, EVERYTHING)
    assert message is not None
    assert ("rejected", "Too cheap.") == (message.status, message.hold and message.hold.note)
    assert [] == (await work(post)).mails
    assert "message.rejected" in await types(post, held)


async def test_what_nobody_approves_in_time_is_rejected(
    post: RequestContext, clock: Clock, held: Sent
) -> None:
    decision = await seen(post, held)
    clock.now += timedelta(hours=72)

    with pytest.raises(Conflict, match="in time"):
        await call(post, approve_message, decision)
    relay = await work(post)

    assert ([], "rejected") == (relay.mails, (await statuses(post, held))[STRANGER])
    with pytest.raises(Conflict, match="in time"):
        await call(post, approve_message, decision)


async def test_approved_mail_that_is_scheduled_waits_for_its_time(
    post: RequestContext, keyed: Keyed, clock: Clock, heard: str
) -> None:
    agent = await keyed()
    later = (clock() + timedelta(hours=5)).isoformat()
    sent = await call(agent, sending.send_message, {**MAIL, "send_at": later})
    await call(post, approve_message, await seen(post, sent))

    before = await work(post)
    clock.now += timedelta(hours=5, seconds=1)
    after = await work(post)

    assert ("held", 0, 1) == (sent.status, len(before.mails), len(after.mails))


async def test_a_held_mail_makes_nobody_known(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    agent = await keyed()
    first = await call(agent, sending.send_message, {**MAIL, "bcc": []})
    second = await call(agent, sending.send_message, {**MAIL, "bcc": [], "subject": "Again"})
    await call(post, approve_message, await seen(post, second))
    await work(post)
    third = await call(agent, sending.send_message, {**MAIL, "bcc": [], "subject": "Third"})

    assert ["held", "held", "queued"] == [first.status, second.status, third.status]


async def test_mail_that_was_changed_behind_the_gate_does_not_leave(
    post: RequestContext, held: Sent
) -> None:
    await call(post, approve_message, await seen(post, held))
    await post.store.engine.write(
        lambda tx: tx.run(
            "UPDATE messages SET details = replace(details, :a, :b)",
            a=STRANGER,
            b="eve@evil.example",
        )
    )

    relay = await work(post)

    assert ([], {"failed"}) == (relay.mails, set((await statuses(post, held)).values()))


NOBODY_ELSE = [
    ("the agent", {}),
    ("a key with every scope", {"scopes": ["read", "write", "send", "admin"]}),
]


@pytest.mark.parametrize(("who", "limits"), NOBODY_ELSE, ids=[who for who, _ in NOBODY_ELSE])
async def test_nobody_approves_with_a_key_for_other_things(
    post: RequestContext, keyed: Keyed, held: Sent, who: str, limits: dict[str, Any]
) -> None:
    other = await keyed(**limits)

    for operation in (approve_message, reject_message):
        with pytest.raises(Forbidden):
            await call(other, operation, await seen(post, held))


async def test_the_owners_key_does_not_approve(post: RequestContext, held: Sent) -> None:
    by_key = replace(post, caller=replace(post.caller, scopes=ALL_SCOPES, is_local=False))

    with pytest.raises(Forbidden):
        await call(by_key, approve_message, await seen(post, held))
    with pytest.raises(Forbidden, match="terminal"):
        await call(by_key, keys.create_key, {"name": "x", "scopes": ["approve"]})


async def test_a_key_that_approves_does_nothing_else(
    post: RequestContext, keyed: Keyed, held: Sent
) -> None:
    decider = await keyed(scopes=["approve"])

    listed = await call(decider, outbox.list_outbox, {"status": "held"})
    await call(decider, approve_message, await seen(decider, held))

    assert [held.message_id] == [entry.message_id for entry in listed.results]
    assert 1 == len((await work(post)).mails)
    for arguments in ({}, {"status": "queued"}):
        with pytest.raises(Forbidden):
            await call(decider, outbox.list_outbox, arguments)
    with pytest.raises(InvalidInput, match="no other scope"):
        await keyed(scopes=["approve", "read"])


async def test_a_decider_of_one_inbox_does_not_see_others(
    post: RequestContext, keyed: Keyed, held: Sent
) -> None:
    decider = await keyed(scopes=["approve"], inboxes=[])
    decision = await seen(post, held)

    page = await outbox.list_outbox(decider, ListOutbox(status="held"))
    assert 0 == page.total
    for operation in (approve_message, reject_message):
        with pytest.raises(NotFound):
            await call(decider, operation, decision)
    with pytest.raises(NotFound):
        await seen(decider, held)


async def test_a_key_under_a_policy_cannot_make_a_freer_one(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    admin = await keyed(scopes=["read", "write", "send", "admin"], approval="risky")
    send = {"name": "x", "scopes": ["send"]}

    for freer in ({"approval": "never"}, {"recipients": {"allow": ["@evil.example"]}}):
        with pytest.raises(Forbidden, match="relax it"):
            await call(admin, keys.create_key, {**send, **freer})
    made = await call(admin, keys.create_key, {**send, "approval": "always"})
    assert "always" == made.approval


async def test_the_policy_of_an_inbox_holds_for_everybody(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    inbox = {"inbox_id": "me@postroom.localhost"}
    admin = await keyed(scopes=["admin", "send", "read"])
    await call(post, approvals.set_policy, {**inbox, "approval": "always"})

    sent = await call(post, sending.send_message, {**MAIL, "to": [KNOWN], "bcc": []})

    assert "held" == sent.status
    with pytest.raises(Forbidden):
        await call(admin, approvals.set_policy, {**inbox, "approval": "never"})
    listed = await post.store.outbox(OutboxQuery(EVERYTHING, "held"))
    assert [sent.message_id] == [entry.message_id for entry in listed.rows]


OWNER_ADDRESS = "owner@example.org"


async def test_the_owner_is_told_without_a_word_of_the_mail(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    agent = await keyed()
    telling = replace(post.gate, notify=OWNER_ADDRESS, page_url="https://mail.example/outgoing")
    agent = replace(agent, gate=telling)
    inbox = {"inbox_id": "me@postroom.localhost", "approval": "always"}
    await call(post, approvals.set_policy, inbox)

    for number in range(3):
        await call(agent, sending.send_message, {**MAIL, "subject": f"Secret {number}"})
    [mail] = (await work(post)).mails

    assert [OWNER_ADDRESS] == mail.recipients
    assert b"https://mail.example/outgoing" in mail.data
    assert not any(word in mail.data for word in (b"Secret", b"Ten per cent", STRANGER.encode()))


async def test_a_key_under_a_policy_loosens_no_key(
    post: RequestContext, keyed: Keyed, heard: str
) -> None:
    admin = await keyed(scopes=["read", "send", "admin"], approval="risky")
    strict = await keyed(approval="always")
    change = {"key_id": strict.caller.key_id}

    for key_id in (admin.caller.key_id, strict.caller.key_id):
        for looser in ({"approval": "never"}, {"recipients": {"allow": ["@evil.example"]}}):
            with pytest.raises(Forbidden, match="relax it"):
                await call(admin, keys.update_key, {"key_id": key_id, **looser})
    with pytest.raises(Forbidden, match="relax it"):
        await call(admin, keys.update_key, {**change, "approval": "risky"})
    loosened = await call(post, keys.update_key, {**change, "approval": "risky"})
    assert "risky" == loosened.approval


LIMIT = {"approval": "never", "recipients": {"allow": ["@example.org"]}}


@pytest.mark.parametrize(
    ("policy", "is_as_strict"),
    [
        ({"approval": "never"}, False),
        ({"approval": "risky"}, False),
        ({"approval": "risky", "recipients": {"allow": ["@example.org"]}}, False),
        ({"approval": "never", "recipients": {"allow": ["@evil.example"]}}, False),
        ({"approval": "never", "recipients": {"allow": ["bo@example.com"]}}, False),
        (LIMIT, True),
        ({"approval": "always"}, True),
    ],
)
async def test_a_key_with_an_allow_list_as_its_limit_makes_none_without(
    keyed: Keyed, heard: str, policy: dict[str, Any], is_as_strict: bool
) -> None:
    admin = await keyed(scopes=["read", "send", "admin"], **LIMIT)
    lists = {"recipients": {}, **policy}

    for operation, about in (
        (keys.create_key, {"name": "x", "scopes": ["send"]}),
        (keys.update_key, {"key_id": admin.caller.key_id}),
    ):
        if is_as_strict:
            await call(admin, operation, {**about, **lists})
        else:
            with pytest.raises(Forbidden, match="relax it"):
                await call(admin, operation, {**about, **lists})


async def test_a_mail_that_a_person_decides_is_not_sent_again(
    post: RequestContext, held: Sent
) -> None:
    retry = {"message_id": held.message_id}
    with pytest.raises(Conflict, match="approval"):
        await call(post, outbox.retry_message, retry)

    await call(post, reject_message, await seen(post, held))
    with pytest.raises(Conflict, match="rejected"):
        await call(post, outbox.retry_message, retry)

    assert [] == (await work(post)).mails


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (message_changes.move_message, {"destination": "Sent"}),
        (message_changes.move_message, {"destination": "Trash"}),
        (message_changes.delete_message, {}),
        (message_changes.delete_message, {"permanent": True}),
    ],
)
async def test_a_held_mail_is_not_moved_out_of_sight(
    post: RequestContext, keyed: Keyed, held: Sent, operation: Any, arguments: dict[str, Any]
) -> None:
    agent = await keyed()

    try:
        result = await call(agent, operation, {"message_id": held.message_id, **arguments})
        refused = result.failed[0].message
    except Conflict as error:
        refused = str(error)

    message = await post.store.message(held.message_id, EVERYTHING)
    assert message is not None
    assert ("Outbox",) == message.mailboxes
    assert "cancel_message" in refused
