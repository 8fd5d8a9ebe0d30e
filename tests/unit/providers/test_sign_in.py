"""Signing in: PKCE on loopback, a device code, and a pasted address, at a provider of our own."""

from __future__ import annotations

import base64
import hashlib
import urllib.request
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from postroom.errors import InvalidInput, ProviderAuthFailed
from postroom.providers import oauth
from tests.servers.web import Answer, Asked, WebServer


class Login:
    """An authorization server (RFC 6749, 7636, 8628)."""

    def __init__(self) -> None:
        self.challenge = ""
        self.pending = 1
        self.web = WebServer(self._answer)

    def sign_in(self, url: str) -> str:
        """What a person's browser does; where it is sent back to."""
        query = {k: v[0] for k, v in parse_qs(urlsplit(url).query).items()}
        self.challenge = query["code_challenge"]
        assert "S256" == query["code_challenge_method"]
        return f"{query['redirect_uri']}?code=the-code&state={query['state']}"

    def _answer(self, asked: Asked) -> Answer:
        form = {k: v[0] for k, v in parse_qs(asked.body.decode()).items()}
        if asked.path == "/device":
            return Answer(
                body={
                    "device_code": "d",
                    "user_code": "ABCD",
                    "verification_uri": "https://example.com/device",
                    "interval": 1,
                }
            )
        if form["grant_type"].endswith("device_code"):
            self.pending -= 1
            if self.pending >= 0:
                return Answer(400, {"error": "authorization_pending"})
            return Answer(body={"access_token": "a", "expires_in": 3600})
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        said = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if form["code"] != "the-code" or said != self.challenge:
            return Answer(400, {"error": "invalid_grant"})
        return Answer(body={"access_token": "a", "refresh_token": "r", "expires_in": 3600})


@pytest.fixture
def login() -> Iterator[Login]:
    server = Login()
    with server.web:
        yield server


@pytest.fixture
def client(login: Login) -> oauth.Client:
    return oauth.Client(
        authorize_url=f"{login.web.url}/authorize",
        token_url=f"{login.web.url}/token",
        device_url=f"{login.web.url}/device",
        client_id="cid",
        scopes=("mail",),
    )


async def test_a_browser_on_this_machine_comes_back_to_us(
    login: Login, client: oauth.Client
) -> None:
    import asyncio

    loop = asyncio.get_running_loop()

    def show(url: str) -> None:
        back = login.sign_in(url)
        loop.run_in_executor(None, lambda: urllib.request.urlopen(back, timeout=10).close())

    tokens = await oauth.sign_in_with_browser(client, show)

    assert ("a", "r") == (tokens["access_token"], tokens["refresh_token"])


async def test_an_address_can_be_pasted_but_not_that_of_another_sign_in(
    login: Login, client: oauth.Client
) -> None:
    sign_in = oauth.start_sign_in(client, oauth.UNUSED_REDIRECT)
    back = login.sign_in(sign_in.url)

    tokens = await oauth.exchange(client, sign_in, oauth.code_of(sign_in, back))

    assert "a" == tokens["access_token"]
    with pytest.raises(InvalidInput):
        oauth.code_of(oauth.start_sign_in(client, oauth.UNUSED_REDIRECT), back)
    with pytest.raises(ProviderAuthFailed):
        oauth.code_of(sign_in, "http://127.0.0.1:1/?error=access_denied")
    with pytest.raises(ProviderAuthFailed):
        await oauth.exchange(client, sign_in, "a guess")


async def test_a_device_code_is_waited_for(login: Login, client: oauth.Client) -> None:
    sign_in = await oauth.start_device_sign_in(client)

    tokens = await oauth.finish_device_sign_in(client, sign_in)

    assert ("ABCD", "a") == (sign_in.user_code, tokens["access_token"])
    assert -1 == login.pending
