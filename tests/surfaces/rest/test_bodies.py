"""Request bodies: valid JSON, up to the size limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.model.limits import Limits
from tests.mails import mail
from tests.surfaces.rest.conftest import rest_client

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"1",
        b'{"name": NaN}',
        b'{"name": 1e999}',
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b'{"name": "a"} trailing',
        b"{'name': 'a'}",
        b"\xef\xbb\xbf{}",
        b"{}".decode().encode("utf-16"),
        b"\x00",
    ],
)
async def test_a_body_that_is_no_json_object_is_malformed(rest, body):
    problem = await rest.problem("POST", "/v1/inboxes", content=body, headers=JSON)

    assert (400, "malformed") == (problem["status"], problem["code"])
    assert [] == (await rest.get("/v1/inboxes"))["results"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": 123456789012345678901234567890}',
        b'{"name": ["a"]}',
        b'{"name": {"a": {}}}',
        b'{"name": "a\\u0000b"}',
        b'{"name": true}',
        b'{"nme": "a"}',
        b'{"": ""}',
    ],
)
async def test_a_body_with_bad_arguments_is_invalid(rest, body):
    problem = await rest.problem("POST", "/v1/inboxes", content=body, headers=JSON)

    assert (422, "invalid_input") == (problem["status"], problem["code"])


async def test_no_body_is_an_empty_object(rest):
    response = await rest.send("POST", "/v1/inboxes")

    assert 201 == response.status_code


async def test_json_needs_its_content_type(rest):
    form = {"Content-Type": "text/plain"}

    problem = await rest.problem("POST", "/v1/inboxes", content=b"{}", headers=form)

    assert "malformed" == problem["code"]
    assert "Content-Type: application/json" in problem["detail"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unexpected_body_is_refused(rest, message_id, method):
    problem = await rest.problem(method, f"/v1/messages/{message_id}", json={"permanent": True})

    assert "malformed" == problem["code"]
    assert "Inbox" in (await rest.get(f"/v1/messages/{message_id}"))["mailboxes"]


def limited(app, **limits):
    return replace(app, settings=replace(app.settings, limits=Limits(**limits)))


@pytest.mark.parametrize(("length", "status"), [(100, 201), (101, 413)])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_body_is_read_up_to_the_limit(app, key, length, status, is_streamed):
    body = b'{"name": "' + b"a" * (length - 12) + b'"}'

    async def pieces():
        yield body[:50]
        yield body[50:]

    async with rest_client(limited(app, request_bytes=100), key) as rest:
        content = pieces() if is_streamed else body
        response = await rest.send("POST", "/v1/inboxes", content=content, headers=JSON)

    assert status == response.status_code


async def test_nothing_is_read_beyond_the_limit(app, key):
    read = []

    async def endless():
        while True:
            read.append(1)
            yield b"x" * 60

    async with rest_client(limited(app, request_bytes=100), key) as rest:
        problem = await rest.problem("POST", "/v1/inboxes", content=endless(), headers=JSON)

    assert "too_large" == problem["code"]
    assert 2 == len(read)


async def test_a_body_is_not_read_before_the_key_is_known(app):
    read = []

    async def content():
        read.append(1)
        yield b"{}"

    async with rest_client(app, "wrong") as rest:
        problem = await rest.problem("POST", "/v1/inboxes", content=content(), headers=JSON)

    assert "unauthenticated" == problem["code"]
    assert [] == read


async def test_a_raw_mail_is_received_once(rest, inbox):
    raw = mail("Hello")
    target = f"/v1/inbound?recipient={inbox.address.upper()}"

    first = await rest.send("POST", target, content=raw)
    again = await rest.send("POST", target, content=raw)

    assert (201, "received") == (first.status_code, first.json()["status"])
    assert (200, "duplicate") == (again.status_code, again.json()["status"])
    assert first.json()["message_id"] == again.json()["message_id"]
    assert {"message_id", "thread_id", "status"} == set(first.json())
    assert "a different mail needs a different Message-ID" in again.json()["hint"]


async def test_a_repeated_mail_without_a_message_id_is_explained(rest, inbox):
    target = f"/v1/inbound?recipient={inbox.address}"
    raw = b"From: ana@example.com\nSubject: Try\n\nHello\n"

    first = await rest.send("POST", target, content=raw)
    again = await rest.send("POST", target, content=raw)
    other = await rest.send("POST", target, content=raw + b"again\n")

    assert (201, 200, 201) == (first.status_code, again.status_code, other.status_code)
    assert "the mail has no Message-ID" in again.json()["hint"]
    assert "add a Message-ID" in again.json()["hint"]
    assert "hint" not in other.json()


@pytest.mark.parametrize("kind", ["message/rfc822", "text/plain", "application/json", "x"])
async def test_a_raw_mail_may_have_any_content_type(rest, inbox, kind):
    response = await rest.send(
        "POST",
        "/v1/inbound",
        params={"recipient": inbox.address},
        content=b"{}",
        headers={"Content-Type": kind},
    )

    assert 201 == response.status_code


async def test_an_empty_mail_is_refused(rest, inbox):
    problem = await rest.problem("POST", f"/v1/inbound?recipient={inbox.address}")

    assert (422, "invalid_input") == (problem["status"], problem["code"])


async def test_mail_for_an_unknown_recipient_is_not_found(rest):
    problem = await rest.problem(
        "POST", "/v1/inbound?recipient=nobody@postroom.localhost", content=mail()
    )

    assert 404 == problem["status"]


async def test_an_action_without_arguments_takes_an_empty_object_or_nothing(rest):
    paused = await rest.ask("POST", "/v1/outbox/pause", json={})
    resumed = await rest.ask("POST", "/v1/outbox/resume")
    problem = await rest.problem("POST", "/v1/outbox/pause", json={"until": "tomorrow"})

    assert (True, False) == (paused["is_paused"], resumed["is_paused"])
    assert (422, "until") == (problem["status"], problem["errors"][0]["field"])
