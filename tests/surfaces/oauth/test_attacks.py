"""Attacks by clients, web pages and thieves, all of which fail."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode

import httpx2
import pytest

from postroom.calls.oauth import checked_redirects
from postroom.errors import InvalidInput
from postroom.model.event import AuditQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from tests.pipeline.clock import Clock
from tests.surfaces.oauth.conftest import CALLBACK, OAuthClient, challenge_of, decide, parameters
from tests.surfaces.oauth.test_flow import grants
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

HTTPS, LOOPBACK = "https://app.example/callback?tab=1", "http://localhost:1234/callback"
PRIVATE = "cursor://anysphere.cursor-mcp/oauth/callback"
TRICKS = {
    "another host": "https://evil.example/callback?tab=1",
    "a subdomain": "https://x.app.example/callback?tab=1",
    "a longer domain": "https://app.example.evil.example/callback?tab=1",
    "a user before the host": "https://app.example@evil.example/callback?tab=1",
    "a user at the host": "https://evil.example@app.example/callback?tab=1",
    "a backslash": "https://evil.example\\@app.example/callback?tab=1",
    "a longer path": f"{HTTPS}/../../open",
    "a path above": "https://app.example/callback/../redirect?tab=1",
    "another case of the path": "https://app.example/Callback?tab=1",
    "another case of the scheme": "HTTPS://app.example/callback?tab=1",
    "another case of the host": "https://APP.example/callback?tab=1",
    "no TLS": "http://app.example/callback?tab=1",
    "a port": "https://app.example:8443/callback?tab=1",
    "the default port": "https://app.example:443/callback?tab=1",
    "one more parameter": f"{HTTPS}&next=https://evil.example",
    "no parameter": "https://app.example/callback",
    "a fragment": f"{HTTPS}#@evil.example",
    "an encoded slash": "https://app.example%2fcallback?tab=1",
    "a line end": f"{HTTPS}\r\nLocation: https://evil.example",
    "a tab": "https://app.example/\tcallback?tab=1",
    "a full-width dot": "https://app\uff0eexample/callback?tab=1",
    "a script": "javascript:alert(1)//callback",
    "data": "data:text/html,<script>alert(1)</script>",
    "no scheme": "//app.example/callback?tab=1",
    "another path on loopback": "http://localhost:1234/other",
    "another loopback host": "http://127.0.0.1:1234/callback",
    "a name like loopback": "http://localhost.evil.example:1234/callback",
    "a user on loopback": "http://localhost:1234@evil.example/callback",
    "TLS on loopback": "https://localhost:1234/callback",
    "no port number": "http://localhost:/callback",
    "a port that is none": "http://localhost:99999/callback",
    "another program": "vscode://anysphere.cursor-mcp/oauth/callback",
    "another path of the program": "cursor://anysphere.cursor-mcp/oauth/other",
    "nothing": "",
}


async def test_unregistered_redirect_uris_are_refused(
    owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register(HTTPS, LOOPBACK, PRIVATE)

    for name, uri in TRICKS.items():
        page = await owner.get(oauth_client.authorize_path(redirect_uri=uri))

        assert 422 == page.status_code, name
        assert "location" not in page.headers, name
        assert "evil.example" not in page.text, name
        assert "redirect_uri: not registered by this client" in words(page.text), name


async def test_registered_redirect_uris_and_any_loopback_port_are_accepted(
    owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register(HTTPS, LOOPBACK, PRIVATE)
    ports = "http://localhost:60999/callback", "http://localhost/callback"

    for uri in (HTTPS, PRIVATE, LOOPBACK, *ports):
        answer = await decide(owner, oauth_client.authorize_path(redirect_uri=uri))
        redeemed = await oauth_client.redeem(parameters(answer)["code"], redirect_uri=uri)

        assert answer.headers["location"].startswith(f"{uri}{'&' if '?' in uri else '?'}code=")
        assert 200 == redeemed.status_code


PLACES = (
    *("http://app.example/cb", "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd"),
    *("https://app.example/cb#x", "https://u:p@app.example/cb", "https:///cb", "cb", "", "a b"),
    *("myapp://callback", "blob:https://app.example/x", "http://127.0.0.2/cb", "https://a;b/c"),
    *("http://localhost.evil.example/", "https://app.example/\ncb", "https://app.example:0/"),
    *("view-source:https://app.example/", "https://app.example/" + "x" * 1_000),
)


@pytest.mark.parametrize("uri", PLACES)
def test_a_client_cannot_register_a_foreign_redirect_uri(uri: str) -> None:
    with pytest.raises(InvalidInput, match="redirect_uris"):
        checked_redirects({"redirect_uris": ["https://app.example/cb", uri]})


WEAKER: tuple[tuple[dict[str, str | None], str], ...] = (
    ({"code_challenge": None}, "invalid_request"),
    ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
    ({"code_challenge_method": None}, "invalid_request"),
    ({"code_challenge_method": "plain"}, "invalid_request"),
    ({"code_challenge_method": "s256"}, "invalid_request"),
    ({"code_challenge": "short"}, "invalid_request"),
    ({"code_challenge": challenge_of("x") + "="}, "invalid_request"),
    ({"response_type": "token"}, "unsupported_response_type"),
    ({"response_type": None}, "unsupported_response_type"),
    ({"resource": "https://other.example/mcp"}, "invalid_target"),
)


async def test_an_invalid_request_redirects_with_an_error_after_a_click(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()

    for changed, error in WEAKER:
        path = oauth_client.authorize_path(**changed)
        page = await owner.get(path)
        forced = await owner.post(path, decision="allow", kind="read")

        assert (200, 422) == (page.status_code, forced.status_code), changed
        assert '<form class="card"' not in page.text
        assert f"{CALLBACK}?error={error}&amp;" in page.text, changed
    assert [] == await grants(installation)


@pytest.mark.parametrize("named", ["{}/mcp", "{}/mcp/", None])
async def test_the_resource_may_end_in_a_slash(
    owner: WebUser, oauth_client: OAuthClient, installation: WebInstallation, named: str | None
) -> None:
    resource = named and named.format(installation.url)
    await oauth_client.register()

    told = parameters(await decide(owner, oauth_client.authorize_path(resource=resource)))
    redeemed = await oauth_client.redeem(told["code"], resource=resource)

    assert 200 == redeemed.status_code
    assert await oauth_client.has_access()


@pytest.mark.parametrize("verifier", [None, "", "x" * 43, "plain", "~" * 128])
async def test_a_stolen_code_is_refused_without_its_verifier(
    owner: WebUser, oauth_client: OAuthClient, verifier: str | None
) -> None:
    await oauth_client.register()
    code = parameters(await decide(owner, oauth_client.authorize_path()))["code"]

    stolen = await oauth_client.redeem(code, code_verifier=verifier)
    own = await oauth_client.redeem(code)

    assert (400, "invalid_grant") == (stolen.status_code, stolen.json()["error"])
    assert 200 == own.status_code


async def test_a_verifier_is_not_its_own_challenge(
    owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()
    code = parameters(await decide(owner, oauth_client.authorize_path()))["code"]

    downgraded = await oauth_client.redeem(code, code_verifier=challenge_of(oauth_client.verifier))

    assert "invalid_grant" == downgraded.json()["error"]


async def test_a_code_of_another_client_or_redirect_uri_is_refused(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()
    code = parameters(await decide(owner, oauth_client.authorize_path()))["code"]
    other = OAuthClient(oauth_client.http, installation.url, verifier=oauth_client.verifier)
    await other.register()

    answers = [
        await other.redeem(code),
        await oauth_client.redeem(code, redirect_uri="http://127.0.0.1:7778/callback"),
        await oauth_client.redeem(code, resource="https://other.example/mcp"),
        await oauth_client.redeem(code + "x"),
    ]

    errors = ["invalid_grant", "invalid_grant", "invalid_target", "invalid_grant"]
    assert errors == [answer.json()["error"] for answer in answers]


async def test_a_reused_code_ends_the_grant(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()
    code = parameters(await decide(owner, oauth_client.authorize_path()))["code"]
    await oauth_client.redeem(code)

    again = await oauth_client.redeem(code)

    assert "invalid_grant" == again.json()["error"]
    assert not await oauth_client.has_access()
    assert [] == await grants(installation)


async def test_a_code_expires_after_a_minute(
    owner: WebUser, oauth_client: OAuthClient, clock: Clock
) -> None:
    await oauth_client.register()
    code = parameters(await decide(owner, oauth_client.authorize_path()))["code"]
    clock.now += timedelta(seconds=61)

    assert "invalid_grant" == (await oauth_client.redeem(code)).json()["error"]


async def test_a_reused_refresh_token_ends_the_grant(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    stolen = (await oauth_client.sign_in(owner))["refresh_token"]
    await oauth_client.refresh()
    newest = dict(oauth_client.tokens)

    thief = await oauth_client.refresh(stolen)

    assert (400, "invalid_grant") == (thief.status_code, thief.json()["error"])
    assert not await oauth_client.has_access(newest["access_token"])
    assert "invalid_grant" == (await oauth_client.refresh(newest["refresh_token"])).json()["error"]
    query = AuditQuery(EVERYTHING, EVERYTHING, action="end_grant", page=Slice(limit=5))
    [entry] = (await installation.app.services.store.audit(query)).rows
    assert "token used twice" == entry.details["reason"]


async def test_two_concurrent_refreshes_end_the_grant(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    token = (await oauth_client.sign_in(owner))["refresh_token"]

    answers = await asyncio.gather(*(oauth_client.refresh(token) for _ in range(8)))

    assert 1 >= [answer.status_code for answer in answers].count(200)
    assert [] == await grants(installation)


async def test_a_token_is_valid_for_mcp_only(
    installation: WebInstallation, owner: WebUser, anonymous: WebUser, oauth_client: OAuthClient
) -> None:
    tokens = await oauth_client.sign_in(owner, kind="agent")

    for token in (tokens["access_token"], tokens["refresh_token"]):
        rest = await oauth_client.http.get("/v1/inboxes", headers={"X-API-Key": token})
        page = await anonymous.post("/signin", key=token)
        assert (401, 401) == (rest.status_code, page.status_code)
    assert 401 == (await oauth_client.call(token=tokens["refresh_token"])).status_code
    assert (
        401
        == (await oauth_client.http.post(f"/mcp?access_token={tokens['access_token']}")).status_code
    )


async def test_a_token_of_another_resource_is_refused(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    tokens = await oauth_client.sign_in(owner)
    elsewhere = {"Host": f"localhost:{installation.url.rpartition(':')[2]}"}

    used = await oauth_client.http.post(
        "/mcp", headers={**elsewhere, "Authorization": f"Bearer {tokens['access_token']}"}
    )
    refreshed = await oauth_client.http.post(
        "/token",
        headers=elsewhere,
        data={"grant_type": "refresh_token", "client_id": oauth_client.client_id,
              "refresh_token": tokens["refresh_token"]},
    )  # fmt: skip

    assert (401, 400) == (used.status_code, refreshed.status_code)
    assert "invalid_grant" == refreshed.json()["error"]
    assert await oauth_client.has_access()


async def test_an_unknown_client_is_told_to_register(
    owner: WebUser, oauth_client: OAuthClient
) -> None:
    oauth_client.client_id = "my-app"

    page = await owner.get(oauth_client.authorize_path())
    answers = [await oauth_client.redeem("x"), await oauth_client.redeem("x", client_id=None)]
    revoked = await oauth_client.http.post("/revoke", data={"client_id": "my-app", "token": "x"})

    assert 404 == page.status_code
    assert "no client 'my-app' has registered here" in words(page.text)
    for answer in (*answers, revoked):
        assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])


async def test_consent_cannot_be_framed_forged_or_given_without_the_rights(
    installation: WebInstallation, owner: WebUser, anonymous: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()
    path = oauth_client.authorize_path()
    page = await owner.get(path)
    unsigned = await anonymous.get(path)
    form = {"decision": "allow", "kind": "read"}

    forged = [
        await owner.post(path, token="0" * 128, **form),
        await owner.http.post(path, data=form),
        await owner.http.post(path, data={**form, "csrf": await owner.token()},
                              headers={"Origin": "https://evil.example"}),
    ]  # fmt: skip

    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' http://127.0.0.1:7777;" in policy
    assert "DENY" == page.headers["x-frame-options"]
    assert "/signin?next=/authorize%3F" in unsigned.headers["location"]
    assert [403, 403, 403] == [answer.status_code for answer in forged]
    for scopes, more in ((["read", "write", "send"], {}), (["read", "admin"], {"inboxes": []})):
        async with installation.new_user() as person:
            await person.sign_in(key=await installation.key(*scopes, **more))
            assert 403 == (await person.get(path)).status_code
            assert 403 == (await person.post(path, **form)).status_code
    assert [] == await grants(installation)


async def test_consent_is_limited_to_the_request_and_to_the_users_rights(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()
    path = oauth_client.authorize_path(scope="read openid offline_access")
    page = await owner.read(path)

    beyond = await decide(owner, path, kind="organise")
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", "admin", expires_at="1d"))
        more = await decide(person, oauth_client.authorize_path(), kind="agent")
        await oauth_client.redeem(parameters(await decide(person, path))["code"])

    assert ('value="read"' in page, 'value="agent"' in page) == (True, False)
    assert (403, 403) == (beyond.status_code, more.status_code)
    assert "read" == oauth_client.tokens["scope"]
    [key_id] = await grants(installation)
    assert "Expires 2 Jun 2026" in words(await owner.read(f"/keys/{key_id}"))


@pytest.mark.parametrize(
    "form",
    [{"kind": "approve"}, {"kind": ""}, {"kind": "custom"}, {"approval": "never", "kind": "agent"}],
)
async def test_choices_that_the_page_does_not_offer_are_refused(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient, form: dict[str, str]
) -> None:
    await oauth_client.register()

    answer = await decide(owner, oauth_client.authorize_path(), **form)

    assert 422 == answer.status_code
    assert [] == await grants(installation)


async def test_an_accidental_click_grants_nothing(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    await oauth_client.register()
    path = oauth_client.authorize_path(scope="read")

    page = await owner.read(path)
    answer = await owner.post(path, decision="allow")

    assert "checked> All" in page
    assert 'value="read" checked' not in page
    assert 422 == answer.status_code
    assert [] == await grants(installation)


async def test_a_chosen_inbox_always_limits_the_grant(
    installation: WebInstallation, owner: WebUser, oauth_client: OAuthClient
) -> None:
    shop = await installation.new_inbox("shop")

    await oauth_client.sign_in(owner, limit_inboxes="", inbox=shop)

    seen = (await oauth_client.call("list_inboxes")).json()["result"]["structuredContent"][
        "results"
    ]
    assert [shop] == [inbox["id"] for inbox in seen]


async def test_the_name_of_a_client_is_escaped(owner: WebUser, oauth_client: OAuthClient) -> None:
    await oauth_client.register(client_name="<b>Claude</b>\u202e\x00" + "x" * 500)

    page = await owner.read(oauth_client.authorize_path())

    assert "&lt;b&gt;Claude&lt;/b&gt;" in page
    assert "not verified" in page
    assert "\u202e" not in page
    assert "x" * 100 not in page


async def test_invalid_registrations_are_refused(oauth_client: OAuthClient) -> None:
    bodies = [b"", b"{", b"[]", b"null", b'{"redirect_uris": "x"}', b'{"redirect_uris": []}',
              b"\xff", b"[" * 5_000, b'{"redirect_uris": [1]}',
              b'{"redirect_uris": ["http://a.example/"]}']  # fmt: skip

    for body in bodies:
        answer = await oauth_client.http.post("/register", content=body)

        assert 400 == answer.status_code, body
        assert answer.json()["error"].startswith("invalid_"), body


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({}, "unsupported_grant_type"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "authorization_code"}, "invalid_request"),
        ({"grant_type": "refresh_token", "refresh_token": "\x00"}, "invalid_grant"),
        ([("grant_type", "refresh_token"), ("refresh_token", "a"), ("refresh_token", "b")],
         "invalid_request"),
    ],
)  # fmt: skip
async def test_invalid_token_requests_are_refused(
    oauth_client: OAuthClient, form: dict[str, str] | list[tuple[str, str]], error: str
) -> None:
    await oauth_client.register()
    pairs = [*parse_qsl(urlencode(form)), ("client_id", oauth_client.client_id)]
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    answer = await oauth_client.http.post("/token", content=urlencode(pairs), headers=kind)

    assert (400, error) == (answer.status_code, answer.json()["error"])


async def test_requests_over_the_limits_are_refused(oauth_client: OAuthClient) -> None:
    answers: list[httpx2.Response] = [
        await oauth_client.http.post("/token", content=b"x" * 20_000),
        await oauth_client.http.post("/register", content=b"x" * 20_000),
        await oauth_client.http.get("/token"),
        await oauth_client.http.get("/register/more"),
    ]
    registered = [(await oauth_client.register()).status_code for _ in range(25)]

    assert [413, 413, 405, 404] == [answer.status_code for answer in answers]
    assert {201, 429} == set(registered)
