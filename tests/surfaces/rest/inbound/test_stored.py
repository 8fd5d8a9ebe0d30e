"""Mail in every documented form of the providers is stored unchanged."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from tests.surfaces.rest.conftest import rest_client
from tests.surfaces.rest.inbound.provider_requests import (
    IN_FIELDS,
    RAW,
    WHOLE,
    mailgun,
    postmark,
    resend,
    stored,
)


@pytest.mark.parametrize("provider", WHOLE)
async def test_a_raw_mail_of_a_provider_is_stored_byte_for_byte(services, anonymous, provider):
    message = await stored(services, await WHOLE[provider]().to(anonymous))

    async with rest_client(services, await services.owner_key()) as owner:
        raw = await owner.send("GET", f"/v1/messages/{message.id}/raw")
    assert RAW == raw.content


@pytest.mark.parametrize("provider", IN_FIELDS)
async def test_a_mail_given_as_fields_is_composed(services, anonymous, provider):
    message = await stored(services, await IN_FIELDS[provider]().to(anonymous))

    assert "Hello from afar" == message.subject
    assert "Grüße" == message.text.strip()
    assert ("Ana", "ana@example.com") == (message.from_name, message.from_address)
    assert "1@x.org" == message.internet_message_id
    files = {a.filename: a.content_type for a in message.attachments}
    assert "application/pdf" == files["invoice.pdf"]


async def test_separate_fields_of_postmark_are_used(services, anonymous):
    """As in its documentation: an address without a name, and a colon in the time zone."""
    post = postmark(
        From="support@postmarkapp.com",
        FromName='Jürgen "J", Support',
        FromFull={"Email": "support@postmarkapp.com", "Name": "Jürgen", "MailboxHash": ""},
        ReplyTo="replyto@postmarkapp.com",
        Date="Fri, 1 Aug 2014 16:45:32 -04:00",
    )

    message = await stored(services, await post.to(anonymous))

    assert ('Jürgen "J", Support', "support@postmarkapp.com") == (
        message.from_name,
        message.from_address,
    )
    assert ("replyto@postmarkapp.com",) == message.reply_to_addresses
    assert datetime(2014, 8, 1, 20, 45, 32, tzinfo=UTC) == message.date


async def test_an_image_in_the_html_stays_inline(services, anonymous):
    message = await stored(services, await mailgun().to(anonymous))

    assert {"invoice.pdf": False, "logo.png": True} == {
        a.filename: a.inline for a in message.attachments
    }


@pytest.mark.parametrize("provider", WHOLE)
async def test_a_repeated_request_is_recognised(anonymous, provider):
    first = await WHOLE[provider]().to(anonymous)
    again = await WHOLE[provider]().to(anonymous)

    assert ["received", "duplicate"] == [a.json()["status"] for a in (first, again)]
    assert first.json()["messages"][0]["message_id"] == again.json()["messages"][0]["message_id"]


async def test_the_same_mail_by_two_routes_is_one_message(anonymous):
    answers = [await WHOLE[provider]().to(anonymous) for provider in WHOLE]

    assert 1 == len({answer.json()["messages"][0]["message_id"] for answer in answers})


async def test_base64_may_have_line_breaks(services, anonymous):
    content = base64.encodebytes(b"hello world " * 20).decode()
    file = {"Name": "f.txt", "ContentType": "text/plain", "Content": content}
    message = await stored(services, await postmark(Attachments=[file]).to(anonymous))

    assert [240] == [a.size for a in message.attachments]


async def test_an_incomplete_character_does_not_prevent_storing(services, anonymous):
    raw = "Subject: Hello\r\n\r\nHalf: \ud800."
    message = await stored(services, await postmark(RawEmail=raw).to(anonymous))

    assert "Half: ?." == message.text.strip()


async def test_other_events_are_accepted_and_ignored(anonymous):
    answer = await resend(kind="email.delivered").to(anonymous)

    assert (200, "nothing") == (answer.status_code, answer.json()["status"])


async def test_a_header_given_as_field_cannot_inject_another(services, anonymous):
    sly = "Hello\r\nBcc: eve@example.com\r\n\r\nfrom afar"

    message = await stored(services, await postmark(Subject=sly).to(anonymous))

    assert "Hello Bcc: eve@example.com from afar" == message.subject
    assert () == message.bcc_addresses


async def test_a_provider_that_is_not_configured_is_disabled(rest):
    problem = await rest.problem("POST", "/v1/inbound/mailgun", content=b"x")

    assert (404, "feature_disabled") == (problem["status"], problem["code"])
    assert "POSTROOM_MAILGUN_SIGNING_KEY" in problem["detail"]
