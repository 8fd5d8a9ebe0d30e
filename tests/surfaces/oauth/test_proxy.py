"""Behind a reverse proxy, everything names the public address and nothing the inner one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.surfaces.oauth.conftest import Program, decide, parameters
from tests.surfaces.web.conftest import Office

PUBLIC = "http://mail.example.com"
PATHS = (
    *("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"),
    *("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"),
)


@pytest.fixture
def settings() -> dict[str, str]:
    return {"POSTROOM_PUBLIC_URL": f"{PUBLIC}/"}


@pytest.fixture(params=["mail.example.com", "inner"])
async def program(request: pytest.FixtureRequest, office: Office) -> AsyncIterator[Program]:
    """A client, through a proxy that passes its Host on, or one that does not."""
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    if request.param != "inner":
        headers["Host"] = request.param
    async with httpx2.AsyncClient(base_url=office.url, headers=headers, timeout=60) as http:
        yield Program(http, PUBLIC)


async def test_metadata_and_refusals_name_the_public_address(
    office: Office, program: Program
) -> None:
    found = [await program.http.get(path) for path in PATHS]
    refused = await program.http.post("/mcp")

    inner = office.url.partition("://")[2]
    assert all(200 == one.status_code and inner not in one.text for one in found)
    assert f"{PUBLIC}/mcp" == found[0].json()["resource"]
    assert [PUBLIC] == found[1].json()["authorization_servers"]
    assert PUBLIC == found[2].json()["issuer"] == found[3].json()["issuer"]
    challenge = refused.headers["www-authenticate"]
    assert f'resource_metadata="{PUBLIC}{PATHS[1]}"' in challenge
    assert inner not in challenge + refused.text


async def test_a_client_signs_in_at_the_public_address(office: Office, program: Program) -> None:
    await program.register()

    async with office.visitor(Origin=PUBLIC, Host="mail.example.com") as person:
        await person.sign_in(link=await office.link())
        told = parameters(await decide(person, program.authorize_path()))
    redeemed = await program.redeem(told["code"], resource=f"{PUBLIC}/mcp/")
    refreshed = await program.refresh()

    assert PUBLIC == told["iss"]
    assert (200, 200) == (redeemed.status_code, refreshed.status_code)
    assert await program.has_access()
