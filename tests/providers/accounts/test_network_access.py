"""An account that a key adds connects only to public mail servers, and reveals no
private network.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import InvalidInput, MailError, ProviderAuthFailed, ProviderError
from postroom.model.account import PublicNetworks
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.model.key import AGENT, OWNER, Caller
from postroom.operations.accounts import add_account, log_in_account
from postroom.operations.imap.accounts import verify_live_account
from postroom.pipeline.sync import sync_once
from postroom.providers.imap.errors import Unreachable
from postroom.providers.imap.pool import connect
from tests.callers import a_caller
from tests.pipeline.test_webhook_addresses import PRIVATE
from tests.servers.imap_script import scripted
from tests.servers.ports import free_port
from tests.servers.postroom import running

KEY = a_caller("key_1")
OWNERS_KEY = replace(a_caller("owner"), is_owner=True)
ACCOUNT: dict[str, Any] = {
    "account_id": "work",
    "provider": "imap",
    "address": "alice@example.com",
    "password": "secret",
}
LOOPBACK = "127.0.0.0/8,::1/128"
HERE = PublicNetworks((ip_network("127.0.0.0/8"),))
HOSTS = [host.strip("[]").replace("%25", "%") for host in PRIVATE] + [
    "localhost", "LOCALHOST", "localhost.", "mail.localhost", "ip6-localhost.localhost",
]  # fmt: skip


@asynccontextmanager
async def services(folder: Path, **settings: str) -> AsyncIterator[App]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file", **settings}
    async with open_app(read_settings(values).settings) as app:
        yield app


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[App]:
    """An installation without the setting `POSTROOM_ACCOUNT_ALLOW`."""
    async with services(tmp_path) as app:
        yield app


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The results of DNS lookups in order; the last one is repeated."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *given: Any, **named: Any) -> Any:
        if host not in known:
            return real(host, port, *given, **named)
        found = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return real(found, port, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


async def refusal(app: App, caller: Caller = KEY, **given: Any) -> MailError:
    with pytest.raises(MailError) as refused:
        await call(app.context(caller), add_account, {**ACCOUNT, **given})
    return refused.value


@pytest.mark.parametrize("caller", [KEY, OWNERS_KEY, AGENT])
async def test_a_key_cannot_name_a_private_host(closed: App, caller: Caller) -> None:
    public = {"host": "192.0.32.7", "port": 993}
    for host in HOSTS:
        for given in ({"host": host}, {**public, "smtp_host": host}):
            assert isinstance(await refusal(closed, caller, **given), InvalidInput), given


@pytest.mark.parametrize("port", [1, 22, 80, 110, 443, 995, 3306, 6379, 8025, 65535])
async def test_a_key_can_name_mail_ports_only(closed: App, port: int) -> None:
    for given in ({"port": port}, {"smtp_host": "smtp.example.com", "smtp_port": port}):
        error = await refusal(closed, host="imap.example.com", **given)
        assert isinstance(error, InvalidInput)
        assert "port: must be one of" in str(error)


async def test_a_key_cannot_name_files(closed: App, tmp_path: Path) -> None:
    (tmp_path / "some.pem").write_text("x")
    paths = ["some.pem", "none.pem", ".", "../../etc/passwd", "/etc/shadow"]
    said = {
        str(await refusal(closed, host="imap.example.com", ca_file=str(tmp_path / path)))
        for path in paths
    }
    assert len(said) == 1
    assert said.pop().startswith("ca_file: ")


async def test_a_name_with_a_private_address_is_reported_as_unknown(
    closed: App, lookups: dict[str, list[str]]
) -> None:
    lookups |= {f"{n}.example.com": [host] for n, host in enumerate(["127.0.0.1", "10.0.0.1"])}
    lookups["2.example.com"] = ["169.254.169.254"]
    lookups["3.example.com"] = ["::ffff:127.0.0.1"]
    names = [*lookups, "nowhere.invalid", "a" * 64 + ".example.com"]
    errors = [(await refusal(closed, host=name), name) for name in names]

    assert {"provider_error"} == {error.code for error, _ in errors}
    assert 1 == len({str(error).replace(name, "HOST") for error, name in errors})


@asynccontextmanager
async def server_with_greeting(words: bytes | None) -> AsyncIterator[int]:
    """A server that sends a line and closes; with None it sends nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if words is None:
            await reader.read()
        else:
            writer.write(words)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


BANNERS = [
    b"SSH-2.0-OpenSSH_9.9 canary\r\n", b"HTTP/1.1 400 canary\r\n\r\n", b"", b"\x16\x03\x01\x00",
    b"220 canary ESMTP\r\n", b"* BYE canary\r\n", b"* PREAUTH canary\r\n", b"* NO canary\r\n",
    b"* OK canary\r\n", b"-ERR canary\r\n", b"554 canary\r\n",
]  # fmt: skip


async def test_errors_do_not_reveal_what_listens_on_a_port(tmp_path: Path) -> None:
    """Not even in allowed networks: the error is always the same."""
    clear = {"host": "127.0.0.1", "security": "none", "insecure": True}
    missing = {"host": "127.0.0.1", "ca_file": str(tmp_path / "none.pem")}
    said = set()
    async with services(tmp_path / "data", POSTROOM_ACCOUNT_ALLOW=LOOPBACK) as app:

        async def tell(port: int, **given: Any) -> None:
            error = await refusal(app, port=port, **given)
            said.add((error.code, error.retryable, str(error).replace(str(port), "PORT")))

        await tell(free_port(), **clear)
        await tell(free_port(), **missing)
        for words in BANNERS:
            async with server_with_greeting(words) as port:
                await tell(port, **clear)
                await tell(port, host="127.0.0.1")
                await tell(port, **missing)
    assert len(said) == 1, said
    assert "canary" not in str(said)


async def test_errors_do_not_reveal_what_listens_on_an_smtp_port(tmp_path: Path) -> None:
    said = set()
    async with (
        scripted() as server,
        services(tmp_path / "data", POSTROOM_ACCOUNT_ALLOW=LOOPBACK) as app,
    ):
        imap = {"host": "127.0.0.1", "port": server.port, "security": "none", "insecure": True}
        for words in [*BANNERS, None]:
            async with server_with_greeting(words) as port:
                port = free_port() if words is None else port
                for security in ("none", "tls", "starttls"):
                    smtp = {"smtp_host": "127.0.0.1", "smtp_port": port}
                    error = await refusal(app, **imap, **smtp, smtp_security=security)
                    assert isinstance(error, ProviderError)
                    said.add((error.code, str(error).replace(str(port), "PORT")))
    assert len(said) == 1, said
    assert "canary" not in str(said)


async def test_a_silent_port_is_reported_like_a_closed_one() -> None:
    timeouts = ImapTimeouts(connect_s=0.2, greeting_s=0.2)
    said = set()
    async with server_with_greeting(None) as silent:
        for port in (silent, free_port()):
            account = ImapAccount("work", "127.0.0.1", "a", "b", port, "none", network_policy=HERE)
            with pytest.raises(Unreachable) as refused:
                await connect(account, timeouts)
            said.add(str(refused.value).replace(str(port), "PORT"))
    assert len(said) == 1


async def test_a_refused_login_is_reported_without_the_servers_text(tmp_path: Path) -> None:
    replies = {"LOGIN": b"{tag} NO [AUTHENTICATIONFAILED] canary\r\n"}
    async with (
        scripted(replies=replies) as server,
        services(tmp_path, POSTROOM_ACCOUNT_ALLOW=LOOPBACK) as app,
    ):
        clear = {"host": "127.0.0.1", "security": "none", "insecure": True}
        error = await refusal(app, port=server.port, **clear)
    assert isinstance(error, ProviderAuthFailed)
    assert "canary" not in str(error)


async def test_an_account_of_a_key_is_checked_at_each_connection(tmp_path: Path) -> None:
    """When it is synced, verified or logged in again; its name may resolve differently by then."""
    async with scripted() as server:
        async with services(tmp_path, POSTROOM_ACCOUNT_ALLOW=LOOPBACK) as app:
            clear = {**ACCOUNT, "host": "127.0.0.1", "port": server.port}
            clear |= {"security": "none", "insecure": True}
            account = await call(app.context(KEY), add_account, clear)
            assert await sync_once(app.services, account)
        received = len(server.lines)
        async with services(tmp_path) as app:  # the network is no longer allowed
            with pytest.raises(ProviderError, match="could not connect"):
                await sync_once(app.services, account)
            seen = await call(app.context(KEY), verify_live_account, {"account_id": "work"})
            assert "could not connect" in seen.issues[0].message
            login = {"account_id": "work", "password": "other"}
            with pytest.raises(InvalidInput, match="not on the public Internet"):
                await call(app.context(KEY), log_in_account, login)
        assert received == len(server.lines)


async def test_the_connection_uses_the_checked_address(
    tmp_path: Path, lookups: dict[str, list[str]]
) -> None:
    """A second lookup would return another address."""
    async with scripted() as server:
        lookups["mail.example.com"] = ["127.0.0.1", "127.0.0.99"]
        account = ImapAccount(
            "work", "mail.example.com", "a", "b", server.port, "none", network_policy=HERE
        )
        client = await connect(account, ImapTimeouts())
        client.connection.close("done")
    assert lookups["mail.example.com"] == ["127.0.0.99"]


async def test_one_private_address_among_several_is_refused(
    closed: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(socket.AF_INET, 1, 6, "", (ip, 993)) for ip in ("192.0.32.7", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    assert "could not connect" in str(await refusal(closed, host="mail.example.com"))


async def test_the_owner_at_the_terminal_may_name_any_host(tmp_path: Path) -> None:
    """Accounts added there, or by an earlier version, keep working for every caller."""
    async with scripted() as server:
        clear = {"host": "127.0.0.1", "port": server.port, "security": "none", "insecure": True}
        async with services(tmp_path) as app:
            account = await call(app.context(OWNER), add_account, {**ACCOUNT, **clear})
            assert await sync_once(app.services, account)
            login = {"account_id": "work", "password": "other"}
            assert await call(app.context(KEY), log_in_account, login)
        async with services(tmp_path) as app:
            seen = await call(app.context(KEY), verify_live_account, {"account_id": "work"})
            assert not seen.issues


async def test_allowing_a_network_does_not_allow_other_ports_of_public_hosts(
    tmp_path: Path,
) -> None:
    async with services(tmp_path, POSTROOM_ACCOUNT_ALLOW="10.0.0.0/8") as app:
        assert isinstance(await refusal(app, host="192.0.32.7", port=22), InvalidInput)
        assert isinstance(await refusal(app, host="127.0.0.1", port=993), InvalidInput)


async def test_the_owners_key_over_rest_is_limited_too(tmp_path: Path) -> None:
    """The owner's key is a key: others may have it."""
    refused = [
        {"host": "127.0.0.1"},
        {"host": "169.254.169.254"},
        {"host": "imap.example.com", "port": 22},
        {"host": "imap.example.com", "smtp_host": "::ffff:10.0.0.1"},
        {"host": "imap.example.com", "ca_file": "/etc/passwd"},
    ]
    with running(tmp_path / "data", POSTROOM_SECRETS="file") as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=120) as http:
            answers = [await http.post("/v1/accounts", json={**ACCOUNT, **g}) for g in refused]
            unknown = await http.post("/v1/accounts", json={**ACCOUNT, "host": "nowhere.invalid"})
    assert [422] * len(refused) == [answer.status_code for answer in answers]
    assert (502, "provider_error") == (unknown.status_code, unknown.json()["code"])
    assert "could not connect to nowhere.invalid:993" in unknown.json()["detail"]
