"""Every page, filled by the demo, on both databases and for every kind of user."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.async_api import Browser, Page, expect

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER, OAuthClient
from postroom.operations.keys import create_key
from postroom.operations.mail.messages import search_messages
from postroom.operations.outgoing.drafts import list_drafts
from postroom.operations.outgoing.outbox import list_outbox
from postroom.operations.rule_runs import list_rule_plans
from postroom.operations.rules import list_rules
from postroom.operations.webhooks import create_webhook, list_deliveries
from postroom.pipeline.ingest import Arrival, receive
from postroom.surfaces.cli.commands.demo import seed_demo
from postroom.surfaces.mcp.server import http_app, tool_text
from postroom.surfaces.rest.server import AccessControl, build
from postroom.surfaces.web.server import SECTIONS, web_mounts
from tests.hostile_content import NO_ACCOUNT
from tests.mails import mail
from tests.surfaces.web.chromium import DESKTOP, PHONE, browser, signed_in, violations
from tests.surfaces.web.conftest import WebInstallation

__all__ = ["browser"]

HELPER = OAuthClient("cli_helper", "Helper", ("https://helper.example/callback",))
_PARAMETER = re.compile(r"\{(\w+)\}")


QUERIES = {
    "/memories/read": "?namespace=default&key=style/answers",
    "/memories/edit": "?namespace=default&key=style/answers",
    "/memories/delete": "?namespace=default&key=style/answers",
    "/accounts/sign-in": None,
    "/accounts/back": None,
    "/compose/people": None,
    "/authorize": "?"
    + urlencode(
        {
            "client_id": HELPER.id,
            "redirect_uri": HELPER.redirect_uris[0],
            "response_type": "code",
            "code_challenge_method": "S256",
            "code_challenge": "x" * 43,
        }
    ),
}
"""The query of a path; None if it is not a page but the response to a form."""


async def fill(app: App) -> dict[str, str]:
    """Add objects that the demo lacks; returns a value for each path parameter."""
    ctx = app.context(OWNER)
    inbox = await seed_demo(app)
    hook = await call(ctx, create_webhook, {"url": "https://hooks.example/postroom"})
    await receive(ctx, Arrival(mail("News", to=inbox.address), inbox.id))
    key = await call(ctx, create_key, {"name": "Desk", "scopes": ["read", "write", "send"]})
    await ctx.store.add_account(replace(NO_ACCOUNT, inbox_id=ctx.new_id("inb")), "Work")
    await ctx.store.set_account_state("work", "needs_reauth", "the server refused the login")
    now = ctx.clock()
    await ctx.store.add_oauth_client(HELPER, now=now, expires_at=now + timedelta(days=1))
    suspicious = await call(ctx, search_messages, {"q": "bank details have changed"})
    held = await call(ctx, list_outbox, {"status": "held"})
    deliveries = await call(ctx, list_deliveries, {"webhook_id": hook.id})
    return {
        "/mail message_id": suspicious.results[-1].id,
        "/outgoing message_id": held.results[0].message_id,
        "/drafts draft_id": (await call(ctx, list_drafts, {})).results[0].id,
        "/rules rule_id": (await call(ctx, list_rules, {})).results[0].id,
        "/rules plan_id": (await call(ctx, list_rule_plans, {})).results[0].id,
        "/accounts account_id": "work",
        "/keys key_id": key.id,
        "/webhooks webhook_id": hook.id,
        "/webhooks delivery_id": deliveries.results[0].id,
    }


def paths(values: dict[str, str]) -> list[str]:
    """The paths of all pages. Raises KeyError for an unknown parameter."""
    rows = [page.path for section in SECTIONS for page in section.pages]
    found = [(path, QUERIES.get(path, "")) for path in rows]
    return [_filled(path, values) + behind for path, behind in found if behind is not None]


def _filled(path: str, values: dict[str, str]) -> str:
    first = path.split("/")[1]
    return _PARAMETER.sub(lambda found: values[f"/{first} {found[1]}"], path)


@pytest.fixture(params=["sqlite", "postgres"])
async def demo(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    serving: Callable[..., AbstractAsyncContextManager[int]],
) -> AsyncIterator[WebInstallation]:
    """A server with the demo, on a database."""
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    if request.param == "postgres":
        given["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    async with open_app(read_settings(given).settings) as app:
        access = AccessControl.of(app, no_auth=False)
        mcp = http_app(app, access)
        mounts = {"/mcp": mcp, **web_mounts(app, access, tool_text)}
        asgi = build(app, mounts=mounts, lifespans=[mcp.lifespan])
        async with serving(asgi, app.begin_shutdown) as port:
            yield WebInstallation(app, f"http://127.0.0.1:{port}")


async def test_every_page_fits_the_screen_and_is_accessible(
    browser: Browser, demo: WebInstallation
) -> None:
    """On a dark phone and a light desktop."""
    values = await fill(demo.app)
    page = await signed_in(browser, demo, viewport=PHONE)
    is_looked_at = demo.app.settings.database_url is None  # the pages are the same on PostgreSQL
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)

    for path in paths(values):
        await page.set_viewport_size(PHONE)
        await page.emulate_media(color_scheme="dark")
        answer = await page.goto(path)
        assert answer is not None
        assert (path, 200) == (path, answer.status)
        await _check(page, path, is_looked_at=is_looked_at)
        await page.set_viewport_size(DESKTOP)
        await page.emulate_media(color_scheme="light")
        await _check(page, path, is_looked_at=is_looked_at)
    assert [] == errors


async def _check(page: Page, path: str, *, is_looked_at: bool) -> None:
    wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert (path, 0) >= (path, wide)
    if is_looked_at:
        assert (path, "") == (path, await violations(page))


async def test_every_link_of_a_page_works(demo: WebInstallation) -> None:
    """Follows the links of every page once, without a browser."""
    values = await fill(demo.app)
    seen: dict[str, str] = {}
    async with demo.new_user() as person:
        await person.sign_in(link=await demo.link())
        for path in paths(values):
            html = await person.read(path)
            for link in re.findall(r'href="(/[^"#]*)', html):
                seen.setdefault(link.replace("&amp;", "&"), path)
        dead = {
            link: (path, status)
            for link, path in seen.items()
            if (status := (await person.get(link)).status_code) not in (200, 303)
        }

    assert {} == dead


async def test_the_tour_of_the_documentation_works(browser: Browser, demo: WebInstallation) -> None:
    """As in the guide: find why a part was hidden, decide about replies, undo a rule."""
    await seed_demo(demo.app)
    page = await signed_in(browser, demo, viewport=DESKTOP)

    await page.get_by_role("link", name="waiting for your approval").click()
    await page.get_by_role("link", name="accounts@payments-desk.example").first.click()
    assert "a misleading sender" in await page.locator(".reasons").inner_text()
    mail_path = await page.locator(".answered a").first.get_attribute("href")
    await page.goto(f"{mail_path}?tab=agent")
    marked = page.frame_locator("iframe").locator(".mark.hidden")
    await expect(marked.first).to_contain_text("Note for the assistant")
    await expect(page.locator("#reading")).not_to_contain_text("Reply to this mail, attach")

    await page.get_by_role("link", name="Outgoing").click()
    await page.get_by_role("link", name="accounts@payments-desk.example").first.click()
    await page.locator("summary", has_text="Reject").click()
    await page.get_by_role("button", name="Reject message").click()
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("status").first).to_contain_text("Approved")

    await page.get_by_role("link", name="Rules").click()
    await page.get_by_role("link", name="Runs").click()
    await page.get_by_role("button", name="Undo").first.click()
    await expect(page.locator("main")).to_contain_text("undone")


async def test_the_menu_closes_by_key_and_returns_focus(
    browser: Browser, demo: WebInstallation
) -> None:
    page = await signed_in(browser, demo, viewport=PHONE)
    button = page.locator("details.menu > summary")

    await button.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Webhooks")).to_be_visible()
    wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Escape")

    assert wide <= 0
    await expect(page.get_by_role("link", name="Webhooks")).to_be_hidden()
    await expect(button).to_be_focused()
