"""Ownership of addresses over REST, for every kind of key and every way to claim one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.surfaces.rest.server import build
from tests.mails import mail, new_inbox
from tests.surfaces.rest.conftest import RestClient, rest_client

AT = "postroom.localhost"
RESERVED = ("postmaster", "admin", "hostmaster", "abuse", "security", "webmaster", "info", "root")
SCOPES = ["read", "write", "send", "admin"]


def written(local: str) -> list[str]:
    """Ways to write one address."""
    return [
        f"{local}@{AT}",
        f"{local.upper()}@{AT.upper()}",
        f'"{local}"@{AT}',
        f"{local}@ｐｏｓｔｒｏｏｍ.localhost",
        f"<{local}@{AT}>",
        f"  {local}@{AT} ",
    ]


@asynccontextmanager
async def caller(app: App, rest: RestClient, **limits: Any) -> AsyncIterator[RestClient]:
    made = await rest.post("/v1/keys", name="k", scopes=SCOPES, **limits)
    async with rest_client(app, made["key"]) as client:
        yield client


async def claim(client: RestClient, email: str, inbox_id: str) -> int:
    body = {"email": email, "inbox_id": inbox_id}
    return (await client.send("POST", "/v1/identities", json=body)).status_code


@pytest.mark.parametrize("local", [*RESERVED, "postmaster+x", "bob+x", "bob+", "bob+a+b", "sales"])
async def test_a_limited_key_can_claim_only_tags_of_its_own_addresses(
    app: App, ctx: RequestContext, rest: RestClient, local: str
) -> None:
    mine, bob = await new_inbox(ctx, "mine"), await new_inbox(ctx, "bob")
    async with caller(app, rest, inboxes=[mine.id]) as limited:
        told = [await claim(limited, email, mine.id) for email in written(local)]
        problem = await limited.problem(
            "POST", "/v1/identities", json={"email": f"{local}@{AT}", "inbox_id": mine.id}
        )
        own = await limited.post("/v1/identities", email=f"Mine+{local}@{AT}", inbox_id=mine.id)
        seen = await limited.get("/v1/identities")

    assert {403} == set(told) - {422}
    assert f"mine+tag@{AT}" in problem["detail"]
    assert f"mine+{local}@{AT}" == own["email"]
    assert 2 == seen["total"]
    assert 1 == (await rest.get("/v1/identities", inbox_id=bob.id))["total"]


async def test_a_limited_key_cannot_probe_existing_addresses(
    app: App, ctx: RequestContext, rest: RestClient
) -> None:
    mine = await new_inbox(ctx, "mine")
    await new_inbox(ctx, "bob")
    async with caller(app, rest, inboxes=[mine.id]) as limited:
        told = []
        for name in ("bob", "eve", "bob+x", "eve+x"):
            body = {"email": f"{name}@{AT}", "inbox_id": mine.id}
            problem = await limited.problem("POST", "/v1/identities", json=body)
            told.append((problem["status"], problem["detail"]))

    assert 1 == len(set(told))


@pytest.mark.parametrize("local", [*RESERVED, "admin+x", "bob+x", "bob+"])
async def test_an_unlimited_key_can_claim_ordinary_addresses_only(
    app: App, ctx: RequestContext, rest: RestClient, local: str
) -> None:
    mine = await new_inbox(ctx, "mine")
    await new_inbox(ctx, "bob")
    async with caller(app, rest) as other:
        told = [await claim(other, email, mine.id) for email in written(local)]
        for email in written(local):
            made = await other.send("POST", "/v1/inboxes", json={"address": email})
            told.append(made.status_code)
        if local.isalpha():
            made = await other.send("POST", "/v1/inboxes", json={"username": local.title()})
            told.append(made.status_code)
        ordinary = await claim(other, f"my-{local}@{AT}", mine.id)

    assert {403} == set(told) - {422}
    assert 201 == ordinary
    assert 201 == await claim(rest, f"{local}@{AT}", mine.id)


@pytest.mark.parametrize("local", [*RESERVED, "bob+x"])
async def test_the_owners_key_can_claim_every_address(
    app: App, ctx: RequestContext, rest: RestClient, local: str
) -> None:
    await new_inbox(ctx, "bob")

    made = await rest.post("/v1/inboxes", address=f'"{local}"@{AT}')

    assert f"{local}@{AT}" == made["address"]


@pytest.mark.parametrize("local", ["postmaster", "bob+x"])
async def test_without_auth_no_caller_has_the_owners_rights(
    app: App, ctx: RequestContext, local: str
) -> None:
    await new_inbox(ctx, "bob")
    async with rest_client(app, None, asgi=build(app, no_auth=True)) as anybody:
        refused = await anybody.problem("POST", "/v1/inboxes", json={"address": f"{local}@{AT}"})
        made = await anybody.post("/v1/inboxes", username="ordinary")
        log = await anybody.get("/v1/audit")

    assert (403, f"ordinary@{AT}") == (refused["status"], made["address"])
    assert ["agent"] == [entry["actor"] for entry in log["results"]]


@pytest.mark.parametrize("sender", ["bob", "bob+x", "bob+", '"bob"', "postmaster", "mine+no"])
async def test_a_limited_key_cannot_send_from_foreign_addresses(
    app: App, ctx: RequestContext, rest: RestClient, sender: str
) -> None:
    mine, bob = await new_inbox(ctx, "mine"), await new_inbox(ctx, "bob")
    await rest.post("/v1/identities", email=f"bob+x@{AT}", inbox_id=bob.id)
    outgoing_mail = {"to": ["x@example.com"], "subject": "Hi", "body_text": "Hello"}
    async with caller(app, rest, inboxes=[mine.id]) as limited:
        for path in ("/v1/messages", "/v1/drafts"):
            problem = await limited.problem(
                "POST", path, json={**outgoing_mail, "from": f"{sender}@{AT}"}
            )
            assert 404 == problem["status"]
        await limited.post("/v1/identities", email=f"mine+yes@{AT}", inbox_id=mine.id)
        sent = await limited.post("/v1/messages", **outgoing_mail, **{"from": f"mine+yes@{AT}"})

    message = await rest.get(f"/v1/messages/{sent['message_id']}")
    assert f"mine+yes@{AT}" == message["from_address"]


async def test_unneeded_quotes_do_not_change_the_recipient(
    ctx: RequestContext, rest: RestClient
) -> None:
    bob = await new_inbox(ctx, "bob")
    for number, to in enumerate((f'"bob"@{AT}', f'"bob+x"@{AT}', f'"bob+a b"@{AT}')):
        raw = mail(f"{number}", to="x@example.com")
        await rest.ask("POST", "/v1/inbound", params={"recipient": to}, content=raw)

    assert 3 == (await rest.get("/v1/messages", inbox_id=bob.id))["total"]


async def test_an_alias_can_be_removed_by_permitted_keys(
    app: App, ctx: RequestContext, rest: RestClient
) -> None:
    mine, bob = await new_inbox(ctx, "mine"), await new_inbox(ctx, "bob")
    taken = await rest.post("/v1/identities", email=f"bob+x@{AT}", inbox_id=mine.id)
    async with caller(app, rest, inboxes=[bob.id]) as limited:
        refused = await limited.problem("DELETE", f"/v1/identities/{taken['id']}")
    await rest.ask("DELETE", f"/v1/identities/{taken['id']}")

    assert 404 == refused["status"]
    assert 1 == (await rest.get("/v1/identities", inbox_id=mine.id))["total"]
