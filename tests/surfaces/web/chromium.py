"""Debian's Chromium, with signed-in users."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from axe_playwright_python.base import AxeResults
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

if TYPE_CHECKING:
    from tests.surfaces.web.conftest import WebInstallation

NARROW = ViewportSize(width=320, height=600)
PHONE, DESKTOP = ViewportSize(width=390, height=844), ViewportSize(width=1440, height=900)
COLOURS: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
SIZES = pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
SCHEMES = pytest.mark.parametrize("scheme", COLOURS)
# On a busy machine, 5 seconds are not enough for an event, a request and an update of the page.
expect.set_options(timeout=60_000)
LOOKS: tuple[tuple[ViewportSize, Literal["light", "dark"]], ...] = (
    (PHONE, "dark"),
    (DESKTOP, "light"),
    *(((PHONE, "light"), (DESKTOP, "dark")) if os.environ.get("LOOKS") == "all" else ()),
)
"""The screens and colour schemes that axe checks; `make fuzz` checks all four (`LOOKS=all`)."""
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


@pytest.fixture(scope="package")
async def shared_browser() -> AsyncIterator[Browser]:
    """One browser for all tests of the pages; it also determines their event loop."""
    async with chromium() as started:
        yield started


@pytest.fixture
async def browser(shared_browser: Browser) -> AsyncIterator[Browser]:
    """A browser without pages of other tests."""
    yield shared_browser
    for context in shared_browser.contexts:
        await context.close()


async def signed_in(browser: Browser, installation: WebInstallation, **options: object) -> Page:
    """A page on which the owner has signed in with a link from the terminal."""
    context = await browser.new_context(base_url=installation.url, **options)  # type: ignore[arg-type]
    page = await context.new_page()
    await page.goto(f"/signin?link={await installation.link()}")
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{installation.url}/")
    return page


async def violations(page: Page, *rules: str) -> str:
    """The accessibility violations of a page as found by axe, by some rules or all.

    Animations are disabled: axe must not see a colour in transition.
    """
    await page.emulate_media(reduced_motion="reduce")
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(Axe().axe_script)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = AxeResults(await page.evaluate("(options) => axe.run(options)", options))
    return str(found.generate_report()) if found.violations_count else ""


async def obstacles(page: Page) -> dict[str, str]:
    """The layout and accessibility problems of the shown page, by screen width and colour scheme.

    No page is wider than its screen. axe checks it on a phone and a desktop, light and dark.
    """
    found = {}
    for size in (NARROW, PHONE, DESKTOP):
        await page.set_viewport_size(size)
        width = size["width"]
        if 0 < (wide := await page.evaluate("document.documentElement.scrollWidth - innerWidth")):
            found[f"{width}"] = f"{wide} px too wide"
        for scheme in [scheme for shown, scheme in LOOKS if shown is size]:
            await page.emulate_media(color_scheme=scheme)
            if report := await violations(page):
                found[f"{width} {scheme}"] = report
    return found
