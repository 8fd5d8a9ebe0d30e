"""The list of mail with scripts: live updates, keyboard, and search while typing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.surfaces.web.chromium import DESKTOP, PHONE, browser, signed_in, violations
from tests.surfaces.web.conftest import WebInstallation
from tests.surfaces.web.mail.conftest import IncomingMail

__all__ = ["browser"]

ELSEWHERE = """
import asyncio, sys
from postroom.app import open_app
from postroom.config import read_settings
from tests.mails import deliver, mail

async def main(folder, *subjects):
    async with open_app(read_settings({"POSTROOM_DATA_DIR": folder}).settings) as app:
        inbox = (await app.services.store.inboxes_at(["me@postroom.localhost"])).popitem()[1]
        for subject in subjects:
            await deliver(app.services, inbox, mail(subject, to=inbox.address))

asyncio.run(main(*sys.argv[1:]))
"""
"""Delivers mail in another process."""


async def deliver_elsewhere(installation: WebInstallation, *subjects: str) -> None:
    folder = str(installation.app.settings.data_dir)
    code = [sys.executable, "-c", ELSEWHERE, folder, *subjects]
    process = await asyncio.create_subprocess_exec(*code, env={**os.environ, "PYTHONPATH": "."})
    assert 0 == await asyncio.wait_for(process.wait(), 30)


def subjects(page: Page) -> Locator:
    return page.locator("#mails .what")


async def focused(page: Page) -> str:
    """The subject of the mail in the list that has focus."""
    return await page.evaluate(
        "document.activeElement.closest('.mail-row')?.querySelector('.what').textContent ?? ''"
    )


Opens = Callable[..., Awaitable[Page]]


@pytest.fixture
async def mail_list(browser: Browser, installation: WebInstallation) -> AsyncIterator[Opens]:
    """Open the list of mail and wait for its stream; afterwards no script may have failed."""
    errors: list[str] = []
    pages: list[Page] = []

    async def opened(**options: object) -> Page:
        page = await signed_in(browser, installation, **{"viewport": DESKTOP, **options})
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        async with page.expect_response("**/live"):
            await page.goto("/mail")
        return page

    yield opened
    for page in pages:
        await page.context.close()


async def test_mail_of_another_process_appears(
    mail_list: Opens, installation: WebInstallation, incoming: IncomingMail
) -> None:
    for number in range(3):
        await incoming.arrive(f"Mail {number}")
    page = await mail_list()
    await page.locator(".tick input").nth(1).check()
    await page.get_by_role("link", name="Mail 0").click()
    await expect(page.locator("#reading h1")).to_have_text("Mail 0")
    other = await page.context.new_page()
    await other.goto("/")

    await deliver_elsewhere(installation, "News")

    await expect(subjects(page)).to_have_text(["News", "Mail 2", "Mail 1", "Mail 0"], timeout=2500)
    await expect(page.locator("#places .count").first).to_have_text("4 unread")
    await expect(page.locator("#reading h1")).to_have_text("Mail 0")
    assert [False, False, True, False] == [
        await box.is_checked() for box in await page.locator(".tick input").all()
    ]
    await expect(page.locator(".mail-row.current .what")).to_have_text("Mail 0")
    await installation.hold(**{"from": "me@postroom.localhost"})
    for window in (page, other):
        await expect(window.locator("#held")).to_have_text("1 held")
        await expect(window).to_have_title("(1) " + ("Mail 0" if window is page else "Overview")
                                           + " · Postroom")  # fmt: skip


async def test_a_person_with_a_keyboard_archives_and_undoes(
    mail_list: Opens, installation: WebInstallation, incoming: IncomingMail
) -> None:
    ids = [await incoming.arrive(f"Mail {number}") for number in range(4)]
    page = await mail_list()
    keys = page.keyboard

    await keys.press("j")
    assert "Mail 3" == await focused(page)
    await keys.press("ArrowDown")
    await keys.press("k")
    await keys.press("j")
    assert "Mail 2" == await focused(page)
    await keys.press("Enter")
    await expect(page.locator("#reading h1")).to_be_focused()
    assert page.url.endswith(f"/mail/{ids[2]}")
    await keys.press("Escape")
    assert "Mail 2" == await focused(page)
    await keys.press("u")
    await expect(page.locator("#toast")).to_have_text("Marked as read. Undo")
    await expect(page.locator(f"#row-{ids[2]}")).not_to_have_class("unread")
    for scheme in ("dark", "light"):
        await page.emulate_media(color_scheme=scheme)
        assert "" == await violations(page)
    assert "Mail 2" == await focused(page)
    await keys.press("e")
    await expect(subjects(page)).to_have_text(["Mail 3", "Mail 1", "Mail 0"])
    assert "Mail 1" == await focused(page)
    assert ("Archive",) == (await installation.message(ids[2])).mailboxes
    await keys.press("z")
    await expect(subjects(page)).to_have_text(["Mail 3", "Mail 2", "Mail 1", "Mail 0"])
    await expect(page.locator("#toast")).to_have_text("Undone.")
    assert "Mail 2" == await focused(page)
    assert ("Inbox",) == (await installation.message(ids[2])).mailboxes

    await keys.press("x")
    await keys.press("j")
    await keys.press("x")
    await expect(page.locator("#selected")).to_have_text("2 selected")
    await keys.press("#")
    await expect(subjects(page)).to_have_text(["Mail 3", "Mail 0"])
    assert {("Trash",)} == {(await installation.message(one)).mailboxes for one in ids[1:3]}
    await page.get_by_role("button", name="Undo").click()
    await expect(subjects(page)).to_have_count(4)

    await page.get_by_role("link", name="Mail 1").click()
    await expect(page.locator("#reading")).to_contain_text("Mail 1")
    await page.get_by_role("button", name="Archive").last.click()
    await expect(subjects(page)).to_have_text(["Mail 3", "Mail 2", "Mail 0"])
    await expect(page.locator("#reading")).to_contain_text("Select a message")
    assert page.url.endswith("/mail")
    assert "Mail 0" == await focused(page)

    await keys.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert "" == await violations(page)
    await keys.press("e")
    await keys.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await keys.press("Control+e")
    await keys.press("/")
    await keys.type("e #")
    await expect(page.locator("#q")).to_have_value("e #")
    await keys.press("Escape")
    await keys.press("g")
    await keys.press("o")
    await page.wait_for_url("**/outgoing")
    assert ("Inbox",) == (await installation.message(ids[0])).mailboxes


async def test_a_search_updates_while_typing(
    mail_list: Opens, installation: WebInstallation, incoming: IncomingMail
) -> None:
    for number in range(5):
        await incoming.arrive(f"Soup {number}", "Of the day.")
    await incoming.arrive("Cake", "With cream.")
    page = await mail_list()

    await page.locator("#q").press_sequentially("soup 3")

    await expect(subjects(page)).to_have_text(["Soup 3"])
    await expect(page.locator("#q")).to_be_focused()
    await expect(page.locator("#q")).to_have_value("soup 3")
    await expect(page.locator(".found")).to_contain_text("1 message (")
    await expect(page.locator(".chip")).to_have_text("q: soup 3 ×, remove this filter")
    assert "q=soup+3" in page.url
    await deliver_elsewhere(installation, "Beans")
    await incoming.arrive("Soup 3 again")
    await expect(subjects(page)).to_have_text(["Soup 3 again", "Soup 3"])
    await page.go_back()
    await expect(subjects(page)).to_have_count(8)
    await expect(page.locator("#q")).to_have_value("")
    await page.locator("summary", has_text="More filters").click()
    await page.get_by_label("Subject").fill("cake")
    await expect(subjects(page)).to_have_text(["Cake"])
    await page.locator(".chip").click()
    await expect(subjects(page)).to_have_count(8)
    assert page.url.endswith("/mail")
    await page.get_by_role("link", name="Cake").click()
    await expect(page.locator("#reading h1")).to_have_text("Cake")
    await page.locator("#q").press_sequentially("cake")
    await expect(page.locator("#reading")).to_contain_text("Select a message")
    await expect(subjects(page)).to_have_text(["Cake"])
    await page.go_back()
    await expect(page.locator("#reading h1")).to_have_text("Cake")
    await expect(subjects(page)).to_have_count(8)


async def test_older_mail_is_appended_while_new_mail_arrives(
    mail_list: Opens, installation: WebInstallation, incoming: IncomingMail
) -> None:
    ids = [await incoming.arrive(f"Mail {number}") for number in range(120)]
    page = await mail_list()
    await expect(subjects(page)).to_have_count(50)

    await page.locator("#older").scroll_into_view_if_needed()
    await expect(subjects(page)).to_have_count(100)
    place = await page.locator(f"#row-{ids[40]}").evaluate(
        "row => { row.scrollIntoView(); return row.getBoundingClientRect().top }"
    )
    await incoming.arrive("News")
    await expect(subjects(page).first).to_have_text("News")
    moved = await page.locator(f"#row-{ids[40]}").evaluate("row => row.getBoundingClientRect().top")
    assert abs(place - moved) < 2
    await page.locator("#older").scroll_into_view_if_needed()
    await expect(subjects(page)).to_have_count(121)

    assert ["News", *(f"Mail {n}" for n in range(119, -1, -1))] == (
        await subjects(page).all_text_contents()
    )
    await expect(page.locator("#older")).to_have_count(0)
    await page.locator(f"#row-{ids[3]} a").click()
    await expect(page.locator("#reading h1")).to_have_text("Mail 3")
    await page.locator(f"#row-{ids[5]} .tick input").check()
    await page.locator(f"#row-{ids[1]} .tick input").click(modifiers=["Shift"])
    await expect(page.locator("#selected")).to_have_text("5 selected")
    await page.locator(".bulk").get_by_role("button", name="Archive").click()
    await expect(subjects(page)).to_have_count(116)
    await page.get_by_role("link", name="Select all").click()
    await expect(page.locator("#selected")).to_have_text("116 selected")


async def test_on_a_phone_back_returns_to_the_same_mail(
    mail_list: Opens, installation: WebInstallation, incoming: IncomingMail
) -> None:
    ids = [await incoming.arrive(f"Mail {number}") for number in range(60)]
    page = await mail_list(viewport=PHONE, timezone_id="Asia/Kolkata")
    titles = page.locator("#mails time").first
    await expect(titles).to_have_attribute("title", "1 Mar 2026, 14:30 GMT+5:30")

    await page.locator(f"#row-{ids[20]} a").click()
    await expect(page.locator("#reading h1")).to_have_text("Mail 20")
    await expect(page.locator("#list")).to_be_hidden()
    assert 0 == await page.evaluate("scrollY")
    sent = page.locator("#reading .head time").first
    await expect(sent).to_have_text("1 Mar 2026, 14:30 GMT+5:30")
    await page.go_back()
    await expect(page.locator(f"#row-{ids[20]} a")).to_be_focused()
    await expect(page.locator(f"#row-{ids[20]} a")).to_be_in_viewport()
    await expect(page.locator("#reading")).to_be_hidden()
    await page.go_forward()
    await expect(page.locator("#reading h1")).to_be_in_viewport()
    await page.get_by_role("link", name="Inbox", exact=True).click()
    await expect(page.locator(f"#row-{ids[20]} a")).to_be_focused()
    assert page.url.endswith("/mail")


async def test_a_page_whose_session_ends_leads_to_the_sign_in(
    mail_list: Opens, installation: WebInstallation, incoming: IncomingMail
) -> None:
    await incoming.arrive("Secret")
    page = await mail_list()
    other = await page.context.new_page()
    await other.goto("/sessions")

    await other.get_by_role("button", name="Sign out everywhere").click()

    await page.wait_for_url("**/signin?next=/mail")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert 0 == await page.locator(".panes").count()
