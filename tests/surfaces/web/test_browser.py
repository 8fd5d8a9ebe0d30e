"""The pages in a real browser, with and without JavaScript, on a phone and on a desktop."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.surfaces.web.chromium import SIZES, browser, obstacles, signed_in
from tests.surfaces.web.conftest import WebInstallation

__all__ = ["browser"]

ATTACK = """</pre></textarea><script>document.title="owned"</script><img src=x onerror=alert(1)>
<form action="//evil.example"><a href="javascript:alert(1)">Ten.</a><style>*{display:none}"""


@SIZES
async def test_a_person_without_javascript_approves_a_mail(
    browser: Browser, installation: WebInstallation, size: dict[str, int]
) -> None:
    message_id = await installation.hold()
    page = await signed_in(browser, installation, viewport=size, java_script_enabled=False)

    await page.get_by_role("link", name="1 message is waiting for your approval").click()
    await page.get_by_role("link", name="mallory@evil.example").click()
    await page.get_by_role("button", name="Approve").click()

    await page.wait_for_url(f"{installation.url}/outgoing?notice=approved")
    assert "Approved." in await page.get_by_role("status").inner_text()
    assert "queued" == (await installation.message(message_id)).status


@SIZES
async def test_a_person_without_javascript_rejects_a_mail(
    browser: Browser, installation: WebInstallation, size: dict[str, int]
) -> None:
    message_id = await installation.hold()
    page = await signed_in(browser, installation, viewport=size, java_script_enabled=False)

    await page.goto(f"/outgoing/{message_id}")
    await page.get_by_text("Reject…").click()
    await page.get_by_label("Note to the sender").fill("Too much.")
    await page.get_by_role("button", name="Reject message").click()

    await page.wait_for_url(f"{installation.url}/outgoing?notice=rejected")
    assert "rejected" == (await installation.message(message_id)).status


async def test_a_person_edits_a_mail_and_approves_what_they_wrote(
    browser: Browser, installation: WebInstallation
) -> None:
    message_id = await installation.hold()
    page = await signed_in(browser, installation, java_script_enabled=False)

    await page.goto(f"/outgoing/{message_id}")
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Text").fill("Two per cent.\nNo more.")
    await page.get_by_role("button", name="Send").click()
    changes = await page.get_by_label("Changed since the previous version").inner_text()
    assert "removed: Ten added: Two per cent added: . No more." in " ".join(changes.split())
    new_id = page.url.partition("?")[0].rpartition("/")[2]
    await page.get_by_role("button", name="Approve").click()

    await page.wait_for_url("**/outgoing?notice=approved")
    message = await installation.message(new_id)
    assert ("queued", "Two per cent.\nNo more.") == (message.status, message.text.strip())


async def test_no_page_is_wider_than_the_screen(
    browser: Browser, installation: WebInstallation
) -> None:
    long = "a" * 60 + "@" + "b" * 60 + ".example"
    message_id = await installation.hold(
        to=[long, "ana@example.com"],
        subject="A subject that goes on " * 6,
        body_text="Dear Ana,\n\nhere is the offer.\n\n" + "x" * 300,
        attachments=[{"filename": "n" * 120 + ".csv", "content": "YSxi"}],
    )
    await installation.hold(subject="Short")
    page = await signed_in(browser, installation)
    await page.goto(f"/outgoing/{await installation.hold(to=[long])}")
    await page.get_by_role("button", name="Edit").click()
    draft = page.url

    for name, path in {
        "overview": "/",
        "outgoing": "/outgoing",
        "mail": f"/outgoing/{message_id}",
        "drafts": "/drafts",
        "draft": draft,
        "sessions": "/sessions",
        "signin": "/signin?next=/outgoing",
        "missing": "/outgoing/msg_no",
    }.items():
        await page.goto(path)
        assert (name, {}) == (name, await obstacles(page))


async def test_mail_runs_nothing_and_fetches_nothing(
    browser: Browser, installation: WebInstallation
) -> None:
    message_id = await installation.hold(
        subject='<script>document.title="owned"</script>"><img src=//evil.example/x>',
        body_text=ATTACK,
        attachments=[{"filename": "<img src=x onerror=alert(1)>.txt", "content": "YSxi"}],
    )
    page = await signed_in(browser, installation)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))

    for path in ("/", "/outgoing", f"/outgoing/{message_id}"):
        await page.goto(path)
        assert (
            0 == await page.locator("main script, main img, main style, main a[href^=java]").count()
        )
    await page.get_by_role("button", name="Edit").click()

    assert ATTACK.partition("\n")[0] in await page.get_by_label("Text").input_value()
    assert "owned" not in await page.title()
    assert [] == [url for url in asked if not url.startswith(installation.url)]


async def test_a_page_of_another_origin_cannot_use_the_session(
    browser: Browser, installation: WebInstallation
) -> None:
    """Another port of this machine is the same site, so the browser sends the cookie."""
    message_id = await installation.hold()
    page = await signed_in(browser, installation)
    sha256 = (
        await page.goto(f"/outgoing/{message_id}")
        and await page.locator("input[name=sha256]").first.input_value()
    )
    token = await page.locator("input[name=csrf]").first.input_value()

    form = f"""<form method=post action="{installation.url}/outgoing/{message_id}/approve">
        <input name=sha256 value={sha256}><input name=csrf value={token}></form>"""
    await page.route("http://127.0.0.1:1/", lambda route: route.fulfill(
        body=form, content_type="text/html"))  # fmt: skip
    await page.goto("http://127.0.0.1:1/")
    async with page.expect_response("**/approve") as answered:
        await page.evaluate("document.forms[0].submit()")

    assert 403 == (await answered.value).status
    assert "held" == (await installation.message(message_id)).status
