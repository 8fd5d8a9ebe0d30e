"""Clients identified by a metadata document; none is fetched from private addresses."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from postroom.providers.http_clients import HttpsFetcher
from tests.surfaces.oauth.conftest import CALLBACK, OAuthClient, decide, parameters
from tests.surfaces.oauth.documents import DocumentHost
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

PRIVATE = (
    *("https://127.0.0.1{}/c", "https://localhost{}/c", "https://[::1]{}/c", "https://0.0.0.0/c"),
    *("https://[::ffff:127.0.0.1]{}/c", "https://2130706433{}/c", "https://0x7f.1{}/c"),
    *("https://127.1{}/c", "https://0177.0.0.1{}/c", "https://a.localhost{}/c"),
    *("https://169.254.169.254/latest/meta-data", "https://10.0.0.1/c", "https://192.168.1.1/c"),
    *("https://100.64.0.1/c", "https://[fe80::1]/c", "https://[fd00::1]/c", "https://[::]/c"),
    *("https://[64:ff9b::7f00:1]/c", "https://[2002:7f00:1::]/c", "https://rebound.example{}/c"),
)
WRONG = (
    *("https://localhost{}", "https://localhost{}/", "https://u:p@localhost{}/ok"),
    *("https://localhost{}/a/../ok", "https://localhost{}/%2e%2e/ok", "https://localhost{}/ok#x"),
    *("https://localhost{}\\ok", "https://localhost{}/o k", "https://localhost:99999/ok"),
    "https://localhost{}/" + "x" * 600,
)


@pytest.fixture
def settings() -> dict[str, str]:
    return {"POSTROOM_WEBHOOK_ALLOW": "127.0.0.1/32"}


async def test_a_client_with_a_document_is_verified_and_accepted(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, host: DocumentHost
) -> None:
    oauth_client.client_id = host.put("/client.json", redirect_uris=[CALLBACK])
    path = oauth_client.authorize_path(redirect_uri="http://127.0.0.1:4321/callback")

    page = await owner.read(path)
    told = parameters(await decide(owner, path))
    redeemed = await oauth_client.redeem(
        told["code"], redirect_uri="http://127.0.0.1:4321/callback"
    )
    refreshed = await oauth_client.refresh()

    assert (200, 200) == (redeemed.status_code, refreshed.status_code)
    assert await oauth_client.has_access()
    assert f"verified as {oauth_client.client_id} describes it" in words(page)
    assert "a program on this computer (127.0.0.1:4321)" in words(page)
    assert ["/client.json"] == host.paths


async def test_a_document_is_fetched_only_for_users_who_may_grant_access(
    installation: WebInstallation, anonymous: WebUser, oauth_client: OAuthClient, host: DocumentHost
) -> None:
    oauth_client.client_id = host.put("/client.json", redirect_uris=[CALLBACK])

    await anonymous.get(oauth_client.authorize_path())
    await oauth_client.redeem("x")
    await oauth_client.http.post(
        "/revoke", data={"client_id": oauth_client.client_id, "token": "x"}
    )
    await anonymous.sign_in(key=await installation.key("read", "write", "send"))
    await anonymous.get(oauth_client.authorize_path())

    assert [] == host.paths


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"client_id": "https://app.example/c"}, "names another client_id"),
        ({"redirect_uris": []}, "redirect_uris"),
        ({"redirect_uris": ["http://app.example/cb"]}, "redirect_uris"),
        ({"redirect_uris": "https://app.example/cb"}, "redirect_uris"),
        (
            {"token_endpoint_auth_method": "client_secret_post"},
            "must not contain or require a client secret",
        ),
        ({"client_secret": "x"}, "must not contain or require a client secret"),
    ],
)
async def test_an_invalid_document_is_refused(
    owner: WebUser,
    oauth_client: OAuthClient,
    host: DocumentHost,
    document: dict[str, Any],
    reason: str,
) -> None:
    good = {"redirect_uris": [CALLBACK]}
    oauth_client.client_id = host.put("/client.json", **good)
    host.answers["/client.json"] = _whole({"client_id": oauth_client.client_id, **good, **document})

    refused = await owner.get(oauth_client.authorize_path())
    host.put("/client.json", **good)
    corrected = await owner.get(oauth_client.authorize_path())

    assert 422 == refused.status_code
    assert reason in words(refused.text)
    assert 200 == corrected.status_code


def _whole(document: Any, status: str = "200 OK", head: str = "") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


async def test_a_response_that_is_no_document_is_refused(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, host: DocumentHost
) -> None:
    documents = installation.app.services.oauth.documents
    assert isinstance(documents, HttpsFetcher)
    object.__setattr__(
        installation.app.services.oauth, "documents", replace(documents, timeout_s=0.3)
    )
    elsewhere = f"Location: {host.put('/elsewhere', redirect_uris=[CALLBACK])}\r\n"
    host.answers |= {
        "/moved": _whole(b"", "302 Found", elsewhere),
        "/private": _whole(b"", "307 Temporary Redirect", "Location: https://127.0.0.2/\r\n"),
        "/huge": _whole(b"[" + b" " * 1_000_000 + b"]"),
        "/endless": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000,
        "/slow": b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n",
        "/slow-head": b"HTTP/1.1 200 OK\r\nX-Long: ",
        "/text": _whole(b"hello"),
        "/list": _whole([]),
        "/deep": _whole(b"[" * 10_000),
        "/zip": _whole(b"\x1f\x8b\x08\x00", head="Content-Encoding: gzip\r\n"),
        "/not-http": b"\x00" * 100,
        "/empty": b"",
    }

    for path in (*host.answers.keys() - {"/elsewhere"}, "/missing"):
        oauth_client.client_id = f"{host.url}{path}"
        page = await owner.get(oauth_client.authorize_path())

        assert 422 == page.status_code, path
        assert "client_id: its metadata document" in words(page.text), path
        assert "127.0.0.2" not in page.text
    assert "/elsewhere" not in host.paths


async def test_no_private_address_is_contacted(
    installation: WebInstallation,
    owner: WebUser,
    oauth_client: OAuthClient,
    host: DocumentHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = installation.app.services.oauth.documents
    assert isinstance(documents, HttpsFetcher)
    strict = replace(documents, guard=replace(documents.guard, allowed=()))
    object.__setattr__(installation.app.services.oauth, "documents", strict)
    resolve = socket.getaddrinfo

    def rebound(name: str, *args: Any, **more: Any) -> Any:
        own = resolve("127.0.0.1", *args, **more)
        return [*resolve("93.184.215.14", *args, **more), *own] if "rebound" in name else resolve(
            name, *args, **more
        )  # fmt: skip

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    host.put("/c", redirect_uris=[CALLBACK])

    for form in PRIVATE:
        oauth_client.client_id = form.format(f":{host.port}")
        page = await owner.get(oauth_client.authorize_path())

        assert 422 == page.status_code, form
        assert "cannot be read" in words(page.text), form
    assert [] == host.paths


async def test_an_invalid_document_url_is_not_requested(
    owner: WebUser, oauth_client: OAuthClient, host: DocumentHost
) -> None:
    host.put("/ok", redirect_uris=[CALLBACK])

    for form in WRONG:
        oauth_client.client_id = form.format(f":{host.port}")
        page = await owner.get(oauth_client.authorize_path())

        assert 422 == page.status_code, form
    assert [] == host.paths
