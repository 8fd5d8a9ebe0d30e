"""The authorization flow: discovery, registration, consent, refresh, and revocation."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from postroom.calls.operation import call
from postroom.operations.keys import create_key, delete_key, get_key, list_keys
from postroom.pipeline.maintenance import remove_old_tokens
from tests.pipeline.clock import Clock
from tests.surfaces.oauth.conftest import CALLBACK, OAuthClient, decide, parameters
from tests.surfaces.web.conftest import STRANGER, WebInstallation, WebUser, words

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    relay = {"POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}
    if request.param == "sqlite":
        return relay
    return {**relay, "POSTROOM_DATABASE_URL": request.getfixturevalue("database_url")}


async def grants(installation: WebInstallation) -> list[str]:
    found = await call(installation.owner, list_keys, {})
    return [key.id for key in found.results if key.client_id is not None]


async def test_a_request_without_a_key_gets_the_metadata_url(
    installation: WebInstallation, oauth_client: OAuthClient
) -> None:
    refused = [await oauth_client.http.post("/mcp"), await oauth_client.http.get("/mcp/")]

    place = f'resource_metadata="{installation.url}{WELL_KNOWN}/mcp"'
    assert [401, 401] == [answer.status_code for answer in refused]
    assert all(place in answer.headers["www-authenticate"] for answer in refused)
    assert "invalid_token" not in refused[0].headers["www-authenticate"]
    unknown = await oauth_client.call(token="po_" + "x" * 43)
    assert 'error="invalid_token"' in unknown.headers["www-authenticate"]


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/mcp/"])
async def test_the_metadata_of_the_resource_names_this_server(
    installation: WebInstallation, oauth_client: OAuthClient, path: str
) -> None:
    found = (await oauth_client.http.get(path)).json()

    assert f"{installation.url}/mcp" == found["resource"]
    assert [installation.url] == found["authorization_servers"]
    assert ["read", "write", "send"] == found["scopes_supported"]


@pytest.mark.parametrize("name", ["oauth-authorization-server", "openid-configuration"])
async def test_the_server_metadata_has_the_fields_that_clients_need(
    installation: WebInstallation, oauth_client: OAuthClient, name: str
) -> None:
    found = (await oauth_client.http.get(f"/.well-known/{name}")).json()

    assert installation.url == found["issuer"]
    assert ["S256"] == found["code_challenge_methods_supported"]
    assert found["client_id_metadata_document_supported"]
    assert found["authorization_response_iss_parameter_supported"]
    ends = ("authorize", "token", "register", "revoke")
    named = [value for key, value in found.items() if key.endswith("_endpoint")]
    assert {f"{installation.url}/{end}" for end in ends} == set(named)


async def test_a_grant_has_exactly_the_approved_rights(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    shop = await installation.new_inbox("shop")
    await oauth_client.register()

    answer = await decide(
        owner, oauth_client.authorize_path(), kind="organise", limit_inboxes="some", inbox=[shop]
    )
    told = parameters(answer)
    redeemed = await oauth_client.redeem(told["code"])

    assert CALLBACK == answer.headers["location"].partition("?")[0]
    assert ("of the client & more", installation.url) == (told["state"], told["iss"])
    assert "no-store" == redeemed.headers["cache-control"]
    assert ("Bearer", 3600) == (
        oauth_client.tokens["token_type"],
        oauth_client.tokens["expires_in"],
    )
    assert {"read", "write"} == set(oauth_client.tokens["scope"].split())
    seen = (await oauth_client.call("list_inboxes")).json()["result"]["structuredContent"][
        "results"
    ]
    assert [shop] == [inbox["id"] for inbox in seen]
    sent = await oauth_client.call(
        "send_email", inbox_id=shop, recipient=STRANGER, subject="x", body="x"
    )
    assert "scope send" in sent.text


async def test_mail_of_a_grant_needs_approval(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.sign_in(owner, kind="agent")

    sent = await oauth_client.call("send_message", to=[STRANGER], subject="Offer", body_text="Ten.")

    assert "held" == sent.json()["result"]["structuredContent"]["status"]
    found = await call(installation.owner, list_keys, {})
    assert ["always"] == [key.approval for key in found.results if key.client_id is not None]


async def test_a_refusal_redirects_without_a_code(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()

    told = parameters(await decide(owner, oauth_client.authorize_path(), decision="deny"))

    assert "access_denied" == told["error"]
    assert ("of the client & more", installation.url) == (told["state"], told["iss"])
    assert [] == await grants(installation)


async def test_tokens_are_refreshed_and_the_grant_shows_its_last_use(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, clock: Clock
) -> None:
    first = await oauth_client.sign_in(owner)
    clock.now += timedelta(hours=2)
    expired = await oauth_client.call()

    refreshed = await oauth_client.refresh()

    assert (401, 200) == (expired.status_code, refreshed.status_code)
    assert oauth_client.tokens["refresh_token"] != first["refresh_token"]
    assert await oauth_client.has_access()
    listed = words(await owner.read("/keys"))
    assert "Helper (127.0.0.1:7777)" in listed
    assert "1 Jun 2026, 02:00 UTC" in listed


async def test_a_refresh_token_that_is_not_used_expires(
    owner: WebUser, oauth_client: OAuthClient, clock: Clock
) -> None:
    await oauth_client.sign_in(owner)
    clock.now += timedelta(days=31)

    answer = await oauth_client.refresh()

    assert (400, "invalid_grant") == (answer.status_code, answer.json()["error"])


async def test_a_grant_without_a_valid_token_is_listed_as_signed_out(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, clock: Clock
) -> None:
    async def signed_in() -> dict[str, bool | None]:
        listed = (await call(installation.owner, list_keys, {})).results
        each = [await call(installation.owner, get_key, {"key_id": key.id}) for key in listed]
        assert [key.signed_in for key in listed] == [key.signed_in for key in each]
        return {key.name: key.signed_in for key in listed}

    await oauth_client.sign_in(owner)
    at_first = await signed_in()
    page = words(await owner.read("/keys"))
    clock.now += timedelta(days=20)
    between = await signed_in()
    clock.now += timedelta(days=11)
    afterwards = await signed_in()
    await call(installation.owner, create_key, {"name": "oauth_client", "scopes": ["read"]})
    async with installation.new_user() as later:
        await later.sign_in(link=await installation.link())
        later_page = words(await later.read("/keys"))

    name = "Helper (127.0.0.1:7777)"
    assert [True, True, False] == [found[name] for found in (at_first, between, afterwards)]
    assert (await signed_in())["oauth_client"] is None
    assert "signed in with OAuth" in page
    assert "signed out" in later_page


async def test_a_revoked_key_ends_the_tokens_of_its_grant(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.sign_in(owner)
    [key_id] = await grants(installation)

    await call(installation.owner, delete_key, {"key_id": key_id})

    assert not await oauth_client.has_access()
    assert "invalid_grant" == (await oauth_client.refresh()).json()["error"]


@pytest.mark.parametrize(("kind", "goes_on"), [("refresh_token", False), ("access_token", True)])
async def test_a_client_revokes_its_tokens(
    installation: WebInstallation,
    owner: WebUser,
    oauth_client: OAuthClient,
    kind: str,
    goes_on: bool,
) -> None:
    await oauth_client.sign_in(owner)
    form = {"token": oauth_client.tokens[kind], "client_id": oauth_client.client_id}

    answers = [await oauth_client.http.post("/revoke", data=form) for _ in range(2)]

    assert [200, 200] == [answer.status_code for answer in answers]
    assert not await oauth_client.has_access()
    assert goes_on == (200 == (await oauth_client.refresh()).status_code)
    assert goes_on == bool(await grants(installation))


async def test_a_call_that_waits_ends_with_the_grant(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.sign_in(owner)
    inbox_id = await installation.new_inbox("shop")
    waiting = asyncio.create_task(oauth_client.call("wait_for_message", inbox_id=inbox_id))
    for _ in range(3_000):
        if installation.owner.watch._subscriptions:  # the wait has started
            break
        await asyncio.sleep(0.01)
    form = {"token": oauth_client.tokens["refresh_token"], "client_id": oauth_client.client_id}

    await oauth_client.http.post("/revoke", data=form)
    answer = await asyncio.wait_for(waiting, 30)

    assert "revoked or limited during" in answer.text


async def test_a_key_is_still_accepted_by_mcp(
    installation: WebInstallation, oauth_client: OAuthClient
) -> None:
    assert await oauth_client.has_access(await installation.key("read"))


async def test_a_grant_expires_at_the_chosen_time(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, clock: Clock
) -> None:
    await oauth_client.sign_in(owner, expires_at="7d")
    clock.now += timedelta(days=6, hours=23, minutes=30)

    await oauth_client.refresh()
    lasts_s = oauth_client.tokens["expires_in"]
    clock.now += timedelta(minutes=31)

    assert 1_800 == lasts_s
    assert not await oauth_client.has_access()
    assert "invalid_grant" == (await oauth_client.refresh()).json()["error"]


async def test_an_unused_grant_is_removed(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, clock: Clock
) -> None:
    await oauth_client.sign_in(owner)
    await oauth_client.has_access()
    await decide(owner, oauth_client.authorize_path())
    before = await grants(installation)
    clock.now += timedelta(hours=2)

    await remove_old_tokens(installation.app.services)

    assert before[:1] == await grants(installation)
    assert 2 == len(before)
