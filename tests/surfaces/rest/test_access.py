"""Access control: keys, scopes, hosts and origins."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest

from postroom.config import ConfigError
from postroom.surfaces.rest.server import build
from tests.mails import new_inbox
from tests.surfaces.rest.conftest import BASE, rest_client


def bound_to(app, **settings):
    return replace(app, settings=replace(app.settings, **settings))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic b3duZXI6a2V5"},
        {"X-API-Key": "wrong"},
        {"X-API-Key": ""},
        {"Authorization": "Bearer \xe9"},
    ],
)
async def test_a_request_without_a_key_is_refused(app, key, headers):
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    async with rest_client(app, None) as rest:
        response = await rest.send("GET", "/v1/inboxes", headers=raw)

    assert 401 == response.status_code
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert "unauthenticated" == response.json()["code"]


@pytest.mark.parametrize("header", ["Authorization: Bearer {}", "authorization: bearer {}",
                                    "X-API-Key: {}"])  # fmt: skip
async def test_a_key_may_be_in_either_header(app, key, header):
    name, value = header.format(key).split(": ")

    async with rest_client(app, None) as rest:
        response = await rest.send("GET", "/v1/inboxes", headers={name: value})

    assert 200 == response.status_code


async def test_a_proxy_may_use_authorization_for_itself(app, key):
    both = {"Authorization": "Basic cHJveHk6eA==", "X-API-Key": key}

    async with rest_client(app, None) as rest:
        assert 200 == (await rest.send("GET", "/v1/inboxes", headers=both)).status_code


async def test_a_revoked_key_is_refused_at_once(app, rest):
    made = await rest.post("/v1/keys", name="crm")
    await rest.ask("DELETE", f"/v1/keys/{made['id']}")

    async with rest_client(app, made["key"]) as other:
        assert "unauthenticated" == (await other.problem("GET", "/v1/inboxes"))["code"]


async def test_a_key_without_the_scope_is_forbidden(app, rest):
    made = await rest.post("/v1/keys", name="reader", scopes=["read"])

    async with rest_client(app, made["key"]) as reader:
        problem = await reader.problem("POST", "/v1/inboxes", json={})

    assert (403, "forbidden") == (problem["status"], problem["code"])
    assert "write" in problem["detail"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8700", 200),
        ("127.0.0.1", 200),
        ("127.1.2.3", 200),
        ("localhost:8700", 200),
        ("LOCALHOST", 200),
        ("postroom.localhost", 200),
        ("[::1]:8700", 200),
        ("evil.example", 403),
        ("evil.example:8700", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.5", 403),
        ("[::1", 403),
        ("", 403),
        ("a b", 403),
    ],
)
async def test_only_our_host_names_are_answered(rest, host, status):
    response = await rest.send("GET", "/v1/inboxes", headers={"Host": host})

    assert status == response.status_code


async def test_the_public_url_and_the_bound_name_are_accepted(app, key):
    ours = bound_to(app, host="mail.internal", public_url="https://mail.example.com")

    async with rest_client(ours, key) as rest:
        for host in ("mail.internal:8700", "mail.example.com"):
            assert 200 == (await rest.send("GET", "/healthz", headers={"Host": host})).status_code


async def test_bound_to_everywhere_any_address_but_no_unknown_name_is_answered(app, key):
    async with rest_client(bound_to(app, host="0.0.0.0"), key) as rest:
        address = await rest.send("GET", "/healthz", headers={"Host": "192.168.1.5:8700"})
        name = await rest.send("GET", "/healthz", headers={"Host": "evil.example"})

    assert (200, 403) == (address.status_code, name.status_code)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8700", 200),
        ("http://localhost:3000", 200),
        ("https://evil.example", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("null", 403),
        ("", 403),
        ("chrome-extension://abcdef", 403),
    ],
)
@pytest.mark.parametrize("path", ["/v1/inboxes", "/healthz", "/nowhere"])
async def test_other_origins_are_refused(rest, origin, status, path):
    response = await rest.send("GET", path, headers={"Origin": origin})

    assert (403 == status) == (403 == response.status_code)


async def test_without_auth_loopback_has_the_owners_rights(app):
    async with rest_client(app, None, asgi=build(app, no_auth=True)) as rest:
        assert 200 == (await rest.send("GET", "/v1/keys")).status_code


@pytest.mark.parametrize("form", ["Authorization: Bearer {}", "X-API-Key: {}"])
async def test_without_auth_a_given_key_is_used(app, ctx, rest, form):
    own = await new_inbox(ctx, "own")
    other = await new_inbox(ctx, "other")
    made = await rest.post("/v1/keys", name="k", scopes=["read"], inboxes=[own.id])
    name, value = form.format(made["key"]).split(": ")
    async with rest_client(app, None, asgi=build(app, no_auth=True), **{name: value}) as limited:
        seen = await limited.get("/v1/inboxes")
        told = [
            (await limited.send(*asked)).status_code
            for asked in (
                ("GET", f"/v1/inboxes/{other.id}"),
                ("POST", "/v1/inboxes"),
                ("GET", "/v1/keys"),
            )
        ]

    assert [own.id] == [inbox["id"] for inbox in seen["results"]]
    assert [404, 403, 403] == told


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": ""},
        {"Authorization": "Basic b3duZXI6a2V5"},
        {"Authorization": "wrong"},
        {"X-API-Key": "wrong"},
        {"X-API-Key": ""},
    ],
)
async def test_without_auth_an_unknown_key_is_refused(app, headers):
    async with rest_client(app, None, asgi=build(app, no_auth=True), **headers) as rest:
        response = await rest.send("POST", "/v1/inboxes", json={})

    assert 401 == response.status_code


async def test_without_auth_other_machines_are_refused(app):
    transport = httpx2.ASGITransport(app=build(app, no_auth=True), client=("192.168.1.7", 1234))
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        assert 401 == (await client.get("/v1/keys")).status_code


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "mail.example.com"])
async def test_without_auth_only_loopback_can_be_bound(app, host):
    with pytest.raises(ConfigError, match="loopback only"):
        build(bound_to(app, host=host), no_auth=True)
