"""Providers post mail in the forms they document, and it is stored as it was."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from tests.surfaces.rest.conftest import visiting
from tests.surfaces.rest.inbound.postings import (
    IN_FIELDS,
    RAW,
    WHOLE,
    mailgun,
    postmark,
    resend,
    stored,
)


@pytest.mark.parametrize("provider", WHOLE)
async def test_the_whole_mail_that_a_provider_has_is_stored_byte_for_byte(
    services, stranger, provider
):
    message = await stored(services, await WHOLE[provider]().to(stranger))

    async with visiting(services, await services.owner_key()) as owner:
        raw = await owner.send("GET", f"/v1/messages/{message.id}/raw")
    assert RAW == raw.content


@pytest.mark.parametrize("provider", IN_FIELDS)
async def test_a_mail_in_fields_is_put_together_again(services, stranger, provider):
    message = await stored(services, await IN_FIELDS[provider]().to(stranger))

    assert "Hello from afar" == message.subject
    assert "Grüße" == message.text.strip()
    assert ("Ana", "ana@example.com") == (message.from_name, message.from_address)
    assert "1@x.org" == message.internet_message_id
    files = {a.filename: a.content_type for a in message.attachments}
    assert "application/pdf" == files["invoice.pdf"]


async def test_postmark_tells_the_name_where_answers_go_and_the_hour_apart_from_the_mail(
    services, stranger
):
    """As its documentation shows it: the address alone, and a colon in the zone."""
    post = postmark(
        From="support@postmarkapp.com",
        FromName='Jürgen "J", Support',
        FromFull={"Email": "support@postmarkapp.com", "Name": "Jürgen", "MailboxHash": ""},
        ReplyTo="replyto@postmarkapp.com",
        Date="Fri, 1 Aug 2014 16:45:32 -04:00",
    )

    message = await stored(services, await post.to(stranger))

    assert ('Jürgen "J", Support', "support@postmarkapp.com") == (
        message.from_name,
        message.from_address,
    )
    assert ("replyto@postmarkapp.com",) == message.reply_to_addresses
    assert datetime(2014, 8, 1, 20, 45, 32, tzinfo=UTC) == message.date


async def test_an_image_in_the_html_stays_inline(services, stranger):
    message = await stored(services, await mailgun().to(stranger))

    assert {"invoice.pdf": False, "logo.png": True} == {
        a.filename: a.inline for a in message.attachments
    }


@pytest.mark.parametrize("provider", WHOLE)
async def test_what_is_posted_again_is_recognised(stranger, provider):
    first = await WHOLE[provider]().to(stranger)
    again = await WHOLE[provider]().to(stranger)

    assert ["received", "duplicate"] == [a.json()["status"] for a in (first, again)]
    assert first.json()["messages"][0]["message_id"] == again.json()["messages"][0]["message_id"]


async def test_the_same_mail_by_two_routes_is_one_message(stranger):
    answers = [await WHOLE[provider]().to(stranger) for provider in WHOLE]

    assert 1 == len({answer.json()["messages"][0]["message_id"] for answer in answers})


async def test_base64_may_be_broken_into_lines(services, stranger):
    content = base64.encodebytes(b"hello world " * 20).decode()
    file = {"Name": "f.txt", "ContentType": "text/plain", "Content": content}
    message = await stored(services, await postmark(Attachments=[file]).to(stranger))

    assert [240] == [a.size for a in message.attachments]


async def test_half_a_character_does_not_keep_a_mail_out(services, stranger):
    raw = "Subject: Hello\r\n\r\nHalf: \ud800."
    message = await stored(services, await postmark(RawEmail=raw).to(stranger))

    assert "Half: ?." == message.text.strip()


async def test_what_is_not_about_received_mail_is_taken_and_left_alone(stranger):
    answer = await resend(kind="email.delivered").to(stranger)

    assert (200, "nothing") == (answer.status_code, answer.json()["status"])


async def test_a_header_of_a_mail_in_fields_cannot_make_another(services, stranger):
    sly = "Hello\r\nBcc: eve@example.com\r\n\r\nfrom afar"

    message = await stored(services, await postmark(Subject=sly).to(stranger))

    assert "Hello Bcc: eve@example.com from afar" == message.subject
    assert () == message.bcc_addresses


async def test_a_provider_that_is_not_set_up_is_switched_off(rest):
    problem = await rest.problem("POST", "/v1/inbound/mailgun", content=b"x")

    assert (404, "feature_disabled") == (problem["status"], problem["code"])
    assert "POSTROOM_MAILGUN_SIGNING_KEY" in problem["detail"]
