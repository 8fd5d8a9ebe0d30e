"""Signing in: PKCE on loopback, a device code, and a pasted address, at a provider of our own."""

from __future__ import annotations

import base64
import hashlib
import urllib.request
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from postroom.errors import InvalidInput, ProviderAuthFailed
from postroom.providers.oauth import signing_in
from tests.servers.web import Answer, Asked, WebServer


class Login:
    """An authorization server (RFC 6749, 7636, 8628)."""

    def __init__(self) -> None:
        self.challenge = ""
        self.pending = 1
        self.web = WebServer(self._answer)

    def visit(self, url: str) -> str:
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
def client(login: Login) -> signing_in.Client:
    return signing_in.Client(
        authorize_url=f"{login.web.url}/authorize",
        token_url=f"{login.web.url}/token",
        device_url=f"{login.web.url}/device",
        client_id="cid",
        scopes=("mail",),
    )


async def test_a_browser_on_this_machine_comes_back_to_us(
    login: Login, client: signing_in.Client
) -> None:
    import asyncio

    loop = asyncio.get_running_loop()

    def show(url: str) -> None:
        back = login.visit(url)
        loop.run_in_executor(None, lambda: urllib.request.urlopen(back, timeout=10).close())

    tokens = await signing_in.sign_in_here(client, show)

    assert ("a", "r") == (tokens["access_token"], tokens["refresh_token"])


async def test_an_address_can_be_pasted_but_not_that_of_another_sign_in(
    login: Login, client: signing_in.Client
) -> None:
    visit = signing_in.begin(client, signing_in.NOWHERE)
    back = login.visit(visit.url)

    tokens = await signing_in.exchange(client, visit, signing_in.code_in(visit, back))

    assert "a" == tokens["access_token"]
    with pytest.raises(InvalidInput):
        signing_in.code_in(signing_in.begin(client, signing_in.NOWHERE), back)
    with pytest.raises(ProviderAuthFailed):
        signing_in.code_in(visit, "http://127.0.0.1:1/?error=access_denied")
    with pytest.raises(ProviderAuthFailed):
        await signing_in.exchange(client, visit, "a guess")


async def test_a_device_code_is_waited_for(login: Login, client: signing_in.Client) -> None:
    visit = await signing_in.begin_device(client)

    tokens = await signing_in.finish_device(client, visit)

    assert ("ABCD", "a") == (visit.user_code, tokens["access_token"])
    assert -1 == login.pending
