"""Sending: recipients, replies, and refusals."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, InvalidInput, MailError, NotFound, TooLarge
from postroom.model.inbox import Inbox
from postroom.model.key import Scope
from postroom.model.limits import Limits
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING, only
from postroom.operations.mail import message_changes
from postroom.operations.outgoing import identities, sending
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox


@pytest.fixture
async def inbox(ctx: RequestContext) -> Inbox:
    return await new_inbox(ctx, "bo", "Bo")


def outgoing_mail(inbox: Inbox, **changes: Any) -> dict[str, Any]:
    return {
        "inbox_id": inbox.id,
        "to": ["x@example.com"],
        "subject": "Hi",
        "body_text": "Hello.",
        **changes,
    }


async def total(ctx: RequestContext) -> int:
    return (await ctx.store.messages(MessageQuery(visible=EVERYTHING, mailbox="*"))).total


async def test_mail_to_itself_is_two_messages_in_one_thread(
    ctx: RequestContext, inbox: Inbox
) -> None:
    sent = await call(ctx, sending.send_message, outgoing_mail(inbox, to=[inbox.address]))

    found = await ctx.store.messages(MessageQuery(visible=EVERYTHING, thread_id=sent.thread_id))

    assert {("Sent",), ("Inbox",)} == {row.mailboxes for row in found.rows}


async def test_each_recipient_gets_one_copy_and_bcc_stays_secret(
    ctx: RequestContext, inbox: Inbox
) -> None:
    ana, cy = await new_inbox(ctx, "ana"), await new_inbox(ctx, "cy")
    people = outgoing_mail(
        inbox, to=[ana.address, ana.address.upper()], cc=[ana.address], bcc=[cy.address]
    )

    sent = await call(ctx, sending.send_message, people)

    assert ["delivered"] * 2 == [recipient.status for recipient in sent.recipients]
    for receiver in (ana, cy):
        (row,) = (
            await ctx.store.messages(MessageQuery(visible=EVERYTHING, inbox_id=receiver.id))
        ).rows
        message = await ctx.store.message(row.id, EVERYTHING)
        assert message is not None
        assert b"cy@" not in await ctx.blobs.read(message.raw)


async def test_an_unknown_local_recipient_is_reported(ctx: RequestContext, inbox: Inbox) -> None:
    sent = await call(
        ctx, sending.send_message, outgoing_mail(inbox, to=["nobody@postroom.localhost"])
    )

    assert ("failed", "no inbox has this address") == (
        sent.status,
        sent.recipients[0].detail,
    )


async def test_a_reply_goes_to_reply_to_and_carries_the_whole_chain(
    ctx: RequestContext, inbox: Inbox
) -> None:
    raw = mail(
        "Re: RE: Plan",
        message_id="<3@x>",
        references=["<1@x>", "<2@x>"],
        headers=[("Reply-To", "desk@example.com")],
        cc="cy@c.org",
    )
    parent = await deliver(ctx, inbox, raw)

    sent = await call(
        ctx,
        sending.reply_to_message,
        {"message_id": parent.message_id, "body_text": "Yes.", "reply_all": True},
    )

    message = await ctx.store.message(sent.message_id, EVERYTHING)
    answered = await ctx.store.message(parent.message_id, EVERYTHING)
    assert message is not None
    assert answered is not None
    assert (("desk@example.com",), ("cy@c.org",)) == (message.to_addresses, message.cc_addresses)
    assert ("3@x", ("1@x", "2@x", "3@x")) == (message.in_reply_to, message.references)
    assert "Re: Plan" == message.subject
    assert parent.thread_id == sent.thread_id
    assert ("answered",) == answered.flags


async def test_a_reply_is_sent_from_the_addressed_inbox_to_others_only(
    ctx: RequestContext, inbox: Inbox
) -> None:
    for email in ("sales@postroom.localhost", "info@postroom.localhost"):
        alias = {"email": email, "name": "Desk", "signature": "<p>The desk</p>"}
        await call(ctx, identities.create_alias, {**alias, "inbox_id": inbox.id})
    to = f"cy@c.org, Sales@Postroom.localhost, {inbox.address}"
    parent = await deliver(ctx, inbox, mail("Offer", to=to, cc="info@postroom.localhost"))
    answer = {"message_id": parent.message_id, "body_text": "Yes.", "reply_all": True}

    first = await call(ctx, sending.reply_to_message, answer)
    second = await call(ctx, sending.reply_to_message, {**answer, "message_id": first.message_id})
    third = await call(
        ctx,
        sending.send_message,
        outgoing_mail(inbox, inbox_id=None, in_reply_to=parent.message_id),
    )

    for sent, recipients in (
        (first, ["ana@example.com", "cy@c.org"]),
        (second, ["ana@example.com", "cy@c.org"]),
        (third, ["x@example.com"]),
    ):
        message = await ctx.store.message(sent.message_id, EVERYTHING)
        assert message is not None
        assert "sales@postroom.localhost" == message.from_address
        assert "The desk" in message.text
        assert recipients == [recipient.address for recipient in sent.recipients]


async def test_the_sender_of_a_reply_can_be_named(ctx: RequestContext, inbox: Inbox) -> None:
    alias = {"email": "sales@postroom.localhost", "inbox_id": inbox.id}
    await call(ctx, identities.create_alias, alias)
    parent = await deliver(ctx, inbox, mail("Offer", to="sales@postroom.localhost"))
    reply = outgoing_mail(inbox, in_reply_to=parent.message_id)

    sent = await call(ctx, sending.send_message, {**reply, "from": inbox.address})

    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    assert inbox.address == message.from_address


async def test_a_reply_to_our_own_mail_goes_to_its_recipients(
    ctx: RequestContext, inbox: Inbox
) -> None:
    first = await call(ctx, sending.send_message, outgoing_mail(inbox))

    second = await call(
        ctx, sending.reply_to_message, {"message_id": first.message_id, "body_text": "P.S."}
    )

    assert ["x@example.com"] == [recipient.address for recipient in second.recipients]
    assert first.thread_id == second.thread_id


async def test_a_forward_includes_text_and_files(ctx: RequestContext, inbox: Inbox) -> None:
    files = [("a.txt", "text/plain", b"content")]
    original = await deliver(ctx, inbox, mail("Plan", "The text.", attachments=files))

    sent = await call(
        ctx,
        sending.forward_message,
        {"message_id": original.message_id, "to": "x@example.com", "body_text": "FYI"},
    )

    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    assert ("Fwd: Plan", ["a.txt"]) == (message.subject, [a.filename for a in message.attachments])
    assert message.text.startswith("FYI")
    assert "The text." in message.text


async def test_several_inboxes_must_be_named(ctx: RequestContext, inbox: Inbox) -> None:
    unnamed = {"to": ["x@example.com"], "subject": "Hi", "body_text": "Hello."}
    assert await call(ctx, sending.send_message, unnamed)
    other = await new_inbox(ctx, "other")

    with pytest.raises(Conflict, match=rf"{inbox.id}.*{other.id}"):
        await call(ctx, sending.send_message, {**unnamed, "subject": "Again"})
    assert await call(ctx, sending.send_message, {**unnamed, "from": other.address})


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"to": []}, InvalidInput, "at least one recipient"),
        ({"to": ["no address"]}, InvalidInput, r"to\[0\]"),
        ({"to": ["a@b.org\r\nBcc: c@d.org"]}, InvalidInput, r"to\[0\]"),
        ({"subject": "x\r\nBcc: c@d.org"}, InvalidInput, "subject"),
        ({"body_text": None}, InvalidInput, "body_text or body_html"),
        ({"to": [f"a{n}@b.org" for n in range(51)]}, InvalidInput, "the limit is 50"),
        ({"in_reply_to": "msg_unknown"}, NotFound, "msg_unknown"),
        ({"thread_id": "thr_unknown"}, NotFound, "thr_unknown"),
        ({"in_reply_to": "<a b>"}, InvalidInput, "in_reply_to"),
        ({"attachments": [{"attachment_id": "att_unknown"}]}, NotFound, "att_unknown"),
        ({"attachments": [{"filename": "a", "content": "!"}]}, InvalidInput, r"attachments\[0\]"),
        ({"attachments": [{"content": "QQ=="}]}, InvalidInput, "filename is required"),
        ({"attachments": [{"filename": "a"}]}, InvalidInput, "content .* or attachment_id"),
        ({"inbox_id": "inb_unknown"}, NotFound, "inb_unknown"),
        ({"from": "nobody@postroom.localhost"}, NotFound, "from"),
    ],
)
async def test_an_invalid_mail_is_refused_and_nothing_is_sent(
    ctx: RequestContext, inbox: Inbox, changes: dict[str, Any], kind: type[MailError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await call(ctx, sending.send_message, outgoing_mail(inbox, **changes))

    assert 0 == await total(ctx)


async def test_attachments_at_the_limit_pass_and_one_byte_more_does_not(
    ctx: RequestContext, inbox: Inbox
) -> None:
    small = dataclasses.replace(ctx, limits=Limits(attachments_bytes=6, attachments_count=2))
    three, four = {"filename": "a", "content": "YWJj"}, {"filename": "b", "content": "YWJjZA=="}

    assert await call(small, sending.send_message, outgoing_mail(inbox, attachments=[three, three]))
    with pytest.raises(TooLarge, match="7 bytes"):
        await call(small, sending.send_message, outgoing_mail(inbox, attachments=[three, four]))
    with pytest.raises(InvalidInput, match="3 files"):
        await call(small, sending.send_message, outgoing_mail(inbox, attachments=[three] * 3))


async def test_a_file_name_at_the_limit_passes_and_one_character_more_does_not(
    ctx: RequestContext, inbox: Inbox
) -> None:
    short = dataclasses.replace(ctx, limits=Limits(filename_chars=5))
    five, six = ({"filename": name, "content": "YWJj"} for name in ("a.txt", "ab.txt"))

    assert await call(short, sending.send_message, outgoing_mail(inbox, attachments=[five]))
    with pytest.raises(InvalidInput, match=r"attachments\[1\].filename: 6 characters"):
        await call(short, sending.send_message, outgoing_mail(inbox, attachments=[five, six]))


async def test_fifty_callers_with_one_key_send_one_mail(ctx: RequestContext, inbox: Inbox) -> None:
    keyed = outgoing_mail(inbox, idempotency_key="k")

    answers = await asyncio.gather(*(call(ctx, sending.send_message, keyed) for _ in range(50)))

    assert 1 == len(set(answers))
    assert 1 == await total(ctx)
    with pytest.raises(Conflict):
        await call(ctx, sending.send_message, {**keyed, "subject": "Other"})


async def test_a_reply_to_an_unknown_message_id_is_possible(
    ctx: RequestContext, inbox: Inbox
) -> None:
    sent = await call(ctx, sending.send_message, outgoing_mail(inbox, in_reply_to="<far@away>"))

    message = await ctx.store.message(sent.message_id, EVERYTHING)

    assert message is not None
    assert ("far@away", ("far@away",), "Re: Hi") == (
        message.in_reply_to,
        message.references,
        message.subject,
    )


async def test_a_limited_caller_neither_sends_from_nor_reads_of_another_inbox(
    app: App, ctx: RequestContext, inbox: Inbox
) -> None:
    mine = await new_inbox(ctx, "mine")
    theirs = await deliver(ctx, inbox, mail(attachments=[("a.txt", "text/plain", b"a")]))
    secret = await ctx.store.message(theirs.message_id, EVERYTHING)
    assert secret is not None
    limited = app.context(a_caller("key_1", inboxes=only(mine.id)))

    for attempt in (
        outgoing_mail(inbox),
        outgoing_mail(mine, in_reply_to=theirs.message_id),
        outgoing_mail(mine, thread_id=theirs.thread_id),
        outgoing_mail(mine, attachments=[{"attachment_id": secret.attachments[0].id}]),
    ):
        with pytest.raises(NotFound):
            await call(limited, sending.send_message, attempt)
    result = await call(
        limited, message_changes.apply_label, {"message_ids": [theirs.message_id], "label": "x"}
    )
    assert ("failed", "not_found") == (result.status, result.failed[0].code)


async def test_a_caller_without_the_scope_is_told_which_it_needs(app: App, inbox: Inbox) -> None:
    reader = app.context(a_caller("key_1", frozenset({Scope.READ})))

    with pytest.raises(MailError, match="scope send; yours has read"):
        await call(reader, sending.send_message, outgoing_mail(inbox))


async def test_a_retry_in_a_thread_that_has_grown_is_still_the_same_call(
    ctx: RequestContext, inbox: Inbox
) -> None:
    first = await call(ctx, sending.send_message, outgoing_mail(inbox, to=[inbox.address]))
    reply = outgoing_mail(inbox, thread_id=first.thread_id, body_text="P.S.")
    keyed = {**reply, "body_text": "P.P.S.", "idempotency_key": "k"}

    sent = [await call(ctx, sending.send_message, each) for each in (reply, keyed)]
    again = [await call(ctx, sending.send_message, each) for each in (reply, keyed)]

    assert [s.message_id for s in sent] == [s.message_id for s in again]


async def test_a_retry_is_answered_even_if_what_it_replied_to_is_gone(
    ctx: RequestContext, inbox: Inbox
) -> None:
    parent = await deliver(ctx, inbox, mail("Plan"))
    reply = {"message_id": parent.message_id, "body_text": "Yes.", "idempotency_key": "k"}
    sent = await call(ctx, sending.reply_to_message, reply)
    await call(
        ctx, message_changes.delete_message, {"message_id": parent.message_id, "permanent": True}
    )

    assert sent == await call(ctx, sending.reply_to_message, reply)


@pytest.mark.parametrize(
    "headers",
    [
        [("Message-ID", "<" + "x" * 950 + "@x>")],
        [("Message-ID", "<a@x>"), ("References", "<ok@x> <b\u00fc@x>")],
    ],
)
async def test_mail_with_an_id_that_no_header_can_carry_is_answered_all_the_same(
    ctx: RequestContext, inbox: Inbox, headers: list[tuple[str, str]]
) -> None:
    head = "".join(f"{name}: {value}\n" for name, value in headers)
    long_name = "N" * 600
    raw = f"From: {long_name} <ana@example.com>\nSubject: Odd\n{head}\nHello".encode()
    parent = await deliver(ctx, inbox, raw)

    sent = await call(
        ctx, sending.reply_to_message, {"message_id": parent.message_id, "body_text": "Yes."}
    )

    assert parent.thread_id == sent.thread_id


async def test_a_content_type_may_have_parameters(ctx: RequestContext, inbox: Inbox) -> None:
    file = {"filename": "a.csv", "content_type": "text/csv; charset=utf-8", "content": "YSxi"}

    sent = await call(ctx, sending.send_message, outgoing_mail(inbox, attachments=[file]))

    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    assert ["text/csv"] == [attachment.content_type for attachment in message.attachments]
