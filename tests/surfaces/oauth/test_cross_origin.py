"""MCP clients in a browser: other origins may sign in and call `/mcp`, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import Page

from tests.servers.web import HttpResponse, WebServer
from tests.surfaces.oauth.conftest import CALLBACK, OAuthClient, decide, parameters
from tests.surfaces.web.chromium import chromium
from tests.surfaces.web.conftest import WebInstallation

PUBLIC = "http://mail.example.com"
ELSEWHERE = "http://inspector.example.org"

FLOW = """async ({url, callback, verifier, token}) => {
    const told = {};
    const ask = async (path, options) => {
        try {
            const answer = await fetch(url + path, options);
            return {status: answer.status, body: await answer.text(),
                    challenge: answer.headers.get("www-authenticate")};
        } catch (error) {
            return {status: 0, body: String(error)};
        }
    };
    const version = {"MCP-Protocol-Version": "2025-06-18"};
    const json = {...version, "Content-Type": "application/json",
                  "Accept": "application/json, text/event-stream"};
    const call = JSON.stringify({jsonrpc: "2.0", id: 1, method: "tools/list"});
    told.challenge = await ask("/mcp", {method: "POST", headers: json, body: call});
    told.resource = await ask("/.well-known/oauth-protected-resource/mcp", {headers: version});
    told.server = await ask("/.well-known/oauth-authorization-server", {headers: version});
    told.register = await ask("/register", {method: "POST", headers: json,
        body: JSON.stringify({client_name: "Page", redirect_uris: [callback]})});
    told.token = await ask("/token", {method: "POST",
        headers: {"Content-Type": "application/x-www-form-urlencoded"},
        body: new URLSearchParams({grant_type: "authorization_code", client_id: "none",
                                   code: "none", code_verifier: verifier})});
    told.tools = await ask("/mcp", {method: "POST", body: call,
        headers: {...json, "Authorization": "Bearer " + token}});
    told.cookies = await ask("/mcp", {method: "POST", headers: json, body: call,
        credentials: "include"});
    told.key = await ask("/mcp", {method: "POST", headers: {...json, "X-API-Key": token},
        body: call});
    told.rest = await ask("/v1/inboxes", {headers: {"Authorization": "Bearer " + token}});
    told.page = await ask("/", {});
    return told;
}"""


@pytest.fixture
def page_server() -> Iterator[WebServer]:
    with WebServer(
        lambda _: HttpResponse(200, b"<p>A client</p>", {"Content-Type": "text/html"})
    ) as one:
        yield one


async def access_token(installation: WebInstallation, url: str, **headers: str) -> str:
    async with (
        httpx2.AsyncClient(base_url=installation.url, headers=headers) as http,
        installation.new_user(Origin=url, **headers) as person,
    ):
        oauth_client = OAuthClient(http, url)
        await oauth_client.register()
        await person.sign_in(link=await installation.link())
        told = parameters(await decide(person, oauth_client.authorize_path()))
        await oauth_client.redeem(told["code"])
    return str(oauth_client.tokens["access_token"])


async def run(page: Page, url: str, token: str) -> dict[str, Any]:
    given = {"url": url, "callback": CALLBACK, "verifier": "v" * 43, "token": token}
    return dict(await page.evaluate(FLOW, given))


def check(told: dict[str, Any]) -> None:
    """Signing in and `/mcp` with a token work, and nothing else can be read."""
    statuses = {name: one["status"] for name, one in told.items()}
    signing_in = {"challenge": 401, "resource": 200, "server": 200, "register": 201, "token": 401}
    refused = dict.fromkeys(("cookies", "key", "rest", "page"), 0)
    assert {**signing_in, "tools": 200, **refused} == statuses, told
    assert "resource_metadata=" in told["challenge"]["challenge"]
    assert "list_messages" in told["tools"]["body"]


class TestOnThisMachine:
    async def test_a_page_of_another_port_signs_in_and_calls(
        self, installation: WebInstallation, page_server: WebServer
    ) -> None:
        token = await access_token(installation, installation.url)
        async with chromium() as browser:
            page = await (await browser.new_context()).new_page()
            await page.goto(page_server.url)
            told = await run(page, installation.url, token)

        check(told)

    @pytest.mark.parametrize("path", ["/mcp", "/token", "/register"])
    async def test_a_page_of_another_site_gets_no_cors_headers(
        self, installation: WebInstallation, path: str
    ) -> None:
        """It could try keys and register clients from the user's browser."""
        asking = {"Origin": ELSEWHERE, "Access-Control-Request-Method": "POST"}
        async with httpx2.AsyncClient(base_url=installation.url) as http:
            answers = [
                await http.request("OPTIONS", path, headers=asking),
                await http.post(path, headers={"Origin": ELSEWHERE, "Authorization": "Bearer x"}),
                await http.post(path, headers={"Origin": "null"}),
            ]

        assert [403] * 3 == [answer.status_code for answer in answers]
        assert not [name for one in answers for name in one.headers if "access-control" in name]


class TestUnderAPublicAddress:
    @pytest.fixture
    def settings(self) -> dict[str, str]:
        return {"POSTROOM_PUBLIC_URL": PUBLIC}

    @pytest.fixture
    async def page(
        self, installation: WebInstallation, page_server: WebServer
    ) -> AsyncIterator[Page]:
        """A page of another site; both names resolve to this machine."""
        places = {PUBLIC: installation.url, ELSEWHERE: page_server.url}
        rules = ",".join(
            f"MAP {urlsplit(name).hostname}:80 {urlsplit(url).netloc}"
            for name, url in places.items()
        )
        async with chromium(f"--host-resolver-rules={rules}") as browser:
            page = await (await browser.new_context()).new_page()
            await page.goto(ELSEWHERE)
            yield page

    async def test_a_page_of_any_site_can_sign_in_and_call(
        self, installation: WebInstallation, page: Page
    ) -> None:
        token = await access_token(installation, PUBLIC, Host="mail.example.com")

        check(await run(page, PUBLIC, token))

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    async def test_under_its_internal_address_it_gets_no_cors_headers(
        self, installation: WebInstallation, host: str
    ) -> None:
        port = urlsplit(installation.url).port
        headers = {"Origin": ELSEWHERE, "Host": f"{host}:{port}", "Authorization": "Bearer x"}
        async with httpx2.AsyncClient(base_url=installation.url) as http:
            answer = await http.post("/mcp", headers=headers)

        assert 403 == answer.status_code

    async def test_answers_never_allow_credentials(self, installation: WebInstallation) -> None:
        headers = {"Origin": ELSEWHERE, "Host": "mail.example.com"}
        asking = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, x-api-key, cookie, mcp-name",
        }
        async with httpx2.AsyncClient(base_url=installation.url) as http:
            preflight = await http.request("OPTIONS", "/mcp", headers={**headers, **asking})
            refused = await http.post("/mcp", headers=headers)

        for answer in (preflight, refused):
            assert "*" == answer.headers["access-control-allow-origin"]
            assert "access-control-allow-credentials" not in answer.headers
        assert "authorization, mcp-name" == preflight.headers["access-control-allow-headers"]
