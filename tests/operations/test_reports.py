"""Bounces and delivery reports set the status of the recipients that they name."""

from __future__ import annotations

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing.sending import send_message
from postroom.pipeline.ingest import Arrival, receive
from tests.mails import accepted_by_relay, deliver

OUTGOING = {"to": ["bo@postroom.localhost"], "subject": "Plan", "body_text": "Shall we?"}


BOUNCE = """\
From: MAILER-DAEMON@relay.example
To: bo@postroom.localhost
Subject: Undelivered Mail Returned to Sender
Message-ID: <bounce@relay.example>
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

I'm sorry.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.example

Final-Recipient: rfc822; ANA@example.com
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 no such user

--b
Content-Type: text/rfc822-headers

Message-ID: <{internet_id}>
Subject: Plan

--b--
"""


async def test_a_bounce_is_matched_to_its_message(ctx: RequestContext, inbox: Inbox) -> None:
    sent = await call(ctx, send_message, {**OUTGOING, "to": ["ana@example.com", "cy@example.com"]})
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    await accepted_by_relay(ctx, sent.message_id, "ana@example.com", "cy@example.com")
    raw = BOUNCE.format(internet_id=message.internet_message_id).encode()
    await deliver(ctx, inbox, raw)

    after = await ctx.store.message(sent.message_id, EVERYTHING)

    assert after is not None
    assert after.recipients is not None
    assert ["bounced", "sent"] == [r.status for r in after.recipients]
    assert "550 5.1.1 no such user" == after.recipients[0].detail
    types = [
        e.type
        for e in (await ctx.store.events(EventQuery(visible=EVERYTHING, message_id=after.id))).rows
    ]
    assert "message.bounced" == types[-1]


async def _reported(
    ctx: RequestContext, inbox: Inbox, changed: str = "", *, envelope_sender: str | None = None
) -> Recipient:
    """The status of ana@example.com, the only recipient, after a report."""
    sent = await call(ctx, send_message, {**OUTGOING, "to": ["ana@example.com"]})
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    await accepted_by_relay(ctx, sent.message_id, "ana@example.com")
    final = "Final-Recipient: rfc822; ANA@example.com"
    raw = BOUNCE.format(internet_id=message.internet_message_id).replace(final, changed or final)
    arrival = Arrival(raw.encode(), inbox.id, envelope_sender=envelope_sender)
    await receive(ctx, arrival)
    after = await ctx.store.message(sent.message_id, EVERYTHING)
    assert after is not None
    assert after.recipients is not None
    return after.recipients[0]


@pytest.mark.parametrize(
    "named",
    [
        "Original-Recipient: rfc822;ana@example.com\nFinal-Recipient: rfc822; real@example.net",
        "Final-Recipient: rfc822; real@example.net",
    ],
)
async def test_a_bounce_of_a_forwarded_address_is_matched(
    ctx: RequestContext, inbox: Inbox, named: str
) -> None:
    assert "bounced" == (await _reported(ctx, inbox, named)).status


async def test_a_report_is_matched_by_the_original_recipient(
    ctx: RequestContext, inbox: Inbox
) -> None:
    """Mail to ana was forwarded to cy, who is also a recipient and has received it."""
    sent = await call(ctx, send_message, {**OUTGOING, "to": ["cy@example.com", "ana@example.com"]})
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    await accepted_by_relay(ctx, sent.message_id, "ana@example.com", "cy@example.com")
    final = "Final-Recipient: rfc822; ANA@example.com"
    named = "Original-Recipient: rfc822;ana@example.com\nFinal-Recipient: rfc822;cy@example.com"
    raw = BOUNCE.format(internet_id=message.internet_message_id).replace(final, named)
    await deliver(ctx, inbox, raw.encode())
    after = await ctx.store.message(sent.message_id, EVERYTHING)

    assert after is not None
    assert ["sent", "bounced"] == [r.status for r in after.recipients or ()]


@pytest.mark.parametrize(("sender", "status"), [("eve@example.org", "sent"), ("", "bounced")])
async def test_a_report_with_an_envelope_sender_is_not_trusted(
    ctx: RequestContext, inbox: Inbox, sender: str, status: str
) -> None:
    assert status == (await _reported(ctx, inbox, envelope_sender=sender)).status


async def test_a_success_has_no_diagnostic(ctx: RequestContext, inbox: Inbox) -> None:
    final = "Final-Recipient: rfc822; ana@example.com\nAction: delivered"
    recipient = await _reported(ctx, inbox, final)

    assert ("delivered", None) == (recipient.status, recipient.detail)
