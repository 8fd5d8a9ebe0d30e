"""Requests that other sites make a browser send, and the headers that protect our pages."""

from __future__ import annotations

import httpx2
import pytest

from tests.surfaces.web.conftest import WebInstallation, WebUser, words

FORGED = {
    "without a token": ({}, ""),
    "with a token of zeros": ({}, "0" * 64),
    "from other sites": ({"Origin": "https://evil.example"}, None),
    "from another port": ({"Origin": "http://127.0.0.1:1"}, None),
    "from nowhere": ({"Origin": "null"}, None),
    "from other sites, without an origin": ({"Sec-Fetch-Site": "cross-site"}, None),
    "from the same site, without an origin": ({"Sec-Fetch-Site": "same-site"}, None),
    "with a header of programs": (
        {"Origin": "http://127.0.0.1:1", "X-Requested-With": "x"},
        None,
    ),
    "without a word of the browser": ({}, None),
}


@pytest.mark.parametrize(("headers", "token"), FORGED.values(), ids=FORGED)
async def test_a_form_without_a_valid_token_has_no_effect(
    installation: WebInstallation, owner: WebUser, headers: dict[str, str], token: str | None
) -> None:
    message_id, sha256 = await installation.hold_with_hash()
    own = await owner.token()
    if token is None:
        del owner.http.headers["Origin"]

    answer = await owner.http.post(
        f"/outgoing/{message_id}/approve",
        data={"sha256": sha256, "csrf": own if token is None else token},
        headers=headers,
    )

    assert 403 == answer.status_code
    assert "held" == (await installation.message(message_id)).status


async def test_a_form_of_another_session_has_no_effect(
    installation: WebInstallation, owner: WebUser
) -> None:
    message_id, sha256 = await installation.hold_with_hash()
    async with installation.new_user() as other:
        await other.sign_in(key=await installation.key("read"))
        token = await other.token()

    answer = await owner.post(f"/outgoing/{message_id}/approve", token=token, sha256=sha256)

    assert 403 == answer.status_code
    assert "another session" in words(answer.text)
    assert "held" == (await installation.message(message_id)).status


async def test_a_form_in_another_format_is_refused(
    installation: WebInstallation, owner: WebUser
) -> None:
    message_id, sha256 = await installation.hold_with_hash()
    body = {"sha256": sha256, "csrf": await owner.token()}

    answers = [
        await owner.http.post(f"/outgoing/{message_id}/approve", json=body),
        await owner.http.post(f"/outgoing/{message_id}/approve", params=body),
        await owner.http.post(f"/outgoing/{message_id}/approve", content=b"\xff=1", headers={
            "Content-Type": "application/x-www-form-urlencoded"}),
    ]  # fmt: skip

    assert {400, 403} >= {answer.status_code for answer in answers}
    assert "held" == (await installation.message(message_id)).status


@pytest.mark.parametrize("path", ["/v1/outbox", "/v1/keys", "/mcp"])
async def test_the_api_does_not_accept_cookies(owner: WebUser, path: str) -> None:
    method = "POST" if path == "/mcp" else "GET"

    assert 401 == (await owner.http.request(method, path)).status_code


async def test_a_cookie_does_not_approve_over_rest(
    installation: WebInstallation, owner: WebUser
) -> None:
    message_id, sha256 = await installation.hold_with_hash()

    answer = await owner.http.post(f"/v1/outbox/{message_id}/approve", json={"sha256": sha256})

    assert 401 == answer.status_code


@pytest.mark.parametrize(
    "path", ["/", "/signin", "/outgoing", "/sessions", "/outgoing/msg_no", "/nothing/here"]
)
async def test_pages_cannot_be_framed_cached_or_leak_referrers(owner: WebUser, path: str) -> None:
    headers = (await owner.get(path)).headers

    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "nosniff" == headers["x-content-type-options"]
    assert headers["referrer-policy"] in ("same-origin", "no-referrer")
    assert "no-store" == headers["cache-control"]


async def test_a_host_that_is_not_ours_is_refused(owner: WebUser) -> None:
    """Protects against DNS rebinding."""
    response = await owner.get("/", headers={"Host": "evil.example"})

    assert 403 == response.status_code


async def test_a_form_that_is_too_large_is_refused(anonymous: WebUser) -> None:
    response = await anonymous.post("/signin", key="k" * 20_000)

    assert 413 == response.status_code


async def test_the_stylesheet_is_cacheable_under_a_versioned_url(anonymous: WebUser) -> None:
    page = (await anonymous.get("/signin")).text
    address = page.partition('rel="stylesheet" href="')[2].partition('"')[0]

    response: httpx2.Response = await anonymous.get(address)

    assert (200, "text/css; charset=utf-8") == (
        response.status_code,
        response.headers["content-type"],
    )
    assert "immutable" in response.headers["cache-control"]
    assert 404 == (await anonymous.get("/assets/../server.py")).status_code
    assert 404 == (await anonymous.get("/assets/%2e%2e%2fserver.py")).status_code


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", None])
async def test_a_page_of_another_site_cannot_sign_a_user_in(
    installation: WebInstallation, anonymous: WebUser, origin: str | None
) -> None:
    """Protects against login CSRF."""
    key = await installation.key("read")
    del anonymous.http.headers["Origin"]

    response = await anonymous.http.post(
        "/signin", data={"key": key}, headers={"Origin": origin} if origin else {}
    )

    assert 403 == response.status_code
    assert "set-cookie" not in response.headers
