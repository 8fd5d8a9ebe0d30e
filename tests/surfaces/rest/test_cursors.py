"""Cursors and `since` are valid for the caller that got them, and reveal nothing."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode

import pytest

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.event import EventQuery
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import delete_inbox
from postroom.operations.mail.message_changes import delete_message
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.rest.conftest import rest_client

SCOPES = ["read", "write", "send", "admin"]


async def limited_key(rest, *inboxes, name="tenant"):
    made = await rest.post("/v1/keys", name=name, scopes=SCOPES, inboxes=[i.id for i in inboxes])
    return made["key"]


async def events_of(ctx, inbox):
    return (await ctx.store.events(EventQuery(EVERYTHING, inbox_id=inbox.id))).rows


def told(response, given):
    text = response.text.replace(given, "GIVEN")
    return response.status_code, re.sub(r'"(request_id|instance)":"[^"]*"', "", text)


@pytest.mark.parametrize("kind", ["message", "event", "removed message", "removed event"])
@pytest.mark.parametrize("way", ["wait", "stream", "Last-Event-ID"])
async def test_a_foreign_since_is_reported_as_unknown(app, ctx, rest, inbox, way, kind):
    other = await new_inbox(ctx, "other")
    added = await deliver(ctx, other, mail("Theirs"))
    [event] = await events_of(ctx, other)
    if kind.startswith("removed"):
        gone = {"message_id": added.message_id, "permanent": True}
        await call(ctx, delete_message, gone)
    foreign = added.message_id if kind.endswith("message") else event.id
    unknown = foreign[:4] + "0" * 26

    async with rest_client(app, await limited_key(rest, inbox)) as limited:
        answers = []
        for since in (foreign, unknown):
            path, query, headers = "/v1/events/stream", {"since": since}, {}
            if way == "wait":
                path, query = "/v1/messages/wait", {**query, "inbox_id": inbox.id, "timeout_s": 1}
            elif way == "Last-Event-ID":
                query, headers = {}, {"Last-Event-ID": since}
            response = await limited.send("GET", path, params=query, headers=headers)
            answers.append(told(response, since))

    assert answers[0] == answers[1]
    assert 404 == answers[0][0]
    named = way if way == "Last-Event-ID" else "since"
    assert f'"{named}: there is no GIVEN; leave it out' in answers[0][1]


@pytest.mark.parametrize("way", ["since", "Last-Event-ID"])
async def test_an_event_of_a_deleted_inbox_is_named_as_given(app, ctx, rest, inbox, way):
    other = await new_inbox(ctx, "other")
    await deliver(ctx, other, mail("Last seen"))
    [event] = await events_of(ctx, other)
    made = await rest.post("/v1/keys", name="k", inboxes=[inbox.id, other.id])
    await call(ctx, delete_inbox, {"inbox_id": other.id, "force": True})

    given = {"params": {way: event.id}} if way == "since" else {"headers": {way: event.id}}
    async with rest_client(app, made["key"]) as limited:
        problem = await limited.problem("GET", "/v1/events/stream", **given)

    assert 404 == problem["status"]
    assert problem["detail"].startswith(f"{way}: there is no {event.id}; leave it out")


@pytest.mark.parametrize(
    ("header", "argument", "method", "path"),
    [
        ("Last-Event-ID", "since", "GET", "/v1/events/stream"),
        ("Idempotency-Key", "idempotency_key", "POST", "/v1/messages"),
    ],
)
async def test_a_header_that_is_wrong_is_named_by_its_own_name(
    rest, inbox, header, argument, method, path
):
    outgoing_mail = {
        "inbox_id": inbox.id,
        "to": ["ana@example.com"],
        "subject": "s",
        "body_text": "t",
    }
    body = {"json": outgoing_mail} if method == "POST" else {}

    problem = await rest.problem(method, path, headers={header: "x" * 1000}, **body)

    assert 422 == problem["status"]
    assert problem["detail"].startswith(f"{header}: ")
    assert [argument] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("kind", ["message", "event"])
async def test_a_since_of_another_inbox_of_the_same_key_is_accepted(app, ctx, rest, inbox, kind):
    other = await new_inbox(ctx, "other")
    added = await deliver(ctx, other, mail("Before"))
    [event] = await events_of(ctx, other)
    since = added.message_id if kind == "message" else event.id
    after = await deliver(ctx, inbox, mail("After"))

    async with rest_client(app, await limited_key(rest, inbox, other)) as limited:
        waited = await limited.get("/v1/messages/wait", inbox_id=inbox.id, since=since)

    assert after.message_id == waited["message"]["id"]


LISTS = [
    ("/v1/messages", {"inbox_id": "INBOX"}),
    ("/v1/search/messages", {"q": "hello"}),
    ("/v1/search/messages", {"q": "hello", "mode": "hybrid"}),
    ("/v1/threads", {"inbox_id": "INBOX"}),
    ("/v1/attachments", {"inbox_id": "INBOX"}),
    ("/v1/events", {}),
    ("/v1/labels", {}),
]


@pytest.fixture
async def filled(ctx, rest, inbox):
    for number in range(3):
        file = (f"{number}.pdf", "application/pdf", b"x")
        added = await deliver(ctx, inbox, mail(f"Hello {number}", attachments=[file]))
        path = f"/v1/messages/{added.message_id}"
        await rest.ask("PATCH", path, json={"labels": [f"l{number}"]})
    return inbox


def asked(query, inbox):
    return {name: inbox.id if value == "INBOX" else value for name, value in query.items()}


@pytest.mark.parametrize(("path", "query"), LISTS)
async def test_a_cursor_is_valid_only_for_its_caller(app, ctx, rest, filled, path, query):
    query = asked(query, filled)
    keys = [await limited_key(rest, filled, name=name) for name in ("ana", "bo")]
    async with rest_client(app, keys[0]) as ana, rest_client(app, keys[1]) as bo:
        first = await ana.get(path, **query, limit=1)
        following = {**query, "cursor": first["next_cursor"]}

        second = await ana.get(path, **following, limit=2)
        refused = [
            await client.problem("GET", path, params=given)
            for client, given in [
                (bo, following),
                (rest, following),
                (ana, {**following, "cursor": first["next_cursor"][:-1]}),
                (ana, {**following, "cursor": "WzE3Niw5XQ"}),
            ]
        ]

    assert (3, 1, 2) == (first["total"], first["count"], second["count"])
    assert {(422, "invalid_input")} == {(body["status"], body["code"]) for body in refused}
    assert all("next_cursor of the previous page" in body["detail"] for body in refused)
    data = urlsafe_b64decode(first["next_cursor"] + "==")
    assert not re.search(rb"\d+,\d+", data)


async def test_a_cursor_survives_a_restart_and_is_refused_by_another_installation(
    tmp_path, ctx, key, rest, filled
):
    query = {"inbox_id": filled.id, "limit": 1}
    first = await rest.get("/v1/messages", **query)
    following = {**query, "cursor": first["next_cursor"]}
    for folder, expected in (("data", 200), ("elsewhere", 422)):
        settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path / folder)}).settings
        async with open_app(settings) as again:
            if folder == "elsewhere":
                key = await again.owner_key() or ""
            async with rest_client(again, key) as there:
                response = await there.send("GET", "/v1/messages", params=following)
        assert expected == response.status_code, response.text


async def test_the_position_of_a_rule_counts_visible_rules_only(app, ctx, rest, inbox):
    other = await new_inbox(ctx, "other")
    yaml = "name: One\nwhen: {subject: x}\nthen: [{apply_label: X}]"
    rule = {"rule_yaml": yaml, "dry_run": False}
    keys = [await limited_key(rest, at, name=at.address) for at in (other, inbox)]
    async with rest_client(app, keys[0]) as theirs, rest_client(app, keys[1]) as ours:
        for _ in range(3):
            await theirs.post("/v1/rules", **rule)
        made = [await ours.post("/v1/rules", **rule) for _ in range(3)]
        await theirs.post("/v1/rules", **rule)

        moved = await ours.ask("PATCH", f"/v1/rules/{made[2]['id']}", json={"position": 1})
        listed = (await ours.get("/v1/rules"))["results"]
        of_others = (await theirs.get("/v1/rules"))["results"]

    assert [1, 2, 3] == [each["position"] for each in made]
    assert 1 == moved["position"]
    expected = [(made[2]["id"], 1), (made[0]["id"], 2), (made[1]["id"], 3)]
    assert expected == [(each["id"], each["position"]) for each in listed]
    assert [1, 2, 3, 4] == [each["position"] for each in of_others]
