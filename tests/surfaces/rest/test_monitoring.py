"""Metrics and readiness: full details for loopback and keys, a status for others."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import httpx2
import pytest

from postroom.errors import StorageFull
from postroom.surfaces.rest.server import build
from tests.servers.postroom import running
from tests.surfaces.rest.conftest import BASE, rest_client
from tests.surfaces.rest.test_pages import UnreachableStore, with_store

REASON = "no space left on /var/lib/postroom"


@pytest.fixture(scope="module")
def server_with(tmp_path_factory):
    """Start a server; tests with the same settings share one."""
    servers = {}
    with ExitStack() as stack:

        def start(**settings):
            name = str(settings)
            if name not in servers:
                folder = tmp_path_factory.mktemp("watching") / "data"
                servers[name] = stack.enter_context(running(folder, **settings))
            return servers[name]

        yield start


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({}, {}, 200),
        ({"POSTROOM_PUBLIC_URL": "http://localhost:9999"}, {}, 200),
        ({"POSTROOM_HOST": "0.0.0.0"}, {}, 401),
        ({"POSTROOM_PUBLIC_URL": "https://mail.example.com"}, {}, 401),
        ({}, {"X-Forwarded-For": "127.0.0.1"}, 401),
        ({}, {"X-Forwarded-For": ""}, 401),
        ({}, {"X-Forwarded-Host": "localhost"}, 401),
        ({}, {"X-Real-IP": "127.0.0.1"}, 401),
        ({}, {"Forwarded": "for=127.0.0.1"}, 401),
        ({}, {"Via": "1.1 proxy"}, 401),
    ],
)
def test_metrics_need_a_key_beyond_this_machine(server_with, settings, headers, status):
    server = server_with(**settings)
    with httpx2.Client(base_url=server.url, headers=headers, timeout=60) as client:
        owner = {"Authorization": f"Bearer {server.key}"}
        inbox = client.post("/v1/inboxes", headers=owner, json={}).json()["id"]

        def scraped_with(**key):
            made = client.post("/v1/keys", headers=owner, json={"name": "x", **key}).json()["key"]
            return client.get("/metrics", headers={"X-API-Key": made}).status_code

        assert status == client.get("/metrics").status_code
        assert status == client.head("/metrics").status_code
        assert 200 == client.get("/metrics", headers=owner).status_code
        assert 200 == scraped_with(scopes=["read"])
        if status == 401:
            assert 401 == client.get("/metrics", headers={"X-API-Key": "wrong"}).status_code
            assert 403 == scraped_with(scopes=["send", "write", "admin"])
            assert 403 == scraped_with(scopes=["read"], inboxes=[inbox])
            assert 403 == scraped_with(scopes=["read"], inboxes=[])
            assert 403 == scraped_with(scopes=["read"], namespaces=["support"])
        for page in ("/healthz", "/readyz"):
            answer = client.get(page)
            assert 200 == answer.status_code
            is_told = page == "/readyz" and status == 200  # a program on this machine
            more = {"version", "installation"} if is_told else set()
            assert {"status", *more} == answer.json().keys()


PASSED_ON = """
    Forwarded Via X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Port X-Forwarded
    X-Forwarded-Server X-Forwarded-Prefix X-Real-IP CF-Connecting-IP CF-Ray True-Client-IP
    X-Client-IP X-Cluster-Client-IP X-Original-Forwarded-For Fastly-Client-IP CDN-Loop
"""


def test_any_proxy_header_means_another_machine(server_with):
    with httpx2.Client(base_url=server_with().url, timeout=60) as client:
        told = {
            name: client.get("/metrics", headers={name.lower(): "x"}).status_code
            for name in PASSED_ON.split()
        }

        assert {401} == set(told.values()), told
        assert 200 == client.get("/metrics", headers={"X-Other": "x"}).status_code


def served_everywhere(app):
    return replace(app, settings=replace(app.settings, host="0.0.0.0"))


@pytest.mark.parametrize("who", ["nobody", "a reader", "another machine"])
async def test_the_reason_of_not_ready_is_shown_to_loopback_and_keys(app, key, who):
    broken = with_store(app, UnreachableStore(StorageFull(REASON)))
    asgi = build(broken if who == "another machine" else served_everywhere(broken))
    headers = {"X-API-Key": key} if who == "a reader" else {}
    client = ("192.0.2.7", 1234) if who == "another machine" else ("127.0.0.1", 1234)
    broken.services.store.key_by_hash = app.services.store.key_by_hash

    transport = httpx2.ASGITransport(app=asgi, client=client)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as rest:
        response = await rest.get("/readyz")

    assert 503 == response.status_code
    assert ("a reader" == who) == (REASON in response.text)


async def test_a_wrong_key_shows_no_details(app):
    broken = with_store(app, UnreachableStore(StorageFull(REASON)))
    broken.services.store.key_by_hash = app.services.store.key_by_hash

    async with rest_client(served_everywhere(broken), "wrong") as rest:
        response = await rest.send("GET", "/readyz")

    assert 401 == response.status_code
    assert REASON not in response.text


async def test_the_outbox_says_whether_it_is_paused(app, rest, inbox):
    before = await rest.get("/v1/outbox")
    await rest.post("/v1/outbox/pause")
    paused = await rest.get("/v1/outbox")
    made = await rest.post("/v1/keys", name="x", scopes=["read"], inboxes=[inbox.id])
    async with rest_client(app, made["key"]) as limited:
        theirs = await limited.get("/v1/outbox")
    await rest.post("/v1/outbox/resume")
    after = await rest.get("/v1/outbox")

    told = [page["is_paused"] for page in (before, paused, theirs, after)]
    assert [False, True, True, False] == told
