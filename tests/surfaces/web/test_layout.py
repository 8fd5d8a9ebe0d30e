"""Layout defects: overflow, scrolling, sizes and shifts."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from postroom.calls.operation import call
from postroom.operations.inboxes import list_inboxes
from postroom.operations.mail.message_changes import update_message
from postroom.operations.mail.messages import search_messages
from postroom.operations.outgoing.outbox import list_outbox
from postroom.pipeline.ingest import Arrival, receive
from postroom.surfaces.cli.commands.demo import seed_demo
from tests.mails import mail
from tests.surfaces.web.chromium import DESKTOP, PHONE, SIZES, browser, signed_in
from tests.surfaces.web.conftest import WebInstallation

__all__ = ["browser"]

TWO_LINES_PX = 52


@pytest.fixture
def settings() -> dict[str, str]:
    """Without a relay, so that the demo shows held mail."""
    return {}


@pytest.fixture
async def demo(installation: WebInstallation) -> WebInstallation:
    await seed_demo(installation.app)
    return installation


async def test_the_panes_of_mail_scroll_and_the_page_does_not(
    browser: Browser, demo: WebInstallation
) -> None:
    page = await signed_in(browser, demo, viewport=DESKTOP)

    await page.goto("/mail?mailbox=*")
    await expect(page.locator(".mail-row").nth(15)).to_be_attached()

    assert DESKTOP["height"] == await page.evaluate("document.documentElement.scrollHeight")


@SIZES
async def test_a_filename_takes_at_most_two_lines_wherever_files_are_listed(
    browser: Browser, demo: WebInstallation, size: dict[str, int]
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
    browser: Browser, demo: WebInstallation, path: str
) -> None:
    page = await signed_in(browser, demo, viewport=PHONE)

    await page.goto(path)
    heading = await page.locator("h1").evaluate("(e) => getComputedStyle(e).fontSize")
    button = await page.locator(".title-row .button").first.bounding_box()

    assert button is not None
    assert ("24px", 44) == (heading, round(button["height"]))


async def test_long_and_right_to_left_texts_stay_readable(
    browser: Browser, demo: WebInstallation
) -> None:
    inbox = (await call(demo.owner, list_inboxes, {})).results[0]
    arabic, long = "فاتورة رقم 12345 مستحقة الدفع اليوم", "Pneumono" * 100
    await receive(demo.owner, Arrival(mail(arabic, to=inbox.address), inbox.id))
    received = await receive(demo.owner, Arrival(mail(long, to=inbox.address), inbox.id))
    labels = [f"label {number}" for number in range(30)]
    await call(
        demo.owner, update_message, {"message_id": received.message_id, "add_labels": labels}
    )
    page = await signed_in(browser, demo, viewport=DESKTOP)

    await page.goto(f"/mail/{received.message_id}")
    subject = page.locator(".mail-row .what", has_text="12345")
    direction = await subject.evaluate("(e) => getComputedStyle(e).direction")
    row = await page.locator(f"#row-{received.message_id}").bounding_box()
    head = await page.locator("#reading h1").bounding_box()

    assert "rtl" == direction
    assert row is not None
    assert row["height"] < 150
    assert head is not None
    assert head["height"] < 300
    await expect(page.locator("header.head")).to_contain_text("10 more labels")


SHIFTS = """
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput) window.shifted = (window.shifted || 0) + entry.value;
  }
}).observe({ type: "layout-shift", buffered: true });
"""


@SIZES
async def test_nothing_moves_while_a_page_is_loaded(
    browser: Browser, demo: WebInstallation, size: dict[str, int]
) -> None:
    page = await signed_in(browser, demo, viewport=size, timezone_id="Asia/Kolkata")
    await page.add_init_script(SHIFTS)
    mails = await call(demo.owner, search_messages, {"q": "bank details have changed"})
    message = f"/mail/{mails.results[0].id}"
    paths = ["/", "/mail", message, f"{message}?tab=agent", "/outgoing", "/rules", "/events"]

    moved = {}
    for path in paths:
        await page.goto(path, wait_until="networkidle" if path != "/events" else "load")
        await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")
        moved[path] = await page.evaluate("window.shifted || 0")

    assert {} == {path: value for path, value in moved.items() if value > 0.02}
