"""Overview, events, audit and health in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.mails import deliver, mail
from tests.surfaces.web.chromium import DESKTOP, PHONE, browser, obstacles, signed_in
from tests.surfaces.web.conftest import WebInstallation

__all__ = ["browser"]

PAGES = ("/", "/events", "/audit", "/health")


async def arrive(installation: WebInstallation, subject: str) -> None:
    services = installation.app.services
    inbox = (await services.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]
    await deliver(services, inbox, mail(subject))


async def test_the_pages_are_accessible_on_every_screen(
    browser: Browser, busy: WebInstallation
) -> None:
    page = await signed_in(browser, busy)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)

    for path in PAGES:
        await page.goto(path)
        await page.locator("main details").evaluate_all(
            "all => all.forEach(one => one.open = true)"
        )
        assert (path, {}) == (path, await obstacles(page))
    assert [] == refused


async def test_open_tasks_are_reachable_with_the_keyboard(
    browser: Browser, busy: WebInstallation
) -> None:
    page = await signed_in(browser, busy, viewport=DESKTOP)

    await page.get_by_role("link", name="1 message is waiting for your approval").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/outgoing")
    await page.goto("/")
    await page.get_by_role("link", name="30 days").click()
    await page.wait_for_url("**/?days=30")

    chart = page.get_by_role("img", name="Mail out per day")
    await expect(chart).to_have_accessible_description("225 in 30 days; most on 30 May: 14.")
    await page.get_by_text("Table of Mail out").click()
    await expect(page.get_by_role("cell", name="10", exact=True).first).to_be_visible()


async def test_a_person_without_javascript_reads_events_and_verifies_the_log(
    browser: Browser, busy: WebInstallation
) -> None:
    page = await signed_in(browser, busy, viewport=PHONE, java_script_enabled=False)

    await page.get_by_text("More").click()
    await page.get_by_role("link", name="Events").click()
    assert await page.locator("#pause-events").is_hidden()
    await page.get_by_label("Type").select_option("message.received")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator(".events li")).to_have_count(3)
    await page.get_by_role("link", name="Invoice 2").click()
    await page.wait_for_url("**/mail/msg_*")

    await page.goto("/audit")
    await page.get_by_label("Via").select_option("MCP")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("cell", name="send_message")).to_be_visible()
    await page.get_by_role("button", name="Verify log").click()
    await expect(page.get_by_role("status")).to_contain_text("The log is intact")
    await page.get_by_text("More").click()
    await page.get_by_role("link", name="Health").click()
    await expect(page.get_by_text("Fix: set the clock of this machine")).to_be_visible()


async def _subjects(page: Page) -> list[str]:
    return await page.locator(".events .what").all_inner_texts()


async def test_events_appear_automatically_until_paused(
    browser: Browser, installation: WebInstallation
) -> None:
    page = await signed_in(browser, installation, viewport=DESKTOP)
    async with page.expect_response("**/live"):
        await page.goto("/events")
    await arrive(installation, "First")
    await expect(page.locator(".events li")).to_have_count(1)
    await arrive(installation, "Second")
    await expect(page.locator(".events li").first).to_contain_text("Second")

    await page.get_by_role("button", name="Pause").click()
    async with page.expect_response("**/sessions"):
        await arrive(installation, "Third")
    assert 2 == len(await _subjects(page))
    await page.get_by_role("button", name="Resume").click()

    await expect(page.locator(".events li").first).to_contain_text("Third")
