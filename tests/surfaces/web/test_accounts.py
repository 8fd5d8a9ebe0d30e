"""Accounts on the pages: added at a real IMAP server and with OAuth, errors, isolation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import httpx2
import pytest

from postroom.calls.operation import call
from postroom.errors import NotFound
from postroom.model.account import Account
from postroom.operations.accounts import get_account
from postroom.pipeline.sync import sync_once
from tests.pipeline.clock import Clock
from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.graph import TOKEN, Graph
from tests.servers.oauth import AuthorizationServer
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

OUTLOOK = {"provider": "outlook", "account_id": "office", "address": "alice@example.com"}
GMAIL = {"provider": "gmail", "account_id": "home", "address": "alice@example.com"}
_SIGN_IN = re.compile(r'name="sign_in" value="([\w-]+)"')


@pytest.fixture(scope="module")
def login() -> Iterator[AuthorizationServer]:
    with AuthorizationServer(TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with Graph() as server:
        yield server


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot() as server:
        yield server


@pytest.fixture
def settings(login: AuthorizationServer, graph: Graph) -> dict[str, str]:
    login.pending, login.refusal = 1, ""
    return {
        "POSTROOM_SECRETS": "file",
        "POSTROOM_ACCOUNT_ALLOW": "127.0.0.0/8",
        "POSTROOM_OUTLOOK_URL": graph.url,
        "POSTROOM_OUTLOOK_LOGIN_URL": login.web.url,
        "POSTROOM_OUTLOOK_CLIENT_ID": "cid",
        "POSTROOM_GMAIL_LOGIN_URL": login.web.url,
        "POSTROOM_GMAIL_OAUTH_URL": login.web.url,
        "POSTROOM_GMAIL_CLIENT_ID": "cid",
    }


def imap(dovecot: Dovecot, **more: str) -> dict[str, str]:
    """The input of a user for an account at Dovecot."""
    return {
        "provider": "imap",
        "account_id": "work",
        "address": "alice@example.com",
        "user": "alice",
        "password": PASSWORD,
        "host": "127.0.0.1",
        "port": str(dovecot.imaps),
        "ca_file": str(dovecot.certificate),
        **more,
    }


async def account_of(installation: WebInstallation, account_id: str) -> Account:
    return await call(installation.owner, get_account, {"account_id": account_id})


async def test_an_imap_account_is_added_synced_checked_and_removed(
    installation: WebInstallation, owner: WebUser, dovecot: Dovecot
) -> None:
    added = await owner.post("/accounts/new", **imap(dovecot))
    waiting = await owner.read("/accounts")
    assert await sync_once(installation.app.services, await account_of(installation, "work"))
    synced = await owner.read("/accounts/work")
    checked = await owner.post("/accounts/work/check")
    again = await owner.post("/accounts/work/login", password=PASSWORD)
    wrong = await owner.post("/accounts/work/login", password="wrong-canary")
    asked = await owner.post("/accounts/work/sync")
    leaving = words(await owner.read("/accounts/work/remove"))
    await owner.post("/accounts/work/remove")

    assert "/accounts/work?notice=account+added" == added.headers["location"]
    assert 'hx-trigger="every 2s"' in waiting
    assert "hx-trigger" not in synced
    assert "up to date" in words(synced)
    assert "The sign-in works." in words(checked.text)
    assert (303, 303) == (again.status_code, asked.status_code)
    assert "app password" in words(wrong.text)
    assert "Nothing changes at IMAP" in leaving
    with pytest.raises(NotFound):
        await account_of(installation, "work")
    pages = [waiting, synced, checked.text, wrong.text]
    assert not [page for page in pages if PASSWORD in page or "canary" in page]


@pytest.mark.parametrize(
    ("form", "status", "reason"),
    [
        ({"password": "wrong-canary"}, 502, "Check the user name and the password"),
        ({"password": ""}, 422, "password"),
        ({"port": "99999"}, 422, "Port: "),
        ({"host": ""}, 422, "name the IMAP server"),
        ({"host": "127.0.0.1", "port": "1"}, 502, "Check the server and the port"),
        ({"address": "nobody"}, 422, "address"),
        ({"account_id": "a b"}, 422, "Short name: "),
        ({"provider": "pigeon"}, 422, "Provider: "),
        ({"scopes": "all"}, 422, "Permissions"),
    ],
)
async def test_a_problem_with_an_account_is_explained_and_nothing_is_stored(
    installation: WebInstallation,
    owner: WebUser,
    dovecot: Dovecot,
    form: dict[str, str],
    status: int,
    reason: str,
) -> None:
    answer = await owner.post("/accounts/new", **{**imap(dovecot, name="Typed Name"), **form})

    assert status == answer.status_code, words(answer.text)
    assert reason in words(answer.text)
    assert PASSWORD not in answer.text
    assert "canary" not in answer.text
    assert form.get("provider") == "pigeon" or "Typed Name" in answer.text
    with pytest.raises(NotFound):
        await account_of(installation, "work")


async def test_an_expired_login_is_explained_with_a_remedy(
    installation: WebInstallation, owner: WebUser, dovecot: Dovecot
) -> None:
    await owner.post("/accounts/new", **imap(dovecot))
    await installation.app.services.store.set_account_state(
        "work", "needs_reauth", "work: the server refused it; run: postroom account login work"
    )

    page = await owner.read("/accounts")
    async with installation.new_user() as reader:
        await reader.sign_in(key=await installation.key("read"))
        theirs = await reader.read("/accounts/work")

    assert "The provider refused the sign-in: work: the server refused it." in words(page)
    assert "postroom account login" not in page
    assert 'href="/accounts/work#sign-in-again"' in page
    assert "The owner must sign in again" in words(theirs)
    assert "New password" not in theirs
    assert "127.0.0.1" not in theirs.partition("<main")[2]


async def started(person: WebUser, form: dict[str, str]) -> httpx2.Response:
    return await person.post("/accounts/new", **form)


async def go_on(person: WebUser, page: httpx2.Response, **form: str) -> httpx2.Response:
    return await person.post("/accounts/sign-in", sign_in=_SIGN_IN.findall(page.text)[0], **form)


async def test_outlook_is_added_with_a_code(
    installation: WebInstallation, owner: WebUser, graph: Graph
) -> None:
    first = await started(owner, OUTLOOK)
    waiting = await go_on(owner, first)
    done = await go_on(owner, waiting)
    again = await owner.post("/accounts/office/login")

    assert "ABCD" in words(first.text)
    assert 'hx-trigger="submit, every 1s"' in first.text
    assert "ABCD" in words(waiting.text)
    assert "/accounts/office?notice=account+added" == done.headers["location"]
    account = await account_of(installation, "office")
    assert ("outlook", graph.owner) == (account.provider, account.options["owner"])
    assert TOKEN not in first.text + waiting.text
    assert "ABCD" in words(again.text)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ("authorization_declined", "the sign-in was refused at the provider"),
        ("expired_token", "the code expired"),
        ("<b>odd</b>", "the provider answered <b>odd</b>"),
    ],
)
async def test_a_refused_code_is_explained(
    installation: WebInstallation,
    owner: WebUser,
    login: AuthorizationServer,
    refusal: str,
    reason: str,
) -> None:
    page = await started(owner, OUTLOOK)
    login.refusal = refusal

    answer = await go_on(owner, page)

    assert 502 == answer.status_code
    assert reason in words(answer.text)
    assert "<b>odd" not in answer.text
    with pytest.raises(NotFound):
        await account_of(installation, "office")


async def test_a_sign_in_polls_less_often_after_slow_down(
    owner: WebUser, login: AuthorizationServer
) -> None:
    page = await started(owner, OUTLOOK)
    login.refusal = "slow_down"

    slower = await go_on(owner, await go_on(owner, page))

    assert 'hx-trigger="submit, every 11s"' in slower.text


async def test_a_sign_in_belongs_to_its_user_and_expires(
    installation: WebInstallation, owner: WebUser, clock: Clock
) -> None:
    page = await started(owner, OUTLOOK)
    async with installation.new_user() as other:
        await other.sign_in(key=await installation.key("read", "admin"))
        stolen = await go_on(other, page)
        limited = await installation.key(
            "read", "admin", inboxes=[await installation.new_inbox("shop")]
        )
    async with installation.new_user() as somebody:
        await somebody.sign_in(key=limited)
        refused = await started(somebody, OUTLOOK)
    forged = await owner.post("/accounts/sign-in", sign_in="A" * 120)
    clock.now += timedelta(minutes=16)
    late = await go_on(owner, page)

    assert [422, 422, 422] == [answer.status_code for answer in (stolen, forged, late)]
    assert "start again" in words(late.text)
    assert 403 == refused.status_code


async def test_a_browser_returns_from_google_and_must_continue(
    installation: WebInstallation, owner: WebUser, login: AuthorizationServer
) -> None:
    page = await started(owner, GMAIL)
    url = unescape(re.findall(r'href="(http://127[^"]+/o/oauth2[^"]+)"', page.text)[0])
    back = login.sign_in(url)
    async with (
        installation.new_user() as stranger
    ):  # the browser, which sends no cookie on a request from another site
        arrived = await stranger.get(back)
        onward = unescape(re.findall(r"url=([^\"]+)\"", arrived.text)[0])
        lost = await stranger.get(onward)
    asked = await owner.read(onward)
    answer = unescape(re.findall(r'name="answer" value="([^"]+)"', asked)[0])
    finished = await owner.post(
        "/accounts/sign-in", sign_in=_SIGN_IN.findall(asked)[0], answer=answer
    )

    assert back.startswith(f"{installation.url}/accounts/back?")
    assert onward.startswith("/accounts/back?")
    assert "You are not signed in to Postroom" in words(lost.text)
    # The emulated Google has no mailbox, so the account is not added, but the code was accepted.
    assert login.web.requests[-1].path == "/token"
    assert 502 == finished.status_code
    assert TOKEN not in finished.text


async def test_the_url_of_another_sign_in_is_refused(
    owner: WebUser, login: AuthorizationServer
) -> None:
    first, second = await started(owner, GMAIL), await started(owner, GMAIL)
    url = unescape(re.findall(r'href="(http://127[^"]+/o/oauth2[^"]+)"', first.text)[0])

    answer = await go_on(owner, second, answer=login.sign_in(url))
    empty = await go_on(owner, second)

    assert "belongs to another sign-in" in words(answer.text)
    assert "paste the address" in words(empty.text)


async def test_a_session_sees_only_its_accounts_and_changes_none(
    installation: WebInstallation, owner: WebUser, dovecot: Dovecot
) -> None:
    await owner.post("/accounts/new", **imap(dovecot))
    shop = await installation.new_inbox("shop")

    async def key_of(*scopes: str, **more: Any) -> list[int]:
        async with installation.new_user() as person:
            await person.sign_in(key=await installation.key(*scopes, **more))
            answers = [
                await person.get("/accounts/work"),
                await person.post("/accounts/work/sync"),
                await person.post("/accounts/work/remove"),
                await person.post("/accounts/new", **imap(dovecot, account_id="x")),
            ]
            return [answer.status_code for answer in answers]

    assert [200, 403, 403, 403] == await key_of("read")
    assert [404, 404, 404, 403] == await key_of("read", "write", "admin", inboxes=[shop])
    assert "work" == (await account_of(installation, "work")).id
