"""Where things are on a page: what a person with a screen would call broken."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from postroom.calls.operation import call
from postroom.operations.mail.messages import search_messages
from postroom.operations.outgoing.outbox import list_outbox
from postroom.surfaces.cli.demo import seed_demo
from tests.surfaces.web.chromium import DESKTOP, PHONE, SIZES, browser, signed_in
from tests.surfaces.web.conftest import Office

__all__ = ["browser"]

TWO_LINES_PX = 52


@pytest.fixture
def settings() -> dict[str, str]:
    """Without a relay: the demo then says which mail is held."""
    return {}


@pytest.fixture
async def demo(office: Office) -> Office:
    await seed_demo(office.app)
    return office


async def test_the_panes_of_mail_scroll_and_the_page_does_not(
    browser: Browser, demo: Office
) -> None:
    page = await signed_in(browser, demo, viewport=DESKTOP)

    await page.goto("/mail?mailbox=*")
    await expect(page.locator(".mail-row").nth(15)).to_be_attached()

    assert DESKTOP["height"] == await page.evaluate("document.documentElement.scrollHeight")


@SIZES
async def test_a_filename_takes_at_most_two_lines_wherever_files_are_listed(
    browser: Browser, demo: Office, size: dict[str, int]
) -> None:
    page = await signed_in(browser, demo, viewport=size)
    found = await call(demo.owner, search_messages, {"q": "invoice-HH", "has_attachment": True})
    held = await call(demo.owner, list_outbox, {"status": "held"})

    await page.goto(f"/mail/{found.results[0].id}")
    heights = [await filename_height(page)]
    await page.goto(f"/compose?forward={found.results[0].id}")
    heights.append(await filename_height(page))
    await page.get_by_role("button", name="Save as draft").click()
    await page.wait_for_url("**/drafts/*")
    heights.append(await filename_height(page))
    await page.goto(f"/outgoing/{held.results[0].message_id}")
    heights.append(await filename_height(page))

    assert [] == [height for height in heights if height > TWO_LINES_PX]


async def filename_height(page: Page) -> float:
    box = await page.locator(".filename").first.bounding_box()
    assert box is not None
    return box["height"]


@pytest.mark.parametrize("path", ["/rules", "/keys", "/memories", "/accounts", "/webhooks"])
async def test_the_heading_and_button_of_each_list_are_of_one_size(
    browser: Browser, demo: Office, path: str
) -> None:
    page = await signed_in(browser, demo, viewport=PHONE)

    await page.goto(path)
    heading = await page.locator("h1").evaluate("(e) => getComputedStyle(e).fontSize")
    button = await page.locator(".title-row .button").first.bounding_box()

    assert button is not None
    assert ("24px", 44) == (heading, round(button["height"]))
