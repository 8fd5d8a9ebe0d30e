"""Sign-in, and attacks on sessions: fixation, theft, expiry, guessing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from http.cookies import SimpleCookie

import pytest

from postroom.calls.authentication import LINK_LIFETIME, SESSION_LIFETIME
from postroom.calls.operation import call
from postroom.model.key import ALL_SCOPES
from postroom.operations.keys import delete_key, list_keys
from tests.pipeline.clock import Clock
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

PAGES = ("/", "/outgoing", "/outgoing/msg_1", "/drafts", "/drafts/drf_1", "/sessions")
FORMS = ("/outgoing/msg_1/approve", "/outgoing/msg_1/reject", "/outgoing/msg_1/edit",
         "/drafts/drf_1", "/drafts/drf_1/discard", "/signout", "/sessions/end-all",
         "/sessions/ses_1/end")  # fmt: skip


async def is_signed_in(person: WebUser) -> bool:
    return 200 == (await person.get("/")).status_code


@pytest.mark.parametrize("path", PAGES)
async def test_an_anonymous_user_is_redirected_to_sign_in_and_back(
    anonymous: WebUser, path: str
) -> None:
    response = await anonymous.get(path)

    place = "/signin" if path == "/" else f"/signin?next={path}"
    assert (303, place) == (response.status_code, response.headers["location"])
    assert "msg_1" not in response.text


@pytest.mark.parametrize("path", FORMS)
async def test_an_anonymous_user_can_change_nothing(anonymous: WebUser, path: str) -> None:
    response = await anonymous.http.post(path, data={"csrf": "0" * 64})

    assert (303, "/signin") == (response.status_code, response.headers["location"])


async def test_previewing_a_link_does_not_use_it_up(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    link = await installation.link()

    for method in ("GET", "HEAD", "GET"):
        looked = await anonymous.http.request(method, f"/signin?link={link}")
        assert 200 == looked.status_code
        assert "set-cookie" not in looked.headers
    await anonymous.sign_in(link=link)

    assert await is_signed_in(anonymous)


async def test_a_link_signs_in_once(
    installation: WebInstallation, owner: WebUser, anonymous: WebUser
) -> None:
    link = await installation.link()
    await owner.sign_in(link=link)

    again = await anonymous.post("/signin", link=link)

    assert 401 == again.status_code
    assert "postroom web" in words(again.text)
    assert "set-cookie" not in again.headers


async def test_a_sign_in_link_expires_after_ten_minutes(
    installation: WebInstallation, anonymous: WebUser, clock: Clock
) -> None:
    link = await installation.link()
    clock.now += LINK_LIFETIME

    assert 401 == (await anonymous.post("/signin", link=link)).status_code


async def test_the_cookie_is_host_only_and_http_only(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    response = await anonymous.sign_in(link=await installation.link())

    (cookie,) = SimpleCookie(response.headers["set-cookie"]).values()
    assert ("Strict", "/", True, "43200", "") == (
        cookie["samesite"],
        cookie["path"],
        cookie["httponly"],
        cookie["max-age"],
        cookie["secure"],
    )
    assert len(cookie.value) >= 43  # 256 bits
    sessions = await installation.app.services.store.web_sessions(installation.app.services.clock())
    assert cookie.value not in repr(sessions)


class TestBehindTls:
    """The public URL is https; a proxy terminates TLS."""

    @pytest.fixture
    def settings(self) -> dict[str, str]:
        return {"POSTROOM_PUBLIC_URL": "https://mail.example"}

    async def test_the_cookie_is_secure(self, installation: WebInstallation) -> None:
        async with installation.new_user(
            Origin="https://mail.example", Host="mail.example"
        ) as person:
            response = await person.sign_in(link=await installation.link())

        assert response.headers["set-cookie"].startswith("__Host-postroom=")
        assert "; Secure" in response.headers["set-cookie"]


async def test_signing_in_makes_a_new_session_and_ends_the_old_one(
    installation: WebInstallation, owner: WebUser, anonymous: WebUser
) -> None:
    """Protects against session fixation."""
    planted = owner.cookie
    anonymous.use_cookie(planted)

    await anonymous.sign_in(link=await installation.link())

    assert planted != anonymous.cookie
    assert await is_signed_in(anonymous)
    assert not await is_signed_in(owner)


@pytest.mark.parametrize("made_up", ["", "x", "../..", "0" * 43, "é" * 10])
async def test_an_invented_cookie_is_no_session(anonymous: WebUser, made_up: str) -> None:
    response = await anonymous.get("/", headers={"Cookie": f"postroom={made_up}".encode()})

    assert 303 == response.status_code


async def test_a_session_ends_after_twelve_hours_of_use(owner: WebUser, clock: Clock) -> None:
    for _ in range(11):
        clock.now += timedelta(hours=1)
        assert await is_signed_in(owner)
    clock.now += SESSION_LIFETIME - timedelta(hours=11)

    assert not await is_signed_in(owner)


async def test_signing_out_ends_this_session_only(
    installation: WebInstallation, owner: WebUser
) -> None:
    async with installation.new_user() as other:
        await other.sign_in(link=await installation.link())
        stolen = owner.cookie

        response = await owner.post("/signout")

        assert "postroom=; Max-Age=0" in response.headers["set-cookie"]
        owner.use_cookie(stolen)
        assert not await is_signed_in(owner)
        assert await is_signed_in(other)


async def test_signing_out_everywhere_ends_every_session(
    installation: WebInstallation, owner: WebUser
) -> None:
    async with installation.new_user() as other, installation.new_user() as reader:
        await other.sign_in(link=await installation.link())
        await reader.sign_in(key=await installation.key("read"))

        await owner.post("/sessions/end-all")

        assert [False] * 3 == [await is_signed_in(person) for person in (owner, other, reader)]


async def test_a_session_is_listed_and_can_be_ended(
    installation: WebInstallation, owner: WebUser
) -> None:
    async with installation.new_user(**{"User-Agent": "<b>Lynx"}) as other:
        await other.sign_in(key=await installation.key("read"))
        page = await owner.read("/sessions")
        assert "&lt;b&gt;Lynx" in page
        assert "<b>Lynx" not in page
        sessions = await installation.app.services.store.web_sessions(
            installation.app.services.clock()
        )
        (session,) = [s for s in sessions if "Lynx" in s.user_agent]

        await owner.post(f"/sessions/{session.id}/end")

        assert not await is_signed_in(other)
        assert await is_signed_in(owner)


async def test_a_person_with_a_key_cannot_end_the_sessions_of_others(
    installation: WebInstallation, owner: WebUser, anonymous: WebUser
) -> None:
    await anonymous.sign_in(key=await installation.key("read"))
    (session,) = [
        s
        for s in await installation.app.services.store.web_sessions(
            installation.app.services.clock()
        )
        if s.key_hash is None
    ]

    assert session.id not in await anonymous.read("/sessions")
    assert 404 == (await anonymous.post(f"/sessions/{session.id}/end")).status_code
    await anonymous.post("/sessions/end-all")
    assert await is_signed_in(owner)


async def test_a_session_of_a_key_ends_when_the_key_is_revoked(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    await anonymous.sign_in(key=await installation.key("read"))
    assert await is_signed_in(anonymous)

    (key,) = [k for k in (await call(installation.owner, list_keys, {})).results if k.name == "k"]
    await call(installation.owner, delete_key, {"key_id": key.id})

    assert not await is_signed_in(anonymous)


async def test_a_session_of_the_owners_key_does_not_approve_mail(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    message_id, sha256 = await installation.hold_with_hash()
    secret = await installation.app.owner_key() or ""
    await anonymous.sign_in(key=secret)

    page = await anonymous.read(f"/outgoing/{message_id}")
    answers = [
        await anonymous.post(f"/outgoing/{message_id}/{verb}", sha256=sha256)
        for verb in ("approve", "reject")
    ]

    assert "/approve" not in page
    assert "postroom web" in words(page)
    assert [403, 403] == [answer.status_code for answer in answers]
    assert "held" == (await installation.message(message_id)).status


@pytest.mark.parametrize("scope", sorted(ALL_SCOPES))
async def test_no_scope_but_approve_approves(
    installation: WebInstallation, anonymous: WebUser, scope: str
) -> None:
    message_id, sha256 = await installation.hold_with_hash()
    await anonymous.sign_in(key=await installation.key(*{"read", scope}))

    answer = await anonymous.post(f"/outgoing/{message_id}/approve", sha256=sha256)

    assert 403 == answer.status_code
    assert "held" == (await installation.message(message_id)).status


async def test_a_key_that_only_approves_sees_held_mail_and_nothing_else(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    message_id, sha256 = await installation.hold_with_hash()
    await anonymous.sign_in(key=await installation.key("approve"))

    assert "1 message is waiting" in words(await anonymous.read("/"))
    assert "Ten per cent." in await anonymous.read(f"/outgoing/{message_id}")
    others = [await anonymous.get(path) for path in ("/drafts", "/outgoing?status=failed")]
    assert [403, 403] == [response.status_code for response in others]
    assert 403 == (await anonymous.post(f"/outgoing/{message_id}/edit")).status_code
    await anonymous.post(f"/outgoing/{message_id}/approve", sha256=sha256)
    assert "queued" == (await installation.message(message_id)).status


async def test_a_key_limited_to_an_inbox_sees_its_mail_only(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    message_id, _ = await installation.hold_with_hash()
    other = await installation.key("read", inboxes=[await installation.new_inbox("other")])
    await anonymous.sign_in(key=other)

    assert "Offer" not in await anonymous.read("/outgoing")
    assert 404 == (await anonymous.get(f"/outgoing/{message_id}")).status_code


async def test_a_wrong_key_is_refused_and_shown_nowhere(anonymous: WebUser) -> None:
    response = await anonymous.post("/signin", key="pk_wrong_" + "w" * 40)

    assert 401 == response.status_code
    assert "www" not in response.text
    assert "set-cookie" not in response.headers


async def test_a_key_that_may_not_read_is_refused(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    response = await anonymous.post("/signin", key=await installation.key("send"))

    assert 403 == response.status_code
    assert "scope read" in words(response.text)


async def test_guessing_keys_and_links_is_delayed_and_refused(anonymous: WebUser) -> None:
    guesses = (
        anonymous.post("/signin", **{("key", "link")[number % 2]: f"pk_{number:040}"})
        for number in range(40)
    )
    first = await asyncio.gather(*guesses)
    assert 401 in {answer.status_code for answer in first}

    refused = await anonymous.post("/signin", key="pk_" + "9" * 40)

    assert 429 == refused.status_code
    assert int(refused.headers["retry-after"]) > 0
    assert "too many wrong keys" in words(refused.text)


@pytest.mark.parametrize(
    "place",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "",
     "/%0d%0aSet-Cookie: x=1", "/\r\nX: y", "/a b"],
)  # fmt: skip
async def test_signing_in_redirects_to_our_own_pages_only(
    installation: WebInstallation, anonymous: WebUser, place: str
) -> None:
    response = await anonymous.sign_in(link=await installation.link(), next=place)

    assert "/" == response.headers["location"]


async def test_signing_in_redirects_to_the_requested_page(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    response = await anonymous.sign_in(link=await installation.link(), next="/outgoing/msg_1")

    assert "/outgoing/msg_1" == response.headers["location"]
