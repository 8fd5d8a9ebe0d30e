"""A provider that names addresses at other hosts does not get our token sent there."""

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
class Hosts:
    """The provider that is set, which answers as it is told, and a host of somebody else."""

    provider: WebServer
    thief: WebServer

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
        """Addresses of the other host; some begin like those of the provider."""
        port = self.thief.url.rpartition(":")[2]
        ours = self.provider.url.removeprefix("http://")
        return [
            f"{self.thief.url}{path}",
            f"//127.0.0.1:{port}{path}",
            f"http://localhost:{port}{path}",
            f"HTTP://127.0.0.1:{port}{path}",
            f"http://{ours}@127.0.0.1:{port}{path}",
            f"http://{ours}\\@127.0.0.1:{port}{path}",
            f"https://127.0.0.1:{port}{path}",
        ]


@pytest.fixture(scope="module")
def servers() -> Iterator[Hosts]:
    everything = {
        "methodResponses": [["Mailbox/get", {"list": []}, "0"]],
        "blobId": "b",
        "value": [],
    }
    with (
        WebServer(lambda _: HttpResponse(body=everything)) as thief,
        WebServer(lambda _: HttpResponse(body={})) as provider,
    ):
        yield Hosts(provider, thief)


@pytest.fixture
def hosts(servers: Hosts) -> Hosts:
    servers.provider.requests.clear()
    servers.thief.requests.clear()
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
async def test_a_jmap_session_that_names_another_host(
    hosts: Hosts, name: str, spelling: int
) -> None:
    url = hosts.spellings("/api")[spelling]
    hosts.provider.answer = lambda _: HttpResponse(body={**SESSION, name: url})
    client = JmapClient(hosts.api)
    with pytest.raises(ProviderError):
        await JMAP[name](client)
    await client.api.close()
    assert hosts.thief.requests == []


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("path", ["/.well-known/jmap", "/api", "/blob/a1/b1", "/upload/a1"])
async def test_a_jmap_server_that_redirects_elsewhere(hosts: Hosts, path: str, status: int) -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        if request.path == path:
            return HttpResponse(status, {}, {"Location": hosts.thief.url + "/x"})
        return HttpResponse(body=SESSION)

    hosts.provider.answer = answer
    client = JmapClient(hosts.api)
    for ask in (JMAP["apiUrl"], JMAP["downloadUrl"], JMAP["uploadUrl"]):
        try:
            await ask(client)
        except (ProviderError, LookupError, AttributeError, TypeError):
            continue
    await client.api.close()
    assert hosts.thief.requests == []
    assert path in {request.path for request in hosts.provider.requests}


async def test_a_jmap_session_of_its_own_host_gets_the_token(hosts: Hosts) -> None:
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
async def test_lists_of_graph_that_go_on_elsewhere(hosts: Hosts, link: str, spelling: int) -> None:
    url = hosts.spellings("/v1.0/me/mailFolders")[spelling]
    hosts.provider.answer = lambda _: HttpResponse(body={"value": [], link: url})
    client = GraphClient(hosts.api)
    with pytest.raises(ProviderError):
        await read_delta(client, None)
    if link == "@odata.nextLink":
        with pytest.raises(ProviderError):
            await client.folders()
    with pytest.raises(ProviderError):  # as a checkpoint of an older version may have it
        await read_delta(client, url)
    await client.api.close()
    assert hosts.thief.requests == []


FILE = {"name": "a.txt", "contentType": "text/plain"}


@pytest.mark.parametrize("spelling", range(7))
async def test_an_upload_of_graph_goes_to_no_other_host(hosts: Hosts, spelling: int) -> None:
    url = hosts.spellings("/upload")[spelling]
    hosts.provider.answer = lambda _: HttpResponse(body={"uploadUrl": url})
    client = GraphClient(hosts.api)
    with pytest.raises(ProviderError):
        await client.attach("m1", FILE, b"content")
    await client.api.close()
    assert hosts.thief.requests == []


async def test_an_upload_of_graph_is_without_the_token(hosts: Hosts) -> None:
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
async def test_no_provider_sends_us_elsewhere_by_a_redirect(hosts: Hosts, status: int) -> None:
    hosts.provider.answer = lambda _: HttpResponse(status, {}, {"Location": hosts.thief.url + "/x"})
    gmail, graph = GmailClient(hosts.api), GraphClient(hosts.api)
    for ask in (gmail.profile, gmail.labels, graph.me, graph.folders):
        try:
            await ask()
        except (ProviderError, LookupError):
            continue
    await gmail.api.close()
    await graph.api.close()
    assert hosts.thief.requests == []


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
def test_hosts_that_fastmail_uses(url: str) -> None:
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
def test_hosts_that_are_not_fastmails(url: str) -> None:
    with pytest.raises(ProviderError):
        check_url(url, FASTMAIL, TOKEN_HOSTS)


def test_microsoft_takes_uploads_elsewhere_and_nothing_else() -> None:
    upload = "https://outlook.office.com/api/v2.0/Users('u')/Messages('m')/AttachmentSessions('s')"
    assert "outlook.office.com" == check_url(upload, MICROSOFT, UPLOAD_HOSTS).host
    with pytest.raises(ProviderError):
        check_url(upload, MICROSOFT, TOKEN_HOSTS)
    with pytest.raises(ProviderError):
        check_url(upload, "https://graph.example.com/v1.0", UPLOAD_HOSTS)
