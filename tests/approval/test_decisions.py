"""A decision about held mail takes effect once, on exactly the mail that was shown."""

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
from postroom.operations.outgoing import approvals, identities, outbox, sending
from postroom.operations.outgoing.approvals import approve_message, get_held_mail, reject_message
from postroom.operations.outgoing.outbox import ListOutbox
from tests.approval.conftest import KNOWN, UNKNOWN, KeyFactory
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import relay_worker, statuses, types
from tests.servers.relay import Relay, relaying

MAIL = {"to": [UNKNOWN], "bcc": [KNOWN], "subject": "Offer", "body_text": "Ten per cent."}


@pytest.fixture
async def held(outbox_ctx: RequestContext, new_key: KeyFactory, received: str) -> Sent:
    agent = await new_key()
    return await call(agent, sending.send_message, MAIL)


async def seen(ctx: RequestContext, sent: Sent) -> dict[str, Any]:
    """The arguments of a decision by a user who has seen the mail."""
    mail = await call(ctx, get_held_mail, {"message_id": sent.message_id})
    return {"message_id": sent.message_id, "sha256": mail.hold.sha256}


async def work(ctx: RequestContext) -> Relay:
    async with relaying() as relay, relay_worker(ctx, relay) as worker:
        await worker.finish(5)
    return relay


async def test_a_held_mail_has_reasons_and_a_hint(outbox_ctx: RequestContext, held: Sent) -> None:
    (warning, *_) = held.warnings or ()

    assert "held" == held.status
    assert UNKNOWN in warning
    assert "person" in warning
    assert ["message.held"] == await types(outbox_ctx, held)


async def test_the_approver_sees_all_of_a_mail(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    html = '<p>Hello.</p><div style="display:none">the secret</div><!-- and more -->'
    others = {"reply_to": ["m@evil.example"], "headers": [{"name": "X-Data", "value": "more"}]}
    copies = {"cc": ["Cee <C@Example.com>"], "bcc": ["bcc@münchen.example"]}
    mail = {**MAIL, "body_text": None, "body_html": html, **others, **copies}
    sent = await call(await new_key(), sending.send_message, mail)

    seen = await call(outbox_ctx, get_held_mail, {"message_id": sent.message_id})

    assert ("Hello.", len("the secret")) == (seen.text, seen.hidden_chars)
    assert html in (seen.body_html or "")
    assert ((UNKNOWN,), 1, 1) == (
        seen.to_addresses,
        len(seen.cc_addresses),
        len(seen.bcc_addresses),
    )
    assert ("c@example.com", "bcc@") == (seen.cc_addresses[0].lower(), seen.bcc_addresses[0][:4])
    assert (("m@evil.example",), (Header("X-Data", "more"),)) == (seen.reply_to, seen.headers)


async def test_approved_mail_is_sent_once_as_it_was_shown(
    outbox_ctx: RequestContext, held: Sent
) -> None:
    decision = await seen(outbox_ctx, held)
    raw = (await outbox_ctx.store.message(held.message_id, EVERYTHING)).raw  # type: ignore[union-attr]

    await call(outbox_ctx, approve_message, decision)
    await call(outbox_ctx, approve_message, decision)
    relay = await work(outbox_ctx)

    [mail] = relay.mails
    assert {UNKNOWN, KNOWN} == set(mail.recipients)
    composed = await outbox_ctx.blobs.read(raw)
    assert composed.partition(b"\r\n\r\n")[2].strip() in mail.data
    assert {UNKNOWN: "sent", KNOWN: "sent"} == await statuses(outbox_ctx, held)
    assert ["message.held", "message.approved", "message.queued"] == (
        await types(outbox_ctx, held)
    )[:3]


async def test_fifty_concurrent_approvals_send_one_mail(
    outbox_ctx: RequestContext, held: Sent
) -> None:
    decision = await seen(outbox_ctx, held)
    deciding = [
        call(outbox_ctx, approve_message if n % 2 else reject_message, decision) for n in range(50)
    ]

    outcomes = await asyncio.gather(*deciding, return_exceptions=True)
    relay = await work(outbox_ctx)

    unexpected = [o for o in outcomes if not isinstance(o, (Sent, Conflict))]
    message = await outbox_ctx.store.message(held.message_id, EVERYTHING)
    assert message is not None
    assert message.hold is not None
    assert ([], message.hold.decision == "approved") == (unexpected, len(relay.mails) == 1)


async def test_a_mail_that_changed_since_it_was_shown_is_not_approved(
    outbox_ctx: RequestContext, held: Sent
) -> None:
    decision = {**await seen(outbox_ctx, held), "sha256": "0" * 64}

    with pytest.raises(Conflict, match="read it again"):
        await call(outbox_ctx, approve_message, decision)
    assert [] == (await work(outbox_ctx)).mails


async def test_rejected_mail_is_never_sent(outbox_ctx: RequestContext, held: Sent) -> None:
    decision = await seen(outbox_ctx, held)
    await call(outbox_ctx, reject_message, {**decision, "note": "Too cheap."})

    for operation, arguments in (
        (approve_message, decision),
        (outbox.retry_message, {"message_id": held.message_id}),
    ):
        with pytest.raises(MailError):
            await call(outbox_ctx, operation, arguments)
    message = await outbox_ctx.store.message(held.message_id, EVERYTHING)
    assert message is not None
    assert ("rejected", "Too cheap.") == (message.status, message.hold and message.hold.note)
    assert [] == (await work(outbox_ctx)).mails
    assert "message.rejected" in await types(outbox_ctx, held)


async def test_mail_that_is_not_approved_in_time_is_rejected(
    outbox_ctx: RequestContext, clock: Clock, held: Sent
) -> None:
    decision = await seen(outbox_ctx, held)
    clock.now += timedelta(hours=72)

    with pytest.raises(Conflict, match="in time"):
        await call(outbox_ctx, approve_message, decision)
    relay = await work(outbox_ctx)

    assert ([], "rejected") == (relay.mails, (await statuses(outbox_ctx, held))[UNKNOWN])
    with pytest.raises(Conflict, match="in time"):
        await call(outbox_ctx, approve_message, decision)


async def test_approved_mail_that_is_scheduled_waits_for_its_time(
    outbox_ctx: RequestContext, new_key: KeyFactory, clock: Clock, received: str
) -> None:
    agent = await new_key()
    later = (clock() + timedelta(hours=5)).isoformat()
    sent = await call(agent, sending.send_message, {**MAIL, "send_at": later})
    await call(outbox_ctx, approve_message, await seen(outbox_ctx, sent))

    before = await work(outbox_ctx)
    clock.now += timedelta(hours=5, seconds=1)
    after = await work(outbox_ctx)

    assert ("held", 0, 1) == (sent.status, len(before.mails), len(after.mails))


async def test_a_held_mail_adds_no_known_contact(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key()
    first = await call(agent, sending.send_message, {**MAIL, "bcc": []})
    second = await call(agent, sending.send_message, {**MAIL, "bcc": [], "subject": "Again"})
    await call(outbox_ctx, approve_message, await seen(outbox_ctx, second))
    await work(outbox_ctx)
    third = await call(agent, sending.send_message, {**MAIL, "bcc": [], "subject": "Third"})

    assert ["held", "held", "queued"] == [first.status, second.status, third.status]


async def test_mail_that_changed_after_approval_is_not_sent(
    outbox_ctx: RequestContext, held: Sent
) -> None:
    await call(outbox_ctx, approve_message, await seen(outbox_ctx, held))
    await outbox_ctx.store.engine.write(
        lambda tx: tx.run(
            "UPDATE messages SET details = replace(details, :a, :b)",
            a=UNKNOWN,
            b="eve@evil.example",
        )
    )

    relay = await work(outbox_ctx)

    assert ([], {"failed"}) == (relay.mails, set((await statuses(outbox_ctx, held)).values()))


NOBODY_ELSE = [
    ("the agent", {}),
    ("a key with every scope", {"scopes": ["read", "write", "send", "admin"]}),
]


@pytest.mark.parametrize(("who", "limits"), NOBODY_ELSE, ids=[who for who, _ in NOBODY_ELSE])
async def test_other_scopes_do_not_approve(
    outbox_ctx: RequestContext, new_key: KeyFactory, held: Sent, who: str, limits: dict[str, Any]
) -> None:
    other = await new_key(**limits)

    for operation in (approve_message, reject_message):
        with pytest.raises(Forbidden):
            await call(other, operation, await seen(outbox_ctx, held))


async def test_the_owners_key_does_not_approve(outbox_ctx: RequestContext, held: Sent) -> None:
    by_key = replace(
        outbox_ctx, caller=replace(outbox_ctx.caller, scopes=ALL_SCOPES, is_local=False)
    )

    with pytest.raises(Forbidden):
        await call(by_key, approve_message, await seen(outbox_ctx, held))
    with pytest.raises(Forbidden, match="terminal"):
        await call(by_key, keys.create_key, {"name": "x", "scopes": ["approve"]})


async def test_the_scope_approve_allows_nothing_else(
    outbox_ctx: RequestContext, new_key: KeyFactory, held: Sent
) -> None:
    decider = await new_key(scopes=["approve"])

    listed = await call(decider, outbox.list_outbox, {"status": "held"})
    await call(decider, approve_message, await seen(decider, held))

    assert [held.message_id] == [entry.message_id for entry in listed.results]
    assert 1 == len((await work(outbox_ctx)).mails)
    for arguments in ({}, {"status": "queued"}):
        with pytest.raises(Forbidden):
            await call(decider, outbox.list_outbox, arguments)
    with pytest.raises(InvalidInput, match="no other scope"):
        await new_key(scopes=["approve", "read"])


async def test_an_approver_of_one_inbox_does_not_see_others(
    outbox_ctx: RequestContext, new_key: KeyFactory, held: Sent
) -> None:
    decider = await new_key(scopes=["approve"], inboxes=[])
    decision = await seen(outbox_ctx, held)

    page = await outbox.list_outbox(decider, ListOutbox(status="held"))
    assert 0 == page.total
    for operation in (approve_message, reject_message):
        with pytest.raises(NotFound):
            await call(decider, operation, decision)
    with pytest.raises(NotFound):
        await seen(decider, held)


async def test_a_key_under_a_policy_cannot_create_a_less_limited_one(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    admin = await new_key(scopes=["read", "write", "send", "admin"], approval="risky")
    send = {"name": "x", "scopes": ["send"]}

    for freer in ({"approval": "never"}, {"recipients": {"allow": ["@evil.example"]}}):
        with pytest.raises(Forbidden, match="relax it"):
            await call(admin, keys.create_key, {**send, **freer})
    made = await call(admin, keys.create_key, {**send, "approval": "always"})
    assert "always" == made.approval


async def test_the_policy_of_an_inbox_applies_to_every_caller(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    inbox = {"inbox_id": "me@postroom.localhost"}
    admin = await new_key(scopes=["admin", "send", "read"])
    await call(outbox_ctx, approvals.set_policy, {**inbox, "approval": "always"})

    sent = await call(outbox_ctx, sending.send_message, {**MAIL, "to": [KNOWN], "bcc": []})

    assert "held" == sent.status
    with pytest.raises(Forbidden):
        await call(admin, approvals.set_policy, {**inbox, "approval": "never"})
    listed = await outbox_ctx.store.outbox(OutboxQuery(EVERYTHING, "held"))
    assert [sent.message_id] == [entry.message_id for entry in listed.rows]


OWNER_ADDRESS = "owner@example.org"


async def test_the_owner_is_notified_without_the_text_of_the_mail(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key()
    webhook_worker = replace(
        outbox_ctx.gate, notify=OWNER_ADDRESS, page_url="https://mail.example/outgoing"
    )
    agent = replace(agent, gate=webhook_worker)
    inbox = {"inbox_id": "me@postroom.localhost", "approval": "always"}
    await call(outbox_ctx, approvals.set_policy, inbox)

    own = (await call(agent, identities.list_identities, {})).results[0]
    words = {"name": "Secret owner", "signature": "<p>Secret: approve at https://evil.example</p>"}
    await call(agent, identities.update_identity, {"identity_id": own.id, **words})

    for number in range(3):
        await call(agent, sending.send_message, {**MAIL, "subject": f"Secret {number}"})
    [mail] = (await work(outbox_ctx)).mails

    assert [OWNER_ADDRESS] == mail.recipients
    assert b"https://mail.example/outgoing" in mail.data
    assert not any(word in mail.data for word in (b"Secret", b"Ten per cent", UNKNOWN.encode()))


async def test_a_key_under_a_policy_cannot_relax_another_key(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    admin = await new_key(scopes=["read", "send", "admin"], approval="risky")
    strict = await new_key(approval="always")
    change = {"key_id": strict.caller.key_id}

    for key_id in (admin.caller.key_id, strict.caller.key_id):
        for looser in ({"approval": "never"}, {"recipients": {"allow": ["@evil.example"]}}):
            with pytest.raises(Forbidden, match="relax it"):
                await call(admin, keys.update_key, {"key_id": key_id, **looser})
    with pytest.raises(Forbidden, match="relax it"):
        await call(admin, keys.update_key, {**change, "approval": "risky"})
    loosened = await call(outbox_ctx, keys.update_key, {**change, "approval": "risky"})
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
async def test_a_key_with_an_allow_list_creates_no_key_without_it(
    new_key: KeyFactory, received: str, policy: dict[str, Any], is_as_strict: bool
) -> None:
    admin = await new_key(scopes=["read", "send", "admin"], **LIMIT)
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


async def test_a_held_mail_cannot_be_retried(outbox_ctx: RequestContext, held: Sent) -> None:
    retry = {"message_id": held.message_id}
    with pytest.raises(Conflict, match="approval"):
        await call(outbox_ctx, outbox.retry_message, retry)

    await call(outbox_ctx, reject_message, await seen(outbox_ctx, held))
    with pytest.raises(Conflict, match="rejected"):
        await call(outbox_ctx, outbox.retry_message, retry)

    assert [] == (await work(outbox_ctx)).mails


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (message_changes.move_message, {"destination": "Sent"}),
        (message_changes.move_message, {"destination": "Trash"}),
        (message_changes.delete_message, {}),
        (message_changes.delete_message, {"permanent": True}),
    ],
)
async def test_a_held_mail_cannot_be_moved(
    outbox_ctx: RequestContext,
    new_key: KeyFactory,
    held: Sent,
    operation: Any,
    arguments: dict[str, Any],
) -> None:
    agent = await new_key()

    try:
        result = await call(agent, operation, {"message_id": held.message_id, **arguments})
        refused = result.failed[0].message
    except Conflict as error:
        refused = str(error)

    message = await outbox_ctx.store.message(held.message_id, EVERYTHING)
    assert message is not None
    assert ("Outbox",) == message.mailboxes
    assert "cancel_message" in refused
