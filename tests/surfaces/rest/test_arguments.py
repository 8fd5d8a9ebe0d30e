"""Where arguments are given, and their forms."""

from __future__ import annotations

import pytest

from tests.mails import deliver, mail


async def test_a_list_is_a_repeated_parameter(rest, ctx, inbox, message_id):
    await rest.ask("PATCH", f"/v1/messages/{message_id}", json={"labels": ["Work", "Urgent"]})
    await deliver(ctx, inbox, mail("Other"))

    page = await rest.get("/v1/messages", inbox_id=inbox.id, labels=["Work", "urgent"])

    assert [message_id] == [row["id"] for row in page["results"]]


async def test_a_single_value_given_twice_is_refused(rest, inbox):
    problem = await rest.problem("GET", f"/v1/messages?inbox_id={inbox.id}&limit=1&limit=2")

    assert 422 == problem["status"]
    assert [{"field": "limit", "problem": "is given more than once"}] == problem["errors"]


async def test_an_unknown_parameter_is_refused_with_a_suggestion(rest, inbox):
    problem = await rest.problem("GET", "/v1/messages", params={"inbox": inbox.id})

    assert 422 == problem["status"]
    assert "inbox: unknown argument; did you mean inbox_id?" == problem["detail"]


async def test_internal_field_names_are_not_arguments(rest, inbox):
    problem = await rest.problem(
        "GET", "/v1/messages", params={"inbox_id": inbox.id, "sender": "ana"}
    )

    assert "sender" == problem["errors"][0]["field"]


async def test_every_bad_field_is_named(rest, inbox):
    query = {"inbox_id": inbox.id, "limit": "0", "offset": "-1"}

    problem = await rest.problem("GET", "/v1/messages", params=query)

    assert ["limit", "offset"] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("query", [{}, {"q": "x"}, {"inbox_id": ""}, {"inbox_id": "", "q": "x"}])
async def test_a_list_of_messages_needs_an_inbox_or_a_thread(rest, query):
    problem = await rest.problem("GET", "/v1/messages", params=query)

    assert 422 == problem["status"]
    assert "at least one filter (inbox_id or thread_id) is required" == problem["detail"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=1", 200),
        ("limit=100", 200),
        ("limit=0", 422),
        ("limit=101", 422),
        ("limit=-1", 422),
        ("limit=1.0", 422),
        ("limit=", 422),
        ("limit=1_0", 422),
        ("limit=%201", 422),
        ("limit=%D9%A1", 422),
        ("offset=0", 200),
        ("offset=9007199254740992", 200),
        ("offset=9007199254740993", 422),
        ("offset=-1", 422),
        ("q=" + "a" * 256, 200),
        ("q=" + "a" * 257, 422),
        ("q=", 422),
        ("q=%20%C2%AD", 422),
        ("q=%00", 422),
        ("q=&query=patch", 200),
        ("q=patch&query=", 200),
        ("q=patch&query=patch", 200),
        ("q=patch&query=other", 422),
        ("q=&query=", 422),
        ("query=", 422),
        ("labels=%E2%80%8B", 422),
        ("has_attachment=true", 200),
        ("has_attachment=1", 422),
        ("after_date=2016-12-31T23:59:60Z", 200),
        ("after_date=2026-01-31t10:00:00.123456789%2B23:59", 200),
        ("after_date=0000-01-01T00:00:00Z", 200),
        ("before_date=9999-12-31T23:59:59.999-23:59", 200),
        ("after_date=2026-02-30", 422),
        ("after_date=yesterday", 422),
        ("cursor=AAAA", 422),
        ("cursor=" + "A" * 16_385, 422),
        ("thread_id=" + "t" * 64, 404),
        ("thread_id=" + "t" * 65, 422),
    ],
)
async def test_values_at_the_limit_are_accepted(rest, inbox, query, status):
    response = await rest.send("GET", f"/v1/messages?inbox_id={inbox.id}&{query}")

    assert status == response.status_code, response.text


@pytest.mark.parametrize(("length", "status"), [(64, 404), (65, 422)])
async def test_an_id_in_a_path_has_64_characters_at_most(rest, length, status):
    assert status == (await rest.problem("GET", f"/v1/messages/{'m' * length}"))["status"]


@pytest.mark.parametrize("path", ["a%2Fb", "%E2%82%AC", "a%20b", "%2E%2E", "a%3Fb"])
async def test_an_id_may_be_written_with_percent_signs(rest, path):
    problem = await rest.problem("GET", f"/v1/messages/{path}")

    assert "not_found" == problem["code"]
    assert problem["detail"].startswith("no message ")


async def test_an_id_with_a_nul_is_refused(rest):
    assert 422 == (await rest.problem("GET", "/v1/messages/a%00b"))["status"]


@pytest.mark.parametrize("target", ["/v1/messages/%FF", "/v1/labels?limit=%FF"])
async def test_what_is_not_utf_8_is_malformed(rest, target):
    assert "malformed" == (await rest.problem("GET", target))["code"]


async def test_a_query_with_too_many_parameters_is_malformed(rest):
    assert "malformed" == (await rest.problem("GET", "/v1/labels?" + "limit=1&" * 2_001))["code"]


async def test_an_argument_of_the_path_cannot_be_given_in_the_body(rest, message_id):
    body = {"message_id": "msg_other", "destination": "Archive"}

    problem = await rest.problem("POST", f"/v1/messages/{message_id}/move", json=body)

    assert "message_id: belongs in the path, not in the body" == problem["detail"]


async def test_an_argument_of_the_body_cannot_be_given_in_the_query(rest):
    problem = await rest.problem("POST", "/v1/inboxes?username=bo", json={})

    assert "username: belongs in the body, not in the query" == problem["detail"]


async def test_numbers_and_booleans_in_a_body_may_be_written_as_text(rest, message_id):
    body = {"message_ids": [message_id], "label": "Work", "remove": "true"}

    result = await rest.post("/v1/messages/labels", **body)

    assert "ok" == result["status"]


async def test_the_idempotency_key_is_a_header(rest, inbox):
    outgoing_mail = {"to": ["ana@example.com"], "subject": "Hi", "body_text": "Hello"}
    once = {"Idempotency-Key": "order-1"}

    first = await rest.ask("POST", "/v1/messages", json=outgoing_mail, headers=once)
    again = await rest.ask("POST", "/v1/messages", json=outgoing_mail, headers=once)
    other = await rest.problem(
        "POST", "/v1/messages", json={**outgoing_mail, "subject": "Ho"}, headers=once
    )

    assert first["message_id"] == again["message_id"]
    assert "conflict" == other["code"]


async def test_the_idempotency_key_may_be_an_argument_too_but_not_another_one(rest, inbox):
    outgoing_mail = {"to": ["ana@example.com"], "subject": "Hi", "body_text": "Hello"}
    given = {**outgoing_mail, "idempotency_key": "order-1"}

    same = await rest.send(
        "POST", "/v1/messages", json=given, headers={"Idempotency-Key": "order-1"}
    )
    differs = await rest.problem(
        "POST", "/v1/messages", json=given, headers={"Idempotency-Key": "order-2"}
    )

    assert 201 == same.status_code
    assert "conflict" == differs["code"]


async def test_a_cursor_of_the_longest_possible_query_is_accepted(rest):
    """It has a number for each word, and here there are a thousand."""
    words = "".join(chr(0x4E00 + number) for number in range(997))
    for key in ("a", "b", "c"):
        await rest.post("/v1/memories", key=key, text=f"{words} {key}")
    asked = {"keywords": words, "limit": 1}

    first = await rest.get("/v1/memories/fulltext", **asked)
    await rest.post("/v1/memories", key="new", text=words)
    second = await rest.get("/v1/memories/fulltext", **asked, cursor=first["next_cursor"])
    third = await rest.get("/v1/memories/fulltext", **asked, cursor=second["next_cursor"])

    pages = (first, second, third)
    assert {"a", "b", "c"} == {page["results"][0]["key"] for page in pages}
    assert [(3, 0), (3, 1), (3, 2)] == [(page["total"], page["offset"]) for page in pages]
    assert "next_cursor" not in third
