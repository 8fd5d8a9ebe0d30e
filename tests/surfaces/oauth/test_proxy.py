"""Behind a reverse proxy, all URLs have the public address."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.surfaces.oauth.conftest import OAuthClient, decide, parameters
from tests.surfaces.web.conftest import WebInstallation

PUBLIC = "http://mail.example.com"
PATHS = (
    *("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"),
    *("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"),
)


@pytest.fixture
def settings() -> dict[str, str]:
    return {"POSTROOM_PUBLIC_URL": f"{PUBLIC}/"}


@pytest.fixture(params=["mail.example.com", "inner"])
async def oauth_client(
    request: pytest.FixtureRequest, installation: WebInstallation
) -> AsyncIterator[OAuthClient]:
    """A client, through a proxy that passes its Host on, or one that does not."""
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    if request.param != "inner":
        headers["Host"] = request.param
    async with httpx2.AsyncClient(base_url=installation.url, headers=headers, timeout=60) as http:
        yield OAuthClient(http, PUBLIC)


async def test_metadata_and_refusals_name_the_public_address(
    installation: WebInstallation, oauth_client: OAuthClient
) -> None:
    found = [await oauth_client.http.get(path) for path in PATHS]
    refused = await oauth_client.http.post("/mcp")

    inner = installation.url.partition("://")[2]
    assert all(200 == one.status_code and inner not in one.text for one in found)
    assert f"{PUBLIC}/mcp" == found[0].json()["resource"]
    assert [PUBLIC] == found[1].json()["authorization_servers"]
    assert PUBLIC == found[2].json()["issuer"] == found[3].json()["issuer"]
    challenge = refused.headers["www-authenticate"]
    assert f'resource_metadata="{PUBLIC}{PATHS[1]}"' in challenge
    assert inner not in challenge + refused.text


async def test_a_client_signs_in_at_the_public_address(
    installation: WebInstallation, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()

    async with installation.new_user(Origin=PUBLIC, Host="mail.example.com") as person:
        await person.sign_in(link=await installation.link())
        told = parameters(await decide(person, oauth_client.authorize_path()))
    redeemed = await oauth_client.redeem(told["code"], resource=f"{PUBLIC}/mcp/")
    refreshed = await oauth_client.refresh()

    assert PUBLIC == told["iss"]
    assert (200, 200) == (redeemed.status_code, refreshed.status_code)
    assert await oauth_client.has_access()
