"""Memories, accounts, keys, webhooks and connect in a real browser, with and without JavaScript."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from postroom.calls.authentication import authenticate
from postroom.calls.operation import call
from postroom.operations.accounts import get_account
from postroom.operations.memories import memory_add, memory_update
from postroom.operations.webhooks import create_webhook, list_webhooks
from postroom.pipeline.sync import sync_once
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.webhook_receiver import receiving, until_deliveries_are, webhook_worker
from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.graph import Graph
from tests.servers.oauth import AuthorizationServer
from tests.surfaces.web.chromium import (
    DESKTOP,
    NARROW,
    PHONE,
    browser,
    signed_in,
    violations,
)
from tests.surfaces.web.conftest import WebInstallation
from tests.surfaces.web.test_accounts import dovecot, graph, login
from tests.surfaces.web.test_accounts import settings as account_settings

__all__ = ["account_settings", "browser", "dovecot", "graph", "login"]

CLIPBOARD = ["clipboard-read", "clipboard-write"]
KEY = re.compile("^Key")
LONG = "a" * 90


@pytest.fixture
def settings(account_settings: dict[str, str]) -> dict[str, str]:
    return {**account_settings, "POSTROOM_WEBHOOK_ALLOW": "127.0.0.0/8"}


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name).click()


async def follow(page: Page, name: str) -> None:
    await page.get_by_role("link", name=name).first.click()


async def make_key(page: Page, name: str) -> str:
    await page.goto("/keys")
    await follow(page, "New key")
    await page.get_by_label("Name").fill(name)
    await page.get_by_role("radio", name="Agent that sends with approval").check()
    await press(page, "Create key")
    return await page.locator("#key").inner_text()


async def revoke_key(page: Page, name: str) -> None:
    await page.goto("/keys")
    await follow(page, name)
    await follow(page, "Revoke key…")
    await press(page, "Revoke key")
    await page.wait_for_url("**/keys?notice=key+revoked")


async def test_a_key_is_copied_tried_and_revoked(
    browser: Browser, installation: WebInstallation
) -> None:
    page = await signed_in(browser, installation, viewport=DESKTOP, permissions=CLIPBOARD)

    key = await make_key(page, "Helper")
    await press(page, "Copy")
    await expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = await page.evaluate("navigator.clipboard.readText()")
    await page.goto("/connect?client=codex")
    await page.get_by_role("textbox", name=KEY).fill(copied)
    await press(page, "Run test")
    works = await page.locator("#test [role=status]").inner_text()
    await revoke_key(page, "Helper")
    await page.goto("/connect")
    await page.get_by_role("textbox", name=KEY).fill(copied)
    await press(page, "Run test")
    refused = await page.locator("#test [role=status]").inner_text()

    assert key == copied
    assert works.startswith("The test succeeded")
    assert refused.startswith("The test failed")
    assert page.url.endswith("/connect"), "the answer is put into the page"


async def test_memories_are_searched_as_one_types_and_a_conflict_is_shown(
    browser: Browser, installation: WebInstallation
) -> None:
    page = await signed_in(browser, installation, viewport=DESKTOP)
    await page.goto("/memories")
    await follow(page, "New memory")
    await page.get_by_role("textbox", name=KEY).fill("ana/invoices")
    await page.get_by_label("Text", exact=True).fill("Ana wants invoices as PDF.")
    await press(page, "Save")
    await call(installation.owner, memory_add, {"key": "bo", "text": "Bo is on holiday in July."})

    await page.goto("/memories")
    await page.get_by_role("radio", name="containing all words").check()
    await page.get_by_role("searchbox").press_sequentially("holiday")
    await expect(page.locator(".memory-row")).to_have_count(1)
    found = await page.locator(".memory-row .who").inner_text()
    await expect(page).to_have_url(re.compile("q=holiday"))
    await page.goto("/memories/edit?namespace=default&key=ana%2Finvoices")
    await call(
        installation.owner, memory_update, {"key": "ana/invoices", "text": "Ana wants paper."}
    )
    await page.get_by_label("Text", exact=True).fill("Ana wants XML.")
    await press(page, "Save")
    theirs = await page.locator(".theirs pre").inner_text()
    await press(page, "Overwrite with my version")

    assert "bo" == found
    assert "Ana wants paper." == theirs
    assert "Ana wants XML." == await page.locator("pre.mail").first.inner_text()


async def test_a_webhook_is_pinged_and_a_delivery_made_again(
    browser: Browser, installation: WebInstallation
) -> None:
    page = await signed_in(browser, installation, viewport=DESKTOP)
    inbox = await new_inbox(installation.app.services, "shop")
    async with receiving() as receiver, webhook_worker(installation.owner):
        await page.goto("/webhooks")
        await follow(page, "New webhook")
        await page.get_by_label("URL").fill(receiver.url)
        await page.get_by_role("checkbox", name="message.received").check()
        await press(page, "Create webhook")
        secret = await page.locator("#secret").inner_text()
        await follow(page, "Continue to the webhook")
        await press(page, "Send ping")
        await expect(page.get_by_text("Ping succeeded: 204.")).to_be_visible()
        await deliver(installation.app.services, inbox, mail("An order"))
        (webhook,) = (await call(installation.owner, list_webhooks, {})).results
        await until_deliveries_are(installation.owner, webhook, "delivered")
        await page.goto(f"/webhooks/{webhook.id}")
        await page.locator("#deliveries a.row").click()
        body = await page.locator("#body").inner_text()
        await press(page, "Redeliver")
        await receiver.has(3)

    assert secret.startswith("whsec_")
    assert '"subject": "An order"' in body
    assert receiver.got[1][1] == receiver.got[2][1]


async def test_accounts_are_added_with_a_password_and_with_a_code(
    browser: Browser,
    installation: WebInstallation,
    dovecot: Dovecot,
    login: AuthorizationServer,
    graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = await signed_in(browser, installation, viewport=DESKTOP)
    await page.goto("/accounts")
    await follow(page, "Add an account")
    await follow(page, "IMAP")
    await page.get_by_label("E-mail address").fill("alice@example.com")
    await page.get_by_label("Short name").fill("work")
    await page.get_by_label("IMAP server").fill("127.0.0.1")
    await page.get_by_label("Port").first.fill(str(dovecot.imaps))
    await page.get_by_label("User name").fill("alice")
    await page.get_by_text("Custom certificate").click()
    await page.get_by_label("Certificate file").fill(str(dovecot.certificate))
    await page.get_by_label("Password").fill("wrong")
    await press(page, "Test and add")
    refused = await page.get_by_role("alert").inner_text()
    emptied = await page.get_by_label("Password").input_value()
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Test and add")
    await page.wait_for_url("**/accounts/work?notice=account+added")
    account = await call(installation.owner, get_account, {"account_id": "work"})
    assert await sync_once(installation.app.services, account)
    await expect(page.locator("#progress-work progress, #progress-work[hx-trigger]")).to_have_count(
        0, timeout=10_000
    )

    monkeypatch.setattr(graph, "address", "bob@example.com")
    login.pending = 2
    await page.goto("/accounts/new?provider=outlook")
    await page.get_by_label("E-mail address").fill("bob@example.com")
    await page.get_by_label("Short name").fill("office")
    await press(page, "Continue to sign-in")
    code = await page.locator("#code").inner_text()
    await page.wait_for_url("**/accounts/office?notice=account+added", timeout=15_000)

    assert "app password" in refused
    assert "" == emptied
    assert "ABCD" == code


@pytest.mark.parametrize("size", [PHONE], ids=["phone"])
async def test_everything_works_without_javascript(
    browser: Browser,
    installation: WebInstallation,
    login: AuthorizationServer,
    size: dict[str, int],
) -> None:
    page = await signed_in(browser, installation, viewport=size, java_script_enabled=False)

    key = await make_key(page, "Phone")
    await page.goto("/connect?client=curl")
    await page.get_by_role("textbox", name=KEY).fill(key)
    await press(page, "Run test")
    works = await page.locator("#test [role=status]").inner_text()
    await page.goto("/connect?client=curl")
    await press(page, "Create a key for curl")
    line = await page.locator("#lines-1").inner_text()
    await revoke_key(page, "Phone")
    await page.goto("/memories/new")
    await page.get_by_role("textbox", name=KEY).fill("k")
    await page.get_by_label("Text", exact=True).fill("Learnt.")
    await press(page, "Save")
    await follow(page, "Delete")
    await press(page, "Delete memory")
    await page.wait_for_url("**/memories?namespace=default&notice=forgotten")
    login.pending = 1
    await page.goto("/accounts/new?provider=outlook")
    await page.get_by_label("E-mail address").fill("alice@example.com")
    await page.get_by_label("Short name").fill("office")
    await press(page, "Continue to sign-in")
    await press(page, "Check now")
    await press(page, "Check now")
    await page.wait_for_url("**/accounts/office?notice=account+added")
    await follow(page, "Remove account…")
    await press(page, "Remove account")
    await page.wait_for_url("**/accounts?notice=account+removed")

    assert works.startswith("The test succeeded")
    assert not await page.get_by_role("button", name="Copy").count()
    assert re.search(r"Bearer pk_[\w-]+", line)


async def populated(installation: WebInstallation, dovecot: Dovecot, page: Page) -> list[str]:
    """An installation with long names everywhere, and its pages."""
    key = await installation.key(
        "read", "write", "send", approval="always", expires_at="30d",
        recipients={"allow": [f"{LONG[:60]}@example.com"], "deny": ["@evil.example"]},
    )  # fmt: skip
    made = (await authenticate(installation.app.services, key)).key_id
    memory = {"key": f"ana/{LONG}", "text": f"Ana wants PDF. {LONG}\n" * 5, "tags": ["billing"]}
    links = [{"type": "about", "to": f"{LONG[:60]}@example.com"}]
    await call(installation.owner, memory_add, {**memory, "links": links})
    await call(installation.owner, memory_add, {"key": "bo", "text": "x", "namespace": "shop"})
    inbox = await new_inbox(installation.app.services, "shop")
    async with receiving() as receiver, webhook_worker(installation.owner):
        given = {"url": f"{receiver.url}&{LONG}"}
        webhook = await call(installation.owner, create_webhook, given)
        await deliver(installation.app.services, inbox, mail(f"Order {LONG}"))
        await until_deliveries_are(installation.owner, webhook, "delivered")
    await page.goto("/accounts/new?provider=imap")
    form = {"address": "alice@example.com", "account_id": "work", "user": "alice",
            "password": PASSWORD, "host": "127.0.0.1", "port": str(dovecot.imaps)}  # fmt: skip
    for name, value in form.items():
        await page.locator(f"#{name}").fill(value)
    await page.get_by_text("Custom certificate").click()
    await page.locator("#ca_file").fill(str(dovecot.certificate))
    await press(page, "Test and add")
    await page.wait_for_url("**/accounts/work?*")
    store = installation.app.services.store
    await store.set_account_state("work", "needs_reauth", f"work: refused {LONG}; run: x")
    await page.goto(f"/webhooks/{webhook.id}")
    delivery = await page.locator("#deliveries a.row").get_attribute("href") or ""
    place = f"namespace=default&key=ana%2F{LONG}"
    return [
        *("/keys", "/keys/new", f"/keys/{made}", f"/keys/{made}/revoke", "/sessions"),
        *("/webhooks", "/webhooks/new", f"/webhooks/{webhook.id}", delivery),
        *("/memories", "/memories/new"),
        *(f"/memories/{name}?{place}" for name in ("read", "edit", "delete")),
        *("/accounts", "/accounts/new", "/accounts/new?provider=imap", "/accounts/work"),
        *("/accounts/work/remove", "/accounts/back?state=x", "/connect"),
    ]


async def test_no_page_is_wider_than_the_screen_and_all_can_be_used(
    browser: Browser, installation: WebInstallation, dovecot: Dovecot
) -> None:
    # No colour may be in transition when it is measured.
    page = await signed_in(browser, installation, viewport=DESKTOP, reduced_motion="reduce")
    for path in await populated(installation, dovecot, page):
        await page.goto(path)
        for size in (NARROW, PHONE, DESKTOP):
            await page.set_viewport_size(size)
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert (path, size["width"], 0) >= (path, size["width"], wide)
        assert (path, "") == (path, await violations(page))
        await page.emulate_media(color_scheme="dark")
        assert (path, "") == (path, await violations(page, "color-contrast"))
        await page.emulate_media(color_scheme="light")

    await page.goto("/keys/new")
    await page.get_by_text("Limit access").click()
    await page.get_by_role("radio", name="Custom").check()
    assert "" == await violations(page)
    await page.get_by_label("Name").fill("Seen")
    await page.get_by_role("radio", name="Read only").check()
    await press(page, "Create key")
    assert "" == await violations(page)
