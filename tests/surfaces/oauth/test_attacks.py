"""What a client, a page or a thief could try, and does not get."""

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
from tests.surfaces.oauth.conftest import CALLBACK, Program, challenge_of, decide, parameters
from tests.surfaces.oauth.test_flow import grants
from tests.surfaces.web.conftest import Office, Person, words

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


async def test_nobody_is_led_to_a_place_that_the_client_did_not_name(
    owner: Person, program: Program
) -> None:
    await program.register(HTTPS, LOOPBACK, PRIVATE)

    for name, uri in TRICKS.items():
        page = await owner.get(program.authorize_path(redirect_uri=uri))

        assert 422 == page.status_code, name
        assert "location" not in page.headers, name
        assert "evil.example" not in page.text, name
        assert "redirect_uri: not registered by this client" in words(page.text), name


async def test_a_named_place_and_any_port_on_loopback_are_led_to(
    owner: Person, program: Program
) -> None:
    await program.register(HTTPS, LOOPBACK, PRIVATE)
    ports = "http://localhost:60999/callback", "http://localhost/callback"

    for uri in (HTTPS, PRIVATE, LOOPBACK, *ports):
        answer = await decide(owner, program.authorize_path(redirect_uri=uri))
        redeemed = await program.redeem(parameters(answer)["code"], redirect_uri=uri)

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
def test_a_client_cannot_name_a_place_that_is_not_its_own(uri: str) -> None:
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


async def test_a_weaker_request_leads_back_with_an_error_once_a_person_clicks(
    office: Office, owner: Person, program: Program
) -> None:
    await program.register()

    for changed, error in WEAKER:
        path = program.authorize_path(**changed)
        page = await owner.get(path)
        forced = await owner.post(path, decision="allow", kind="read")

        assert (200, 422) == (page.status_code, forced.status_code), changed
        assert '<form class="card"' not in page.text
        assert f"{CALLBACK}?error={error}&amp;" in page.text, changed
    assert [] == await grants(office)


@pytest.mark.parametrize("named", ["{}/mcp", "{}/mcp/", None])
async def test_the_resource_is_the_same_with_a_slash_and_without(
    owner: Person, program: Program, office: Office, named: str | None
) -> None:
    resource = named and named.format(office.url)
    await program.register()

    told = parameters(await decide(owner, program.authorize_path(resource=resource)))
    redeemed = await program.redeem(told["code"], resource=resource)

    assert 200 == redeemed.status_code
    assert await program.has_access()


@pytest.mark.parametrize("verifier", [None, "", "x" * 43, "plain", "~" * 128])
async def test_a_stolen_code_is_worth_nothing_without_its_verifier(
    owner: Person, program: Program, verifier: str | None
) -> None:
    await program.register()
    code = parameters(await decide(owner, program.authorize_path()))["code"]

    stolen = await program.redeem(code, code_verifier=verifier)
    own = await program.redeem(code)

    assert (400, "invalid_grant") == (stolen.status_code, stolen.json()["error"])
    assert 200 == own.status_code


async def test_a_verifier_is_not_its_own_challenge(owner: Person, program: Program) -> None:
    await program.register()
    code = parameters(await decide(owner, program.authorize_path()))["code"]

    downgraded = await program.redeem(code, code_verifier=challenge_of(program.verifier))

    assert "invalid_grant" == downgraded.json()["error"]


async def test_a_code_injected_into_another_client_or_place_is_refused(
    office: Office, owner: Person, program: Program
) -> None:
    await program.register()
    code = parameters(await decide(owner, program.authorize_path()))["code"]
    other = Program(program.http, office.url, verifier=program.verifier)
    await other.register()

    answers = [
        await other.redeem(code),
        await program.redeem(code, redirect_uri="http://127.0.0.1:7778/callback"),
        await program.redeem(code, resource="https://other.example/mcp"),
        await program.redeem(code + "x"),
    ]

    errors = ["invalid_grant", "invalid_grant", "invalid_target", "invalid_grant"]
    assert errors == [answer.json()["error"] for answer in answers]


async def test_a_code_that_comes_again_ends_the_grant(
    office: Office, owner: Person, program: Program
) -> None:
    await program.register()
    code = parameters(await decide(owner, program.authorize_path()))["code"]
    await program.redeem(code)

    again = await program.redeem(code)

    assert "invalid_grant" == again.json()["error"]
    assert not await program.has_access()
    assert [] == await grants(office)


async def test_a_code_is_good_for_a_minute(owner: Person, program: Program, clock: Clock) -> None:
    await program.register()
    code = parameters(await decide(owner, program.authorize_path()))["code"]
    clock.now += timedelta(seconds=61)

    assert "invalid_grant" == (await program.redeem(code)).json()["error"]


async def test_a_stolen_refresh_token_ends_the_grant_whoever_is_first(
    office: Office, owner: Person, program: Program
) -> None:
    stolen = (await program.sign_in(owner))["refresh_token"]
    await program.refresh()
    newest = dict(program.tokens)

    thief = await program.refresh(stolen)

    assert (400, "invalid_grant") == (thief.status_code, thief.json()["error"])
    assert not await program.has_access(newest["access_token"])
    assert "invalid_grant" == (await program.refresh(newest["refresh_token"])).json()["error"]
    query = AuditQuery(EVERYTHING, EVERYTHING, action="end_grant", page=Slice(limit=5))
    [entry] = (await office.app.services.store.audit(query)).rows
    assert "token used twice" == entry.details["reason"]


async def test_of_two_refreshes_at_the_same_time_one_is_a_thief(
    office: Office, owner: Person, program: Program
) -> None:
    token = (await program.sign_in(owner))["refresh_token"]

    answers = await asyncio.gather(*(program.refresh(token) for _ in range(8)))

    assert 1 >= [answer.status_code for answer in answers].count(200)
    assert [] == await grants(office)


async def test_a_token_opens_nothing_but_mcp(
    office: Office, owner: Person, visitor: Person, program: Program
) -> None:
    tokens = await program.sign_in(owner, kind="agent")

    for token in (tokens["access_token"], tokens["refresh_token"]):
        rest = await program.http.get("/v1/inboxes", headers={"X-API-Key": token})
        page = await visitor.post("/signin", key=token)
        assert (401, 401) == (rest.status_code, page.status_code)
    assert 401 == (await program.call(token=tokens["refresh_token"])).status_code
    assert (
        401 == (await program.http.post(f"/mcp?access_token={tokens['access_token']}")).status_code
    )


async def test_a_token_of_another_resource_is_refused(
    office: Office, owner: Person, program: Program
) -> None:
    tokens = await program.sign_in(owner)
    elsewhere = {"Host": f"localhost:{office.url.rpartition(':')[2]}"}

    used = await program.http.post(
        "/mcp", headers={**elsewhere, "Authorization": f"Bearer {tokens['access_token']}"}
    )
    refreshed = await program.http.post(
        "/token",
        headers=elsewhere,
        data={"grant_type": "refresh_token", "client_id": program.client_id,
              "refresh_token": tokens["refresh_token"]},
    )  # fmt: skip

    assert (401, 400) == (used.status_code, refreshed.status_code)
    assert "invalid_grant" == refreshed.json()["error"]
    assert await program.has_access()


async def test_a_client_that_is_not_known_is_told_to_register(
    owner: Person, program: Program
) -> None:
    program.client_id = "my-app"

    page = await owner.get(program.authorize_path())
    answers = [await program.redeem("x"), await program.redeem("x", client_id=None)]
    revoked = await program.http.post("/revoke", data={"client_id": "my-app", "token": "x"})

    assert 404 == page.status_code
    assert "no client 'my-app' has registered here" in words(page.text)
    for answer in (*answers, revoked):
        assert (401, "invalid_client") == (answer.status_code, answer.json()["error"])


async def test_consent_is_not_framed_forged_or_given_by_somebody_with_less(
    office: Office, owner: Person, visitor: Person, program: Program
) -> None:
    await program.register()
    path = program.authorize_path()
    page = await owner.get(path)
    unsigned = await visitor.get(path)
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
        async with office.visitor() as person:
            await person.sign_in(key=await office.key(*scopes, **more))
            assert 403 == (await person.get(path)).status_code
            assert 403 == (await person.post(path, **form)).status_code
    assert [] == await grants(office)


async def test_a_person_gives_no_more_than_was_asked_for_or_than_they_have(
    office: Office, owner: Person, program: Program
) -> None:
    await program.register()
    path = program.authorize_path(scope="read openid offline_access")
    page = await owner.read(path)

    beyond = await decide(owner, path, kind="organise")
    async with office.visitor() as person:
        await person.sign_in(key=await office.key("read", "admin", expires_at="1d"))
        more = await decide(person, program.authorize_path(), kind="agent")
        await program.redeem(parameters(await decide(person, path))["code"])

    assert ('value="read"' in page, 'value="agent"' in page) == (True, False)
    assert (403, 403) == (beyond.status_code, more.status_code)
    assert "read" == program.tokens["scope"]
    [key_id] = await grants(office)
    assert "Expires 2 Jun 2026" in words(await owner.read(f"/keys/{key_id}"))


@pytest.mark.parametrize(
    "form",
    [{"kind": "approve"}, {"kind": ""}, {"kind": "custom"}, {"approval": "never", "kind": "agent"}],
)
async def test_what_the_page_does_not_offer_is_refused(
    office: Office, owner: Person, program: Program, form: dict[str, str]
) -> None:
    await program.register()

    answer = await decide(owner, program.authorize_path(), **form)

    assert 422 == answer.status_code
    assert [] == await grants(office)


async def test_one_click_that_was_not_meant_gives_nothing(
    office: Office, owner: Person, program: Program
) -> None:
    await program.register()
    path = program.authorize_path(scope="read")

    page = await owner.read(path)
    answer = await owner.post(path, decision="allow")

    assert "checked> All" in page
    assert 'value="read" checked' not in page
    assert 422 == answer.status_code
    assert [] == await grants(office)


async def test_an_inbox_that_is_ticked_is_a_limit_whatever_else_is_chosen(
    office: Office, owner: Person, program: Program
) -> None:
    shop = await office.new_inbox("shop")

    await program.sign_in(owner, limit_inboxes="", inbox=shop)

    seen = (await program.call("list_inboxes")).json()["result"]["structuredContent"]["results"]
    assert [shop] == [inbox["id"] for inbox in seen]


async def test_the_words_of_a_client_are_shown_as_text(owner: Person, program: Program) -> None:
    await program.register(client_name="<b>Claude</b>\u202e\x00" + "x" * 500)

    page = await owner.read(program.authorize_path())

    assert "&lt;b&gt;Claude&lt;/b&gt;" in page
    assert "not verified" in page
    assert "\u202e" not in page
    assert "x" * 100 not in page


async def test_garbage_is_refused_by_the_registration(program: Program) -> None:
    bodies = [b"", b"{", b"[]", b"null", b'{"redirect_uris": "x"}', b'{"redirect_uris": []}',
              b"\xff", b"[" * 5_000, b'{"redirect_uris": [1]}',
              b'{"redirect_uris": ["http://a.example/"]}']  # fmt: skip

    for body in bodies:
        answer = await program.http.post("/register", content=body)

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
async def test_garbage_is_refused_by_the_token_endpoint(
    program: Program, form: dict[str, str] | list[tuple[str, str]], error: str
) -> None:
    await program.register()
    pairs = [*parse_qsl(urlencode(form)), ("client_id", program.client_id)]
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    answer = await program.http.post("/token", content=urlencode(pairs), headers=kind)

    assert (400, error) == (answer.status_code, answer.json()["error"])


async def test_too_much_is_refused(program: Program) -> None:
    answers: list[httpx2.Response] = [
        await program.http.post("/token", content=b"x" * 20_000),
        await program.http.post("/register", content=b"x" * 20_000),
        await program.http.get("/token"),
        await program.http.get("/register/more"),
    ]
    registered = [(await program.register()).status_code for _ in range(25)]

    assert [413, 413, 405, 404] == [answer.status_code for answer in answers]
    assert {201, 429} == set(registered)
