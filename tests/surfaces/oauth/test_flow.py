"""A client finds this server, registers, is let in by a person, refreshes, and is revoked."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from postroom.calls.operation import call
from postroom.operations.keys import create_key, delete_key, get_key, list_keys
from postroom.pipeline.maintenance import remove_old_tokens
from tests.pipeline.clock import Clock
from tests.surfaces.oauth.conftest import CALLBACK, Program, decide, parameters
from tests.surfaces.web.conftest import STRANGER, Office, Person, words

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    relay = {"POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}
    if request.param == "sqlite":
        return relay
    return {**relay, "POSTROOM_DATABASE_URL": request.getfixturevalue("database_url")}


async def grants(office: Office) -> list[str]:
    found = await call(office.owner, list_keys, {})
    return [key.id for key in found.results if key.client_id is not None]


async def test_who_has_no_key_is_told_where_to_sign_in(office: Office, program: Program) -> None:
    refused = [await program.http.post("/mcp"), await program.http.get("/mcp/")]

    place = f'resource_metadata="{office.url}{WELL_KNOWN}/mcp"'
    assert [401, 401] == [answer.status_code for answer in refused]
    assert all(place in answer.headers["www-authenticate"] for answer in refused)
    assert "invalid_token" not in refused[0].headers["www-authenticate"]
    unknown = await program.call(token="po_" + "x" * 43)
    assert 'error="invalid_token"' in unknown.headers["www-authenticate"]


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/mcp/"])
async def test_the_metadata_of_the_resource_names_this_server(
    office: Office, program: Program, path: str
) -> None:
    found = (await program.http.get(path)).json()

    assert f"{office.url}/mcp" == found["resource"]
    assert [office.url] == found["authorization_servers"]
    assert ["read", "write", "send"] == found["scopes_supported"]


@pytest.mark.parametrize("name", ["oauth-authorization-server", "openid-configuration"])
async def test_the_metadata_of_the_server_says_what_clients_look_for(
    office: Office, program: Program, name: str
) -> None:
    found = (await program.http.get(f"/.well-known/{name}")).json()

    assert office.url == found["issuer"]
    assert ["S256"] == found["code_challenge_methods_supported"]
    assert found["client_id_metadata_document_supported"]
    assert found["authorization_response_iss_parameter_supported"]
    ends = ("authorize", "token", "register", "revoke")
    named = [value for key, value in found.items() if key.endswith("_endpoint")]
    assert {f"{office.url}/{end}" for end in ends} == set(named)


async def test_a_client_is_let_in_by_a_person_and_no_further_than_they_say(
    office: Office, owner: Person, program: Program
) -> None:
    shop = await office.new_inbox("shop")
    await program.register()

    answer = await decide(
        owner, program.authorize_path(), kind="organise", limit_inboxes="some", inbox=[shop]
    )
    told = parameters(answer)
    redeemed = await program.redeem(told["code"])

    assert CALLBACK == answer.headers["location"].partition("?")[0]
    assert ("of the client & more", office.url) == (told["state"], told["iss"])
    assert "no-store" == redeemed.headers["cache-control"]
    assert ("Bearer", 3600) == (program.tokens["token_type"], program.tokens["expires_in"])
    assert {"read", "write"} == set(program.tokens["scope"].split())
    seen = (await program.call("list_inboxes")).json()["result"]["structuredContent"]["results"]
    assert [shop] == [inbox["id"] for inbox in seen]
    sent = await program.call(
        "send_email", inbox_id=shop, recipient=STRANGER, subject="x", body="x"
    )
    assert "scope send" in sent.text


async def test_the_mail_of_a_grant_waits_for_a_person(
    office: Office, owner: Person, program: Program
) -> None:
    await program.sign_in(owner, kind="agent")

    sent = await program.call("send_message", to=[STRANGER], subject="Offer", body_text="Ten.")

    assert "held" == sent.json()["result"]["structuredContent"]["status"]
    found = await call(office.owner, list_keys, {})
    assert ["always"] == [key.approval for key in found.results if key.client_id is not None]


async def test_a_refusal_leads_back_and_gives_nothing(
    office: Office, owner: Person, program: Program
) -> None:
    await program.register()

    told = parameters(await decide(owner, program.authorize_path(), decision="deny"))

    assert "access_denied" == told["error"]
    assert ("of the client & more", office.url) == (told["state"], told["iss"])
    assert [] == await grants(office)


async def test_tokens_are_refreshed_and_the_grant_shows_its_last_use(
    office: Office, owner: Person, program: Program, clock: Clock
) -> None:
    first = await program.sign_in(owner)
    clock.now += timedelta(hours=2)
    expired = await program.call()

    refreshed = await program.refresh()

    assert (401, 200) == (expired.status_code, refreshed.status_code)
    assert program.tokens["refresh_token"] != first["refresh_token"]
    assert await program.has_access()
    listed = words(await owner.read("/keys"))
    assert "Helper (127.0.0.1:7777)" in listed
    assert "1 Jun 2026, 02:00 UTC" in listed


async def test_a_refresh_token_that_is_not_used_expires(
    owner: Person, program: Program, clock: Clock
) -> None:
    await program.sign_in(owner)
    clock.now += timedelta(days=31)

    answer = await program.refresh()

    assert (400, "invalid_grant") == (answer.status_code, answer.json()["error"])


async def test_a_grant_without_a_valid_token_is_listed_as_signed_out(
    office: Office, owner: Person, program: Program, clock: Clock
) -> None:
    async def signed_in() -> dict[str, bool | None]:
        listed = (await call(office.owner, list_keys, {})).results
        each = [await call(office.owner, get_key, {"key_id": key.id}) for key in listed]
        assert [key.signed_in for key in listed] == [key.signed_in for key in each]
        return {key.name: key.signed_in for key in listed}

    await program.sign_in(owner)
    at_first = await signed_in()
    page = words(await owner.read("/keys"))
    clock.now += timedelta(days=20)
    between = await signed_in()
    clock.now += timedelta(days=11)
    afterwards = await signed_in()
    await call(office.owner, create_key, {"name": "program", "scopes": ["read"]})
    async with office.visitor() as later:
        await later.sign_in(link=await office.link())
        later_page = words(await later.read("/keys"))

    name = "Helper (127.0.0.1:7777)"
    assert [True, True, False] == [found[name] for found in (at_first, between, afterwards)]
    assert (await signed_in())["program"] is None
    assert "signed in with OAuth" in page
    assert "signed out" in later_page


async def test_a_revoked_key_ends_the_tokens_of_its_grant(
    office: Office, owner: Person, program: Program
) -> None:
    await program.sign_in(owner)
    [key_id] = await grants(office)

    await call(office.owner, delete_key, {"key_id": key_id})

    assert not await program.has_access()
    assert "invalid_grant" == (await program.refresh()).json()["error"]


@pytest.mark.parametrize(("kind", "goes_on"), [("refresh_token", False), ("access_token", True)])
async def test_a_client_revokes_its_tokens(
    office: Office, owner: Person, program: Program, kind: str, goes_on: bool
) -> None:
    await program.sign_in(owner)
    form = {"token": program.tokens[kind], "client_id": program.client_id}

    answers = [await program.http.post("/revoke", data=form) for _ in range(2)]

    assert [200, 200] == [answer.status_code for answer in answers]
    assert not await program.has_access()
    assert goes_on == (200 == (await program.refresh()).status_code)
    assert goes_on == bool(await grants(office))


async def test_a_call_that_waits_ends_with_the_grant(
    office: Office, owner: Person, program: Program
) -> None:
    await program.sign_in(owner)
    inbox_id = await office.new_inbox("shop")
    waiting = asyncio.create_task(program.call("wait_for_message", inbox_id=inbox_id))
    for _ in range(3_000):
        if office.owner.watch._subscriptions:  # the wait has begun
            break
        await asyncio.sleep(0.01)
    form = {"token": program.tokens["refresh_token"], "client_id": program.client_id}

    await program.http.post("/revoke", data=form)
    answer = await asyncio.wait_for(waiting, 30)

    assert "revoked or limited during" in answer.text


async def test_a_key_still_opens_mcp(office: Office, program: Program) -> None:
    assert await program.has_access(await office.key("read"))


async def test_a_grant_ends_when_the_person_says(
    office: Office, owner: Person, program: Program, clock: Clock
) -> None:
    await program.sign_in(owner, expires_at="7d")
    clock.now += timedelta(days=6, hours=23, minutes=30)

    await program.refresh()
    lasts_s = program.tokens["expires_in"]
    clock.now += timedelta(minutes=31)

    assert 1_800 == lasts_s
    assert not await program.has_access()
    assert "invalid_grant" == (await program.refresh()).json()["error"]


async def test_a_grant_whose_client_never_came_is_removed(
    office: Office, owner: Person, program: Program, clock: Clock
) -> None:
    await program.sign_in(owner)
    await program.has_access()
    await decide(owner, program.authorize_path())
    before = await grants(office)
    clock.now += timedelta(hours=2)

    await remove_old_tokens(office.app.services)

    assert before[:1] == await grants(office)
    assert 2 == len(before)
