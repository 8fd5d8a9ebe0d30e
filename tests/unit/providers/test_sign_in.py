"""OAuth sign-in: PKCE on loopback, a device code, and a pasted URL."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from postroom.errors import InvalidInput, ProviderAuthFailed
from postroom.model.account import UNUSED_REDIRECT
from postroom.providers import oauth_client
from tests.servers.oauth import AuthorizationServer


@pytest.fixture
def login() -> Iterator[AuthorizationServer]:
    with AuthorizationServer() as server:
        yield server


@pytest.fixture
def client(login: AuthorizationServer) -> oauth_client.Client:
    return oauth_client.Client(
        authorize_url=f"{login.web.url}/authorize",
        token_url=f"{login.web.url}/token",
        device_url=f"{login.web.url}/device",
        client_id="cid",
        scopes=("mail",),
    )


async def test_a_browser_on_this_machine_is_redirected_to_us(
    login: AuthorizationServer, client: oauth_client.Client
) -> None:
    import asyncio

    loop = asyncio.get_running_loop()

    def show(url: str) -> None:
        back = login.sign_in(url)
        loop.run_in_executor(None, lambda: urllib.request.urlopen(back, timeout=10).close())

    tokens = await oauth_client.sign_in_with_browser(client, show)

    assert ("a", "r") == (tokens["access_token"], tokens["refresh_token"])


async def test_a_redirect_url_can_be_pasted_but_not_of_another_sign_in(
    login: AuthorizationServer, client: oauth_client.Client
) -> None:
    sign_in = oauth_client.start_sign_in(client, UNUSED_REDIRECT)
    back = login.sign_in(sign_in.url)

    tokens = await oauth_client.exchange(client, sign_in, oauth_client.code_of(sign_in, back))

    assert "a" == tokens["access_token"]
    with pytest.raises(InvalidInput):
        oauth_client.code_of(oauth_client.start_sign_in(client, UNUSED_REDIRECT), back)
    with pytest.raises(ProviderAuthFailed):
        oauth_client.code_of(sign_in, "http://127.0.0.1:1/?error=access_denied")
    with pytest.raises(ProviderAuthFailed):
        await oauth_client.exchange(client, sign_in, "a guess")


async def test_a_device_code_is_polled(
    login: AuthorizationServer, client: oauth_client.Client
) -> None:
    sign_in = await oauth_client.start_device_sign_in(client)

    tokens = await oauth_client.finish_device_sign_in(client, sign_in)

    assert ("ABCD", "a") == (sign_in.user_code, tokens["access_token"])
    assert -1 == login.pending
