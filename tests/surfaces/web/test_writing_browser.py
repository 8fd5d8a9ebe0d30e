"""Writing and approving in a real browser: autosave, files, times, keys."""

from __future__ import annotations

import re

from playwright.async_api import Browser, Page, expect

from postroom.calls.operation import call
from postroom.model.mail.sending import Draft
from postroom.operations.outgoing.drafts import list_drafts
from postroom.operations.outgoing.outbox import list_outbox
from postroom.operations.outgoing.sending import send_message
from tests.pipeline.outbox_helpers import relay_worker
from tests.servers.relay import CUT, relaying
from tests.surfaces.web.chromium import DESKTOP, PHONE, browser, signed_in, violations
from tests.surfaces.web.conftest import WebInstallation
from tests.surfaces.web.mail.conftest import IncomingMail, incoming

__all__ = ["browser", "incoming"]

DROP = """names => {
    const transfer = new DataTransfer();
    const file = (name) => new File([name.repeat(100)], name, {type: "text/plain"});
    names.forEach((name) => transfer.items.add(file(name)));
    for (const type of ["dragover", "drop"])
        document.getElementById("editor").dispatchEvent(
            new DragEvent(type, {dataTransfer: transfer, bubbles: true, cancelable: true}));
}"""
SAVED = re.compile(r"^Saved \d\d:\d\d$")


async def drafts_of(installation: WebInstallation) -> tuple[Draft, ...]:
    return (await call(installation.owner, list_drafts, {})).results


def state(page: Page):  # type: ignore[no-untyped-def]
    return expect(page.locator("#draft-state"))


async def test_a_draft_saves_itself_and_survives_a_reload_and_a_lost_session(
    browser: Browser, installation: WebInstallation
) -> None:
    page = await signed_in(browser, installation)
    await page.goto("/compose")

    await page.get_by_label("Subject").fill("Offer")
    await page.get_by_label("Text").fill("Dear Ana,")
    await state(page).to_have_text(SAVED)
    await page.reload()
    await expect(page.get_by_label("Text")).to_have_value("Dear Ana,")
    await page.get_by_label("To", exact=True).fill("ana@exam")
    await state(page).to_have_text(SAVED)
    (draft,) = await drafts_of(installation)
    assert (("ana@exam",), "Offer", "Dear Ana,") == (draft.to, draft.subject, draft.body_text)

    await page.context.clear_cookies()
    await page.get_by_label("Text").fill("Dear Ana, dear Bo,")
    await state(page).to_have_text(re.compile("you are signed out. Your text stays"))
    here = page.url
    await page.goto(f"/signin?link={await installation.link()}")
    await page.get_by_role("button", name="Sign in").click()
    await page.goto(here)

    await expect(page.get_by_label("Text")).to_have_value("Dear Ana, dear Bo,")
    await state(page).to_have_text(SAVED)
    (draft,) = await drafts_of(installation)
    assert "Dear Ana, dear Bo," == draft.body_text
    await page.get_by_label("Text").fill("Dear all,")
    await page.keyboard.press("Escape")
    await page.wait_for_url("**/drafts")
    assert "Dear all," == (await drafts_of(installation))[0].body_text


async def test_files_are_dropped_removed_and_sent_once(
    browser: Browser, installation: WebInstallation
) -> None:
    await installation.new_inbox("other")
    page = await signed_in(browser, installation)
    await page.goto("/compose")

    await page.evaluate(DROP, [f"{number}.txt" for number in range(21)])
    await expect(page.locator("#file-error")).to_have_text(
        "choose at most 20 files for one message"
    )
    await page.evaluate(DROP, ["a.txt", "b.txt"])
    await expect(page.locator("#draft-files li")).to_have_count(2)
    await expect(page.locator("#draft-files")).to_contain_text("a.txt 500 bytes")
    await page.get_by_role("button", name="Remove a.txt").click()
    await expect(page.locator("#draft-files li")).to_have_count(1)
    assert ["b.txt"] == [file.filename for file in (await drafts_of(installation))[0].attachments]
    await page.get_by_label("Subject").fill("Files")
    await page.get_by_label("To", exact=True).fill("other@postroom.localhost")
    await page.get_by_label("Text").fill("Here.")
    await page.evaluate(
        "() => { const one = () => document.getElementById('editor')"
        ".requestSubmit(document.querySelector('[value=send]')); one(); one(); }"
    )
    await page.wait_for_url("**/mail/msg_*")

    message = await installation.message(page.url.partition("?")[0].rpartition("/")[2])
    assert ("delivered", ["b.txt"]) == (message.status, [f.filename for f in message.attachments])
    assert () == await drafts_of(installation)
    saved = await page.request.get(f"/attachments/{message.attachments[0].id}")
    assert "b.txt" * 100 == await saved.text()


async def test_a_mail_for_later_is_in_the_zone_of_its_writer(
    browser: Browser, installation: WebInstallation
) -> None:
    page = await signed_in(browser, installation, timezone_id="America/New_York")
    await page.goto("/compose")
    await page.get_by_label("To", exact=True).fill("ana@example.com")
    await page.get_by_label("Subject").fill("Later")
    await page.get_by_text("Send later").click()
    await expect(page.locator("#zone")).to_have_text("in America/New_York, where you are")
    await page.get_by_label("Time").fill("2027-01-31T09:30")
    await page.keyboard.press("Control+Enter")
    await page.wait_for_url("**/outgoing/msg_*")

    (entry,) = (await call(installation.owner, list_outbox, {"status": "scheduled"})).results
    assert "2027-01-31T14:30:00+00:00" == (entry.send_at and entry.send_at.isoformat())
    assert "2027-01-31T09:30" == await page.get_by_label("New time").input_value()
    await page.get_by_label("New time").fill("2027-02-01T08:00")
    await page.get_by_role("button", name="Reschedule").click()
    await expect(page.get_by_role("status")).to_have_text("Scheduled.")
    (entry,) = (await call(installation.owner, list_outbox, {"status": "scheduled"})).results
    assert "2027-02-01T13:00:00+00:00" == (entry.send_at and entry.send_at.isoformat())
    await page.get_by_role("button", name="Cancel and edit as draft").click()
    await page.wait_for_url("**/drafts/drf_*")
    assert "2027-02-01T08:00" == await page.get_by_label("Time").input_value()


async def test_held_mail_is_decided_with_the_keyboard_alone(
    browser: Browser, installation: WebInstallation
) -> None:
    first, second = await installation.hold(subject="One"), await installation.hold(subject="Two")
    page = await signed_in(browser, installation)
    await page.goto("/outgoing")

    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/outgoing/{second}")
    await page.keyboard.press("j")
    await page.wait_for_url(f"**/outgoing/{first}")
    await page.keyboard.press("k")
    await page.wait_for_url(f"**/outgoing/{second}")
    await page.keyboard.press("y")
    await expect(page.get_by_role("button", name="Approve")).to_be_focused()
    assert "held" == (await installation.message(second)).status
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/outgoing/{first}?notice=approved*next")
    await page.keyboard.press("n")
    await page.keyboard.type("Not this yen.")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/outgoing?notice=rejected")

    assert ["queued", "rejected"] == [
        (await installation.message(message_id)).status for message_id in (second, first)
    ]
    hold = (await installation.message(first)).hold
    assert hold is not None
    assert "Not this yen." == hold.note


async def test_known_contacts_are_completed(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    for number in range(3):
        await incoming.arrive(f"Soup {number}", message_id=f"<{number}@x>")
    page = await signed_in(browser, installation)
    await page.goto("/compose")

    to = page.get_by_label("To", exact=True)
    await to.press_sequentially("bo@example.com, an")
    await expect(page.get_by_role("option")).to_have_text("ana@example.com")
    await to.press("Enter")

    await expect(to).to_have_value("bo@example.com, ana@example.com, ")
    await expect(page.get_by_role("option")).to_have_count(0)


async def test_every_state_of_outgoing_mail_is_accessible(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    asked = await incoming.arrive("Lunch?", "Where?", attachments=[("m.txt", "text/plain", b"x")])
    paths = [f"/compose?reply={asked}&all=yes", f"/compose?forward={asked}"]
    for answer in ({"RCPT": b"550 5.1.1 nobody"}, {"DOT": CUT}, {"RCPT": b"451 4.7.1 later"}):
        mail = {"to": ["a@example.com"], "subject": str(answer), "body_text": "x"}
        sent = await call(installation.owner, send_message, mail)
        async with relaying(answer) as relay, relay_worker(installation.owner, relay) as worker:
            await worker.finish(1)
        paths.append(f"/outgoing/{sent.message_id}")
    later = {"to": ["a@example.com"], "subject": "L", "body_text": "x", "send_at": "2026-06-09"}
    paths.append(f"/outgoing/{(await call(installation.owner, send_message, later)).message_id}")
    html = {"body_text": None, "body_html": "<p>Hello.</p>", "in_reply_to": asked}
    paths += [f"/outgoing/{await installation.hold(**html)}", "/outgoing"]

    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        page = await signed_in(browser, installation, viewport=size, color_scheme=scheme)
        for path in paths:
            await page.goto(path)
            if "/compose" in path:
                await page.get_by_text("Send later").click()
                await page.evaluate(DROP, ["file.txt"])
                await expect(page.locator("#draft-files")).to_contain_text("file.txt")
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert (path, 0) >= (path, wide)
            assert (path, "") == (path, await violations(page))
        await page.context.close()
