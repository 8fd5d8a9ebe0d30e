"""Debian's Chromium, and people who are signed in with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

from tests.surfaces.web.conftest import Office

NARROW = {"width": 320, "height": 600}
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
SIZES = pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Browser]:
    """Debian's Chromium."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=[*FLAGS, *flags]
        )
        yield started
        await started.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


async def signed_in(browser: Browser, office: Office, **options: object) -> Page:
    """A page on which the owner has pressed the button of a link from the terminal."""
    context = await browser.new_context(base_url=office.url, **options)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(f"/signin?link={await office.link()}")
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{office.url}/")
    return page


async def violations(page: Page) -> str:
    """What keeps people from using a page, as axe finds it; empty if nothing does."""
    found = await Axe().run(page)
    return str(found.generate_report()) if found.violations_count else ""
