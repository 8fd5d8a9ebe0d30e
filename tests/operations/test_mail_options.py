"""Every send takes a time, Reply-To and headers; values that cannot be used are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import InvalidInput, NotFound
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Message
from postroom.operations.mail.messages import get_message
from postroom.operations.outgoing.drafts import create_draft, send_draft, update_draft
from postroom.operations.outgoing.sending import (
    forward_message,
    reply_to_message,
    send_email,
    send_email_with_attachments,
    send_message,
)
from tests.mails import deliver, mail, new_inbox

LETTER = {"to": ["ana@example.com"], "subject": "Plan", "body_text": "Shall we?"}
PLAIN = {"recipient": "ana@example.com", "subject": "Plan", "body": "Shall we?"}
FILE = {"filename": "a.txt", "content": "SGk="}
SENDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "send_email": (send_email, {**PLAIN, "inbox_id": "{inbox}"}),
    "send_email_with_attachments": (
        send_email_with_attachments,
        {**PLAIN, "inbox_id": "{inbox}", "attachments": [FILE]},
    ),
    "send_message": (send_message, LETTER),
    "reply_to_message": (reply_to_message, {"message_id": "{message}", "body_text": "Yes"}),
    "forward_message": (forward_message, {"message_id": "{message}", "to": ["cy@example.com"]}),
    "create_draft": (create_draft, LETTER),
}


async def send(
    ctx: RequestContext, inbox: Inbox, invoice: str, name: str, **options: object
) -> Message:
    """Send with one of the operations, and return the message that was sent."""
    operation, given = SENDS[name]
    ids = {"{inbox}": inbox.id, "{message}": invoice}
    arguments = {key: ids.get(str(value), value) for key, value in given.items()}
    answer = await call(ctx, operation, {**arguments, **options})
    if name == "create_draft":
        answer = await call(ctx, send_draft, {"draft_id": answer.id})
    asked = {"message_id": answer.message_id, "include_headers": True, "include_html": True}
    return await call(ctx, get_message, asked)


def header(message: Message, name: str) -> list[str]:
    return [h.value for h in message.headers or () if h.name.lower() == name.lower()]


@pytest.mark.parametrize("name", SENDS)
async def test_every_send_takes_a_time_a_reply_to_and_headers(
    ctx: RequestContext, inbox: Inbox, invoice: str, name: str
) -> None:
    at = ctx.clock().replace(microsecond=0) + timedelta(days=2)
    options = {
        "send_at": at.isoformat(),
        "reply_to": ["Team <team@example.com>"],
        "headers": {"X-Campaign": "spring", "List-Id": "<plans.example.com>"},
    }
    message = await send(ctx, inbox, invoice, name, **options)

    assert ("scheduled", at, ("Outbox",)) == (message.status, message.send_at, message.mailboxes)
    assert ("team@example.com",) == message.reply_to_addresses
    assert ["Team <team@example.com>"] == header(message, "Reply-To")
    assert (["spring"], ["<plans.example.com>"]) == (
        header(message, "X-Campaign"),
        header(message, "List-Id"),
    )


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize(
    ("away", "words"),
    [(timedelta(hours=-1), "is in the past; the time is"), (timedelta(days=400), "a year")],
)
async def test_an_implausible_time_is_refused(
    ctx: RequestContext, inbox: Inbox, invoice: str, name: str, away: timedelta, words: str
) -> None:
    at = (ctx.clock() + away).isoformat()
    with pytest.raises(InvalidInput, match=words):
        await send(ctx, inbox, invoice, name, send_at=at)


async def test_a_repeated_call_succeeds_although_its_time_has_passed(
    ctx: RequestContext, inbox: Inbox
) -> None:
    at = ctx.clock() + timedelta(hours=1)
    mail_ = {**LETTER, "send_at": at.isoformat(), "idempotency_key": "k"}
    first = await call(ctx, send_message, mail_)
    from dataclasses import replace

    later = replace(ctx, clock=lambda: at + timedelta(hours=1))
    again = await call(later, send_message, mail_)

    assert first.message_id == again.message_id


INSTRUCTIONS = (
    "X-SMTPAPI",
    "x-smtpapi",
    "X-MSYS-API",
    "X-MC-BccAddress",
    "X-MC-Template",
    "X-Mailgun-Recipient-Variables",
    "X-Mailjet-Campaign",
    "X-MJ-TemplateID",
    "X-Mailin-custom",
    "X-Sib-Sandbox",
)
"""Headers that mail services obey: some add recipients, others replace the text."""


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Subject": "x"}, "begin with X- or List-"),
        ({"Bcc": "eve@example.com"}, "begin with X- or List-"),
        ({"X-Postroom-Rule": "x"}, "not X-Postroom-"),
        ({"x-POSTROOM-rule": "x"}, "not X-Postroom-"),
        *(({name: '{"to": ["eve@example.com"]}'}, "mail service") for name in INSTRUCTIONS),
        ({"X-": "x"}, "begin with X- or List-"),
        ({"X-A b": "x"}, "begin with X- or List-"),
        ({"X-A": "x\r\nBcc: eve@example.com"}, "one line"),
        ({"X-A": "x\nBcc: eve@example.com"}, "one line"),
        ({"X-A": ""}, "at least 1"),
        ({f"X-{n}": "x" for n in range(21)}, "20"),
        ([{"name": "X-A"}], "required"),
        ("X-A", "at least 1"),
    ],
)
async def test_headers_that_callers_may_not_set_are_refused(
    ctx: RequestContext, inbox: Inbox, headers: object, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        await call(ctx, send_message, {**LETTER, "headers": headers})


@pytest.mark.parametrize("name", ["X-MCA", "X-Smtpapis", "X-Mailer", "X-MJB", "List-MC-Id"])
async def test_headers_with_similar_names_are_sent(
    ctx: RequestContext, inbox: Inbox, invoice: str, name: str
) -> None:
    message = await send(ctx, inbox, invoice, "send_message", headers={name: "1"})

    assert ["1"] == header(message, name)


@pytest.mark.parametrize(
    "headers", [{"X-A": "1"}, [{"name": "X-A", "value": "1"}], ["X-A: 1"], "X-A: 1"]
)
async def test_headers_may_be_written_in_several_ways(
    ctx: RequestContext, inbox: Inbox, invoice: str, headers: object
) -> None:
    message = await send(ctx, inbox, invoice, "send_message", headers=headers)

    assert ["1"] == header(message, "X-A")


async def test_a_forward_takes_more_files_copies_and_html(
    ctx: RequestContext, inbox: Inbox
) -> None:
    raw = mail(
        "Invoice", html="<p>Pay <b>7</b></p>", attachments=[("i.pdf", "application/pdf", b"1")]
    )
    original = (await deliver(ctx, inbox, raw)).message_id
    arguments = {
        "attachments": [FILE],
        "to": ["cy@example.com"],
        "cc": ["di@example.com"],
        "bcc": ["ed@example.com"],
        "body_html": "<p>See <i>below</i>.</p>",
    }
    message = await send(ctx, inbox, original, "forward_message", **arguments)

    assert ["i.pdf", "a.txt"] == [a.filename for a in message.attachments]
    assert (("cy@example.com",), ("di@example.com",), ("ed@example.com",)) == (
        message.to_addresses,
        message.cc_addresses,
        message.bcc_addresses,
    )
    assert message.text.startswith("See below.")
    assert "Good morning." in message.text
    for words in ("<i>below</i>", "Forwarded message", "<b>7</b>"):
        assert words in (message.html or "")


async def test_html_alone_gets_a_text_part(ctx: RequestContext, inbox: Inbox, invoice: str) -> None:
    given = {"body_text": None, "body_html": "<p>Good <b>morning</b></p><p>Ana</p>"}
    message = await send(ctx, inbox, invoice, "send_message", **given)
    (kind,) = header(message, "Content-Type")

    assert kind.startswith("multipart/alternative")
    assert ["Good morning", "Ana"] == [line for line in message.text.splitlines() if line]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Ana", "Ana"),
        ('"Lee, Ana"', "Lee, Ana"),
        ("Zoë", "Zoë"),
        ('"Ana (bo@postroom.localhost)"', "Ana (bo@postroom.localhost)"),
    ],
)
async def test_a_display_name_is_kept(
    ctx: RequestContext, inbox: Inbox, invoice: str, name: str, shown: str
) -> None:
    sender = f"{name} <{inbox.address}>"
    message = await send(ctx, inbox, invoice, "send_message", **{"from": sender})

    assert (shown, inbox.address) == (message.from_name, message.from_address)


@pytest.mark.parametrize("name", ['"ceo@bank.example"', '"Ana <ceo@bank.example>"', "A\u202ena"])
async def test_a_deceptive_display_name_is_refused(
    ctx: RequestContext, inbox: Inbox, name: str
) -> None:
    with pytest.raises(InvalidInput, match="from: "):
        await call(ctx, send_message, {**LETTER, "from": f"{name} <{inbox.address}>"})


REPLY = {"body_text": "Yes."}


async def parents(ctx: RequestContext, inbox: Inbox) -> dict[str, dict[str, str]]:
    """The arguments that name the message that a draft answers."""
    raw = mail("Invoice", sender="Lee, Ana <ana@example.com>", message_id="<i@example.com>")
    raw = raw.replace(b"From: Lee, Ana <", b'From: "Lee, Ana" <')
    added = await deliver(ctx, inbox, raw)
    return {
        "id": {"in_reply_to": added.message_id},
        "Message-ID": {"in_reply_to": "<i@example.com>"},
        "thread": {"thread_id": added.thread_id},
    }


@pytest.mark.parametrize("way", ["id", "Message-ID", "thread"])
async def test_a_draft_that_answers_needs_no_recipient_and_no_subject(
    ctx: RequestContext, inbox: Inbox, way: str
) -> None:
    draft = await call(ctx, create_draft, {**REPLY, **(await parents(ctx, inbox))[way]})
    sent = await call(ctx, send_draft, {"draft_id": draft.id})
    message = await call(ctx, get_message, {"message_id": sent.message_id})

    assert (('"Lee, Ana" <ana@example.com>',), "Re: Invoice") == (draft.to, draft.subject)
    assert ("Re: Invoice", ("ana@example.com",)) == (message.subject, message.to_addresses)
    assert "i@example.com" == message.in_reply_to


async def test_given_recipients_and_subject_are_kept(ctx: RequestContext, inbox: Inbox) -> None:
    ways = await parents(ctx, inbox)
    elsewhere = await call(ctx, create_draft, {**REPLY, **ways["id"], "to": ["cy@example.com"]})
    renamed = await call(ctx, create_draft, {**REPLY, **ways["id"], "subject": "Other"})

    assert (("cy@example.com",), "Re: Invoice") == (elsewhere.to, elsewhere.subject)
    assert (('"Lee, Ana" <ana@example.com>',), "Other") == (renamed.to, renamed.subject)


async def test_an_update_can_make_a_draft_an_answer(ctx: RequestContext, inbox: Inbox) -> None:
    draft = await call(ctx, create_draft, LETTER)
    answers = (await parents(ctx, inbox))["id"]
    cleared = {"draft_id": draft.id, **answers, "to": None, "subject": None}
    changed = await call(ctx, update_draft, cleared)

    assert (('"Lee, Ana" <ana@example.com>',), "Re: Invoice") == (changed.to, changed.subject)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"subject": "x"}, InvalidInput, "recipient, or in_reply_to"),
        ({"to": ["ana@example.com"]}, InvalidInput, "subject: is required, unless"),
        ({"in_reply_to": "<none@example.com>"}, NotFound, "give to and subject"),
        ({"in_reply_to": "msg_none"}, NotFound, "msg_none"),
        ({"thread_id": "thr_none"}, NotFound, "thr_none"),
    ],
)
async def test_a_draft_without_recipient_and_parent_says_what_is_missing(
    ctx: RequestContext,
    inbox: Inbox,
    arguments: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        await call(ctx, create_draft, {**REPLY, **arguments})


async def test_a_draft_cannot_answer_a_hidden_message(ctx: RequestContext, inbox: Inbox) -> None:
    other = await new_inbox(ctx, "other")
    ways = await parents(ctx, other)
    for way in ("id", "Message-ID", "thread"):
        with pytest.raises(NotFound):
            await call(ctx, create_draft, {**REPLY, **ways[way], "inbox_id": inbox.id})


@pytest.mark.parametrize("operation", [send_message, create_draft])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"in_reply_to": "{thread}"},
            "in_reply_to: {thread} is not a msg_ id; give it as thread_id",
        ),
        ({"in_reply_to": " {thread} "}, "is not a msg_ id"),
        ({"in_reply_to": "drf_4h8t2w"}, "in_reply_to: drf_4h8t2w is not a msg_ id"),
        ({"in_reply_to": "att_4h8t2w"}, "in_reply_to: att_4h8t2w is not a msg_ id"),
        ({"thread_id": "{message}"}, "thread_id: {message} is not a thr_ id; use get_message"),
    ],
)
async def test_an_id_of_something_else_is_no_parent(
    ctx: RequestContext, inbox: Inbox, operation: Any, arguments: dict[str, str], words: str
) -> None:
    """It is not mistaken for the Message-ID of a mail that is stored elsewhere."""
    added = await deliver(ctx, inbox, mail("Invoice"))
    ids = {"thread": added.thread_id, "message": added.message_id}
    given = {name: value.format(**ids) for name, value in arguments.items()}

    with pytest.raises(InvalidInput, match=words.format(**ids)):
        await call(ctx, operation, {**LETTER, **given})


@pytest.mark.parametrize("written", [" {message} ", "<thr_1@example.com>", "inb_2@example.com"])
async def test_a_parent_may_have_white_space_and_any_message_id(
    ctx: RequestContext, inbox: Inbox, written: str
) -> None:
    added = await deliver(ctx, inbox, mail("Invoice", message_id="<thr_1@example.com>"))
    other = await deliver(ctx, inbox, mail("Other", message_id="<inb_2@example.com>"))
    parent = written.format(message=added.message_id)

    sent = await call(ctx, send_message, {**LETTER, "in_reply_to": parent})

    assert sent.thread_id == (other if "inb_2" in written else added).thread_id
