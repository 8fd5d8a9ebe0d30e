"""An OAuth client that requests access step by step, and the user who decides."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from tests.servers.certificates import certificate
from tests.servers.https import pages
from tests.surfaces.oauth.documents import DocumentHost
from tests.surfaces.web.chromium import browser, shared_browser
from tests.surfaces.web.conftest import (
    WebInstallation,
    WebUser,
    anonymous,
    clock,
    installation,
    owner,
    serving,
    settings,
)

__all__ = ["browser", "clock", "installation", "owner", "serving", "settings", "shared_browser"]
__all__ += ["anonymous"]

CALLBACK = "http://127.0.0.1:7777/callback"
_CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
MCP_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-06-18",
}


def challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass
class OAuthClient:
    """A client without a browser; each of its requests can be altered."""

    http: httpx2.AsyncClient
    url: str
    client_id: str = ""
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    tokens: dict[str, Any] = field(default_factory=dict)

    async def register(self, *uris: str, **metadata: Any) -> httpx2.Response:
        given = {"client_name": "Helper", "redirect_uris": list(uris) or [CALLBACK], **metadata}
        answer = await self.http.post("/register", json=given)
        self.client_id = answer.json().get("client_id", "")
        return answer

    def request(self, **changed: str | None) -> dict[str, str]:
        usual = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": CALLBACK,
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            "resource": f"{self.url}/mcp",
            "state": "of the client & more",
        }
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def authorize_path(self, **changed: str | None) -> str:
        return f"/authorize?{urlencode(self.request(**changed))}"

    async def exchange(self, **changed: str | None) -> httpx2.Response:
        """Send the form of the token endpoint, and store the tokens of the response."""
        given = {"client_id": self.client_id, **changed}
        form = {name: value for name, value in given.items() if value is not None}
        answer = await self.http.post("/token", data=form)
        self.tokens = answer.json() if answer.status_code == 200 else self.tokens
        return answer

    async def redeem(self, code: str, **changed: str | None) -> httpx2.Response:
        usual = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
        return await self.exchange(**{**usual, "code_verifier": self.verifier, **changed})

    async def refresh(self, token: str = "") -> httpx2.Response:
        used = token or self.tokens["refresh_token"]
        return await self.exchange(grant_type="refresh_token", refresh_token=used)

    async def call(self, tool: str = "list_mailboxes", token: str = "", **arguments: Any) -> Any:
        """Call a tool; returns the HTTP response."""
        context_of_key = token or self.tokens["access_token"]
        return await self.http.post(
            "/mcp",
            content=json.dumps({**CALL, "params": {"name": tool, "arguments": arguments}}),
            headers={**MCP_HEADERS, "Authorization": f"Bearer {context_of_key}"},
        )

    async def has_access(self, token: str = "") -> bool:
        return 200 == (await self.call(token=token)).status_code

    async def sign_in(self, person: WebUser, **form: str) -> dict[str, Any]:
        """All steps from the registration to the tokens."""
        if not self.client_id:
            await self.register()
        answer = await decide(person, self.authorize_path(), **form)
        redeemed = await self.redeem(parameters(answer)["code"])
        assert 200 == redeemed.status_code, redeemed.text
        return self.tokens


async def decide(person: WebUser, path: str, **form: Any) -> httpx2.Response:
    """Press a button of the consent page, by default the one that allows reading."""
    page = await person.read(path)
    action = unescape(re.findall(r'action="(/authorize[^"]*)"', page)[0])
    fields = {"decision": "allow", "kind": "read", "csrf": _CSRF.findall(page)[0], **form}
    return await person.http.post(action, data=fields)


def parameters(answer: httpx2.Response) -> dict[str, str]:
    """The query parameters of the URL to which the browser is redirected."""
    assert 303 == answer.status_code, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


@pytest.fixture
async def oauth_client(installation: WebInstallation) -> AsyncIterator[OAuthClient]:
    async with httpx2.AsyncClient(base_url=installation.url, timeout=30) as http:
        yield OAuthClient(http, installation.url)


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DocumentHost]:
    """A host of metadata documents whose certificate this process trusts."""
    own = certificate(tmp_path / "certificates")
    monkeypatch.setenv("SSL_CERT_FILE", str(own.cert))
    async with pages(own.server(), DocumentHost) as host:
        yield host
