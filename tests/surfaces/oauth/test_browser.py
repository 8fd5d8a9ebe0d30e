"""The official clients sign in through a real browser, refresh tokens, and are revoked."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from playwright.async_api import Browser, Page

from postroom.calls.operation import call
from postroom.operations.keys import delete_key
from tests.servers.web import HttpRequest, HttpResponse, WebServer
from tests.surfaces.oauth.conftest import OAuthClient
from tests.surfaces.oauth.documents import DocumentHost
from tests.surfaces.oauth.test_flow import grants
from tests.surfaces.web.chromium import signed_in, violations
from tests.surfaces.web.conftest import WebInstallation

ROOT = Path(__file__).parents[3]
LIMIT_S = 60


@pytest.fixture
def settings() -> dict[str, str]:
    allowed = {"POSTROOM_WEBHOOK_ALLOW": "127.0.0.1/32"}
    return {"POSTROOM_RELAY_URL": "smtp://127.0.0.1:9", **allowed}


@pytest.fixture
def callback() -> Iterator[str]:
    """The redirect URI of a client."""
    with WebServer(lambda _: HttpResponse(200, b"Done.", {"Content-Type": "text/plain"})) as server:
        yield f"{server.url}/callback"


async def allow(page: Page, url: str, callback: str, button: str = "Allow") -> dict[str, str]:
    """Open the authorization page, decide, and return to the client."""
    await page.goto(url)
    await page.get_by_label("Read only").check()
    await page.get_by_role("button", name=button).click()
    await page.wait_for_url(f"{callback}?*")
    return dict(parse_qsl(urlsplit(page.url).query))


class MemoryTokenStorage:
    """The token storage of the official client: its registration and its tokens."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def provider_of(
    url: str,
    storage: MemoryTokenStorage,
    callback: str,
    visit: Callable[[str], Awaitable[dict[str, str]]],
    **more: Any,
) -> OAuthClientProvider:
    """The sign-in of the official client; *visit* is what a user does in the browser."""
    told: dict[str, str] = {}

    async def lead(to: str) -> None:
        told.update(await visit(to))

    async def come_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**{name: told[name] for name in ("code", "state", "iss")})

    metadata = OAuthClientMetadata.model_validate(
        {"client_name": "Python", "redirect_uris": [callback]}
    )
    return OAuthClientProvider(url, metadata, storage, lead, come_back, **more)


@asynccontextmanager
async def connected(url: str, auth: httpx2.Auth) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(auth=auth, timeout=LIMIT_S) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_official_python_client_signs_in_refreshes_and_is_revoked(
    installation: WebInstallation, browser: Browser, callback: str, slash: str
) -> None:
    page, storage, url = (
        await signed_in(browser, installation),
        MemoryTokenStorage(),
        f"{installation.url}/mcp{slash}",
    )
    visits: list[str] = []

    async def visit(to: str) -> dict[str, str]:
        visits.append(to)
        return await allow(page, to, callback)

    auth = provider_of(url, storage, callback, visit)
    async with connected(url, auth) as client:
        found = await client.call_tool("list_inboxes", {})
        first = storage.tokens
        auth.context.token_expiry_time = 1.0
        again = await client.call_tool("list_inboxes", {})
        second = storage.tokens
        [key_id] = await grants(installation)
        await call(installation.owner, delete_key, {"key_id": key_id})
        await client.call_tool("list_inboxes", {})

    assert 1 == found.structured_content["total"] == again.structured_content["total"]
    assert first is not None
    assert second is not None
    assert first.refresh_token != second.refresh_token
    assert 2 == len(visits)
    assert key_id not in await grants(installation)


async def test_the_official_python_client_signs_in_with_its_document(
    installation: WebInstallation, browser: Browser, callback: str, host: DocumentHost
) -> None:
    page, storage, url = (
        await signed_in(browser, installation),
        MemoryTokenStorage(),
        f"{installation.url}/mcp",
    )
    client_id = host.put("/client.json", redirect_uris=["http://127.0.0.1/callback"])

    async def visit(to: str) -> dict[str, str]:
        return await allow(page, to, callback)

    auth = provider_of(url, storage, callback, visit, client_metadata_url=client_id)
    async with connected(url, auth) as client:
        await client.call_tool("list_inboxes", {})

    assert storage.client is not None
    assert client_id == storage.client.client_id
    assert ["/client.json"] == host.paths


@pytest.fixture(scope="module")
def sdk() -> Path:
    """The folder of the TypeScript SDK, which is installed with the conformance suite."""
    subprocess.run([ROOT / "scripts/conformance", "install"], check=True, timeout=300)
    return ROOT / ".cache/conformance/node_modules/@modelcontextprotocol/sdk"


@asynccontextmanager
async def typescript(*arguments: str | Path) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """The official TypeScript client, as a function that sends it one command."""
    script = Path(__file__).with_name("typescript_client.mjs")
    process = await asyncio.create_subprocess_exec(
        *(ROOT / ".venv/bin/node", script, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def send(**command: Any) -> Any:
        stdin.write(json.dumps(command).encode() + b"\n")
        return json.loads(await asyncio.wait_for(stdout.readline(), LIMIT_S))

    try:
        yield send
    finally:
        stdin.close()
        await asyncio.wait_for(process.wait(), LIMIT_S)


@pytest.mark.parametrize("has_document", [False, True])
async def test_the_official_typescript_client_signs_in_refreshes_and_is_revoked(
    installation: WebInstallation,
    browser: Browser,
    callback: str,
    host: DocumentHost,
    sdk: Path,
    has_document: bool,
) -> None:
    page = await signed_in(browser, installation)
    document = [host.put("/client.json", redirect_uris=[callback])] if has_document else []

    async with typescript(sdk, f"{installation.url}/mcp", callback, *document) as send:
        refused = await send(connect=True)
        told = await allow(page, refused["asked"], callback)
        connection = await send(code=told["code"])
        found = await send(call="list_inboxes")
        await send(expire=True)
        again = await send(call="list_inboxes")
        [key_id] = await grants(installation)
        await call(installation.owner, delete_key, {"key_id": key_id})
        revoked = await send(call="list_inboxes")

    assert "UnauthorizedError" == refused["error"] == revoked["error"], revoked
    assert "typescript" == told["state"]
    assert 1 == found["result"]["total"] == again["result"]["total"]
    assert revoked["asked"].startswith(f"{installation.url}/authorize?")
    assert has_document == (connection["client"] in document)


async def test_a_person_who_comes_from_another_site_is_still_signed_in(
    installation: WebInstallation, browser: Browser, oauth_client: OAuthClient, callback: str
) -> None:
    page = await signed_in(browser, installation)
    await oauth_client.register(callback)
    path = oauth_client.authorize_path(redirect_uri=callback).replace("&", "&amp;")
    link = f'<a href="{installation.url}{path}">Connect</a>'.encode()

    with WebServer(lambda _: HttpResponse(200, link, {"Content-Type": "text/html"})) as site:
        await page.goto(site.url.replace("127.0.0.1", "localhost"))
        await page.get_by_role("link", name="Connect").click()
        await page.get_by_role("button", name="Refuse").click()
        await page.wait_for_url(f"{callback}?*")

    assert "error=access_denied" in page.url


async def test_a_user_returns_to_the_consent_page_after_signing_in(
    installation: WebInstallation, browser: Browser, oauth_client: OAuthClient, callback: str
) -> None:
    page = await (await browser.new_context(base_url=installation.url)).new_page()
    await oauth_client.register(callback)
    key = await installation.key("read", "write", "send", "admin")

    await page.goto(oauth_client.authorize_path(redirect_uri=callback, state="~a+b/c:d é"))
    await page.get_by_label("Key").fill(key)
    await page.locator("form:has(#key) button").click()
    await page.get_by_label("Read only").check()
    await page.get_by_role("button", name="Allow").click()
    await page.wait_for_url(f"{callback}?*")

    assert "~a+b/c:d é" == dict(parse_qsl(urlsplit(page.url).query))["state"]


async def test_a_client_in_another_window_is_notified_by_its_own_page(
    installation: WebInstallation, browser: Browser, oauth_client: OAuthClient
) -> None:
    page = await signed_in(browser, installation)
    done = "<script>opener.postMessage(location.search, '*')</script>"

    def site(request: HttpRequest) -> HttpResponse:
        ask = f"<button onclick=\"window.open('{to}')\">Go</button>"
        told = "<script>onmessage = event => document.title = event.data</script>"
        text = told + (done if request.path == "/callback" else ask)
        return HttpResponse(200, text.encode(), {"Content-Type": "text/html"})

    with WebServer(site) as client:
        callback = f"{client.url}/callback".replace("127.0.0.1", "localhost")
        await oauth_client.register(callback)
        to = installation.url + oauth_client.authorize_path(redirect_uri=callback)
        await page.goto(callback.removesuffix("/callback"))
        async with page.expect_popup() as opened:
            await page.get_by_role("button", name="Go").click()
        popup = await opened.value
        await popup.get_by_label("Read only").check()
        await popup.get_by_role("button", name="Allow").click()
        await page.wait_for_function("document.title.startsWith('?code=')")

    assert [] != await grants(installation)


async def test_the_consent_page_cannot_be_framed(
    installation: WebInstallation, browser: Browser, oauth_client: OAuthClient
) -> None:
    page = await signed_in(browser, installation)
    await oauth_client.register()
    path = oauth_client.authorize_path().replace("&", "&amp;")
    frame = f'<iframe src="{installation.url}{path}"></iframe>'.encode()

    with WebServer(lambda _: HttpResponse(200, frame, {"Content-Type": "text/html"})) as site:
        await page.goto(site.url)
        await page.wait_for_load_state()
        shown = [await one.content() for one in page.frames[1:]]

    assert 1 == len(shown)
    assert "asks for access" not in shown[0]


async def test_the_consent_page_is_accessible(
    installation: WebInstallation, browser: Browser, oauth_client: OAuthClient
) -> None:
    page = await signed_in(browser, installation)
    await oauth_client.register()

    for path in (oauth_client.authorize_path(), oauth_client.authorize_path(code_challenge=None)):
        await page.goto(path)
        assert "" == await violations(page)
