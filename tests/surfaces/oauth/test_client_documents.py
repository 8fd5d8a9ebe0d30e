"""Clients that a document at their URL describes; no address of this network is asked for it."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from postroom.providers.http_clients import HttpsFetcher
from tests.surfaces.oauth.conftest import CALLBACK, Program, decide, parameters
from tests.surfaces.oauth.documents import DocumentHost
from tests.surfaces.web.conftest import Office, Person, words

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


async def test_a_client_with_a_document_is_verified_and_let_in(
    office: Office, owner: Person, program: Program, host: DocumentHost
) -> None:
    program.client_id = host.put("/client.json", redirect_uris=[CALLBACK])
    path = program.authorize_path(redirect_uri="http://127.0.0.1:4321/callback")

    page = await owner.read(path)
    told = parameters(await decide(owner, path))
    redeemed = await program.redeem(told["code"], redirect_uri="http://127.0.0.1:4321/callback")
    refreshed = await program.refresh()

    assert (200, 200) == (redeemed.status_code, refreshed.status_code)
    assert await program.has_access()
    assert f"verified as {program.client_id} describes it" in words(page)
    assert "a program on this computer (127.0.0.1:4321)" in words(page)
    assert ["/client.json"] == host.paths


async def test_a_document_is_fetched_for_nobody_but_a_person_who_may_give_access(
    office: Office, visitor: Person, program: Program, host: DocumentHost
) -> None:
    program.client_id = host.put("/client.json", redirect_uris=[CALLBACK])

    await visitor.get(program.authorize_path())
    await program.redeem("x")
    await program.http.post("/revoke", data={"client_id": program.client_id, "token": "x"})
    await visitor.sign_in(key=await office.key("read", "write", "send"))
    await visitor.get(program.authorize_path())

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
async def test_a_document_that_is_wrong_is_refused(
    owner: Person, program: Program, host: DocumentHost, document: dict[str, Any], reason: str
) -> None:
    good = {"redirect_uris": [CALLBACK]}
    program.client_id = host.put("/client.json", **good)
    host.answers["/client.json"] = _whole({"client_id": program.client_id, **good, **document})

    refused = await owner.get(program.authorize_path())
    host.put("/client.json", **good)
    corrected = await owner.get(program.authorize_path())

    assert 422 == refused.status_code
    assert reason in words(refused.text)
    assert 200 == corrected.status_code


def _whole(document: Any, status: str = "200 OK", head: str = "") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


async def test_an_answer_that_is_no_document_is_refused(
    office: Office, owner: Person, program: Program, host: DocumentHost
) -> None:
    documents = office.app.services.oauth.documents
    assert isinstance(documents, HttpsFetcher)
    object.__setattr__(office.app.services.oauth, "documents", replace(documents, timeout_s=0.3))
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
        program.client_id = f"{host.url}{path}"
        page = await owner.get(program.authorize_path())

        assert 422 == page.status_code, path
        assert "client_id: its metadata document" in words(page.text), path
        assert "127.0.0.2" not in page.text
    assert "/elsewhere" not in host.paths


async def test_no_address_of_this_network_is_asked(
    office: Office,
    owner: Person,
    program: Program,
    host: DocumentHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = office.app.services.oauth.documents
    assert isinstance(documents, HttpsFetcher)
    strict = replace(documents, guard=replace(documents.guard, allowed=()))
    object.__setattr__(office.app.services.oauth, "documents", strict)
    resolve = socket.getaddrinfo

    def rebound(name: str, *args: Any, **more: Any) -> Any:
        own = resolve("127.0.0.1", *args, **more)
        return [*resolve("93.184.215.14", *args, **more), *own] if "rebound" in name else resolve(
            name, *args, **more
        )  # fmt: skip

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    host.put("/c", redirect_uris=[CALLBACK])

    for form in PRIVATE:
        program.client_id = form.format(f":{host.port}")
        page = await owner.get(program.authorize_path())

        assert 422 == page.status_code, form
        assert "cannot be read" in words(page.text), form
    assert [] == host.paths


async def test_a_url_that_no_document_has_is_not_asked(
    owner: Person, program: Program, host: DocumentHost
) -> None:
    host.put("/ok", redirect_uris=[CALLBACK])

    for form in WRONG:
        program.client_id = form.format(f":{host.port}")
        page = await owner.get(program.authorize_path())

        assert 422 == page.status_code, form
    assert [] == host.paths
