"""Tokens are sent only to the configured provider, even if it names addresses at other hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from postroom.errors import ProviderError
from postroom.model.account import RateLimits
from postroom.providers.web.api import (
    TOKEN_HOSTS,
    UPLOAD_HOSTS,
    Api,
    FixedHeader,
    RateLimiter,
    check_url,
)
from postroom.providers.web.gmail_client import GmailClient
from postroom.providers.web.graph_client import GraphClient
from postroom.providers.web.jmap_client import JmapClient
from tests.servers.web import HttpRequest, HttpResponse, WebServer

CAPABILITIES = ("urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail")
SESSION = {
    "primaryAccounts": dict.fromkeys(CAPABILITIES, "a1"),
    "apiUrl": "/api",
    "downloadUrl": "/blob/{accountId}/{blobId}",
    "uploadUrl": "/upload/{accountId}",
    "eventSourceUrl": "/events?types={types}",
}
REDIRECTS = (301, 302, 303, 307, 308)


@dataclass
class TwoHosts:
    """The configured provider, with scripted responses, and a foreign host."""

    provider: WebServer
    foreign_host: WebServer

    @property
    def api(self) -> Api:
        rates = RateLimits(requests_per_second=1000, burst=100)
        return Api(
            "work",
            self.provider.url,
            FixedHeader("Bearer canary-token"),
            RateLimiter(rates),
            max_wait_s=1,
        )

    def spellings(self, path: str) -> list[str]:
        """URLs of the foreign host; some begin like those of the provider."""
        port = self.foreign_host.url.rpartition(":")[2]
        ours = self.provider.url.removeprefix("http://")
        return [
            f"{self.foreign_host.url}{path}",
            f"//127.0.0.1:{port}{path}",
            f"http://localhost:{port}{path}",
            f"HTTP://127.0.0.1:{port}{path}",
            f"http://{ours}@127.0.0.1:{port}{path}",
            f"http://{ours}\\@127.0.0.1:{port}{path}",
            f"https://127.0.0.1:{port}{path}",
        ]


@pytest.fixture(scope="module")
def servers() -> Iterator[TwoHosts]:
    everything = {
        "methodResponses": [["Mailbox/get", {"list": []}, "0"]],
        "blobId": "b",
        "value": [],
    }
    with (
        WebServer(lambda _: HttpResponse(body=everything)) as foreign_host,
        WebServer(lambda _: HttpResponse(body={})) as provider,
    ):
        yield TwoHosts(provider, foreign_host)


@pytest.fixture
def hosts(servers: TwoHosts) -> TwoHosts:
    servers.provider.requests.clear()
    servers.foreign_host.requests.clear()
    return servers


async def events_of(client: JmapClient) -> None:
    async for _ in client.states():
        return


JMAP: dict[str, Callable[[JmapClient], Awaitable[Any]]] = {
    "apiUrl": lambda client: client.call("Mailbox/get", {}),
    "downloadUrl": lambda client: client.download("b1"),
    "uploadUrl": lambda client: client.upload(b"mail"),
    "eventSourceUrl": events_of,
}


@pytest.mark.parametrize("name", JMAP)
@pytest.mark.parametrize("spelling", range(7))
async def test_a_jmap_session_with_urls_of_another_host_is_refused(
    hosts: TwoHosts, name: str, spelling: int
) -> None:
    url = hosts.spellings("/api")[spelling]
    hosts.provider.answer = lambda _: HttpResponse(body={**SESSION, name: url})
    client = JmapClient(hosts.api)
    with pytest.raises(ProviderError):
        await JMAP[name](client)
    await client.api.close()
    assert hosts.foreign_host.requests == []


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("path", ["/.well-known/jmap", "/api", "/blob/a1/b1", "/upload/a1"])
async def test_a_redirect_of_a_jmap_server_is_not_followed(
    hosts: TwoHosts, path: str, status: int
) -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        if request.path == path:
            return HttpResponse(status, {}, {"Location": hosts.foreign_host.url + "/x"})
        return HttpResponse(body=SESSION)

    hosts.provider.answer = answer
    client = JmapClient(hosts.api)
    for ask in (JMAP["apiUrl"], JMAP["downloadUrl"], JMAP["uploadUrl"]):
        try:
            await ask(client)
        except (ProviderError, LookupError, AttributeError, TypeError):
            continue
    await client.api.close()
    assert hosts.foreign_host.requests == []
    assert path in {request.path for request in hosts.provider.requests}


async def test_a_jmap_session_of_its_own_host_gets_the_token(hosts: TwoHosts) -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        session = {**SESSION, "apiUrl": hosts.provider.url + "/api"}
        responses = {"methodResponses": [["Mailbox/get", {"list": [1]}, "0"]]}
        return HttpResponse(body=responses if request.path == "/api" else session)

    hosts.provider.answer = answer
    client = JmapClient(hosts.api)
    assert {"list": [1]} == await client.call("Mailbox/get", {})
    await client.api.close()
    said = {request.headers.get("authorization") for request in hosts.provider.requests}
    assert {"Bearer canary-token"} == said


async def read_delta(client: GraphClient, link: str | None) -> None:
    async for page in client.delta("inbox", link):
        client.link(page, "deltaLink")


@pytest.mark.parametrize("spelling", range(7))
@pytest.mark.parametrize("link", ["@odata.nextLink", "@odata.deltaLink"])
async def test_next_links_of_graph_to_another_host_are_refused(
    hosts: TwoHosts, link: str, spelling: int
) -> None:
    url = hosts.spellings("/v1.0/me/mailFolders")[spelling]
    hosts.provider.answer = lambda _: HttpResponse(body={"value": [], link: url})
    client = GraphClient(hosts.api)
    with pytest.raises(ProviderError):
        await read_delta(client, None)
    if link == "@odata.nextLink":
        with pytest.raises(ProviderError):
            await client.folders()
    with pytest.raises(ProviderError):  # as in a checkpoint of an older version
        await read_delta(client, url)
    await client.api.close()
    assert hosts.foreign_host.requests == []


FILE = {"name": "a.txt", "contentType": "text/plain"}


@pytest.mark.parametrize("spelling", range(7))
async def test_an_upload_to_graph_goes_to_no_other_host(hosts: TwoHosts, spelling: int) -> None:
    url = hosts.spellings("/upload")[spelling]
    hosts.provider.answer = lambda _: HttpResponse(body={"uploadUrl": url})
    client = GraphClient(hosts.api)
    with pytest.raises(ProviderError):
        await client.attach("m1", FILE, b"content")
    await client.api.close()
    assert hosts.foreign_host.requests == []


async def test_an_upload_to_graph_has_no_token(hosts: TwoHosts) -> None:
    hosts.provider.answer = lambda _: HttpResponse(
        body={"uploadUrl": hosts.provider.url + "/upload"}
    )
    client = GraphClient(hosts.api)
    await client.attach("m1", FILE, b"content")
    await client.api.close()
    session, upload = hosts.provider.requests
    assert "authorization" in session.headers
    assert ("PUT", "/upload", b"content") == (upload.method, upload.path, upload.body)
    assert "authorization" not in upload.headers


@pytest.mark.parametrize("status", REDIRECTS)
async def test_no_redirect_of_a_provider_is_followed(hosts: TwoHosts, status: int) -> None:
    hosts.provider.answer = lambda _: HttpResponse(
        status, {}, {"Location": hosts.foreign_host.url + "/x"}
    )
    gmail, graph = GmailClient(hosts.api), GraphClient(hosts.api)
    for ask in (gmail.profile, gmail.labels, graph.me, graph.folders):
        try:
            await ask()
        except (ProviderError, LookupError):
            continue
    await gmail.api.close()
    await graph.api.close()
    assert hosts.foreign_host.requests == []


FASTMAIL, MICROSOFT = "https://api.fastmail.com", "https://graph.microsoft.com/v1.0"


@pytest.mark.parametrize(
    "url",
    [
        "https://api.fastmail.com/jmap/api/",
        "https://API.fastmail.com:443/jmap/api/",
        "https://phl.api.fastmail.com/jmap/upload/u1/",
        "https://www.fastmailusercontent.com/jmap/download/u1/b1/x?type=y",
        "https://phl-www.fastmailusercontent.com/jmap/download/u1/b1/x",
    ],
)
def test_hosts_of_fastmail_are_accepted(url: str) -> None:
    assert str(check_url(url, FASTMAIL, TOKEN_HOSTS))


@pytest.mark.parametrize(
    "url",
    [
        "http://api.fastmail.com/jmap/api/",
        "https://api.fastmail.com:8443/",
        "https://fastmailusercontent.com.evil.example/",
        "https://evilfastmailusercontent.com/",
        "https://evilapi.fastmail.com/",
        "https://evil.example/?https://api.fastmail.com/",
        "https://evil.example#.api.fastmail.com",
        "https://api.fastmail.com%2eevil.example/",
        "https://api.fastmail.com@evil.example/",
        "https://user@api.fastmail.com/",
        "https://api.fastmail.com\\.evil.example/",
        "http://www.fastmailusercontent.com/",
        "https://www.fastmailusercontent.com:444/",
        "https://outlook.office.com/",
        "ftp://api.fastmail.com/",
        "https:///x",
        "https://[::1]/",
        "",
        "x",
    ],
)
def test_other_hosts_are_not_accepted_for_fastmail(url: str) -> None:
    with pytest.raises(ProviderError):
        check_url(url, FASTMAIL, TOKEN_HOSTS)


def test_only_uploads_of_microsoft_use_another_host() -> None:
    upload = "https://outlook.office.com/api/v2.0/Users('u')/Messages('m')/AttachmentSessions('s')"
    assert "outlook.office.com" == check_url(upload, MICROSOFT, UPLOAD_HOSTS).host
    with pytest.raises(ProviderError):
        check_url(upload, MICROSOFT, TOKEN_HOSTS)
    with pytest.raises(ProviderError):
        check_url(upload, "https://graph.example.com/v1.0", UPLOAD_HOSTS)
