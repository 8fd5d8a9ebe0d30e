"""Rules in a real browser: written with errors and completion, planned, applied and undone."""

from __future__ import annotations

import re

from playwright.async_api import Browser, Page, expect

from postroom.calls.operation import call
from postroom.operations import rules
from tests.surfaces.web.chromium import DESKTOP, PHONE, browser, obstacles, signed_in
from tests.surfaces.web.conftest import WebInstallation
from tests.surfaces.web.mail.conftest import IncomingMail, incoming
from tests.surfaces.web.rules.rule_helpers import saved

__all__ = ["browser", "incoming"]

BROKEN = "name: Bills\nwhen:\n  - subjct: {contains: invoice}\nthen: [archive]\n"
BILLS = BROKEN.replace("subjct", "subject")


async def labels_of(installation: WebInstallation, message_id: str) -> tuple[object, object]:
    message = await installation.message(message_id)
    return message.labels, message.mailboxes


async def type_at_the_end(page: Page, text: str) -> None:
    await page.get_by_label("Rule (YAML)").focus()
    await page.keyboard.press("Control+End")
    await page.keyboard.type(text)


async def test_a_rule_is_written_planned_applied_and_undone(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    invoice = await incoming.arrive("Invoice 7")
    await incoming.arrive("Lunch")
    page = await signed_in(browser, installation, viewport=DESKTOP)
    errors: list[str] = []
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))

    await page.get_by_role("link", name="Rules").click()
    await page.get_by_role("link", name="New rule").click()
    text = page.get_by_label("Rule (YAML)")
    await text.fill(BROKEN)
    problem = page.locator("#problems li")
    await expect(problem).to_contain_text("unknown field `subjct`")
    await expect(problem).to_contain_text("did you mean `subject`?")
    await expect(page.locator(".lines .error")).to_have_text("3")
    await problem.get_by_role("link", name="Line 3").click()
    assert "subjct" in await page.evaluate("getSelection().toString()")
    await text.fill(BILLS.rpartition("then")[0])

    await type_at_the_end(page, "then: [ap")
    await expect(page.locator("#completions li")).to_have_text(["apply_label"])
    await page.keyboard.press("Tab")
    await expect(text).to_be_focused()
    await type_at_the_end(page, "Bookkeeping, arch")
    await page.keyboard.press("Enter")
    await type_at_the_end(page, "]")
    await expect(page.locator("#problems")).to_contain_text("No problems.")

    await page.get_by_role("button", name="Preview plan", exact=True).click()
    row = page.locator("table.plan tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("Invoice 7")
    await expect(row).to_contain_text('subject contains "invoice"')
    await expect(row).to_contain_text(re.compile(r"mailbox\s+Inbox\s+→"))
    await page.get_by_role("button", name="Apply to 1 message").click()
    await expect(page.get_by_role("status")).to_contain_text("Applied.")
    assert (("Bookkeeping",), ("Archive",)) == await labels_of(installation, invoice)
    assert "apply_label" in await text.input_value()  # what was typed is still there

    await page.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("status")).to_contain_text("Undone")
    assert ((), ("Inbox",)) == await labels_of(installation, invoice)

    await page.get_by_role("button", name="Save rule").click()
    await page.wait_for_url("**/rules/rul_*?notice=*")
    assert 1 == (await call(installation.owner, rules.list_rules, {})).total
    assert [] == errors  # nor was anything stopped by the Content-Security-Policy


async def test_a_person_without_javascript_writes_plans_applies_and_undoes_a_rule(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    invoice = await incoming.arrive("Invoice 7")
    page = await signed_in(browser, installation, viewport=PHONE, java_script_enabled=False)

    await page.goto("/rules")
    await page.get_by_role("link", name="Archive receipts").click()
    await page.get_by_label("Rule (YAML)").fill(BROKEN)
    await page.get_by_role("button", name="Save rule").click()
    assert "Line 3" in await page.locator("#problems").inner_text()
    await page.get_by_label("Rule (YAML)").fill(BILLS)
    await page.get_by_role("button", name="Save rule").click()
    await page.wait_for_url("**/rules/rul_*?notice=*")
    await page.get_by_role("button", name="Preview plan", exact=True).click()
    await page.get_by_role("button", name="Apply to 1 message").click()
    await page.wait_for_url("**/rules/plans/pln_*?notice=*")
    assert ((), ("Archive",)) == await labels_of(installation, invoice)

    await page.goto("/rules/runs")
    await page.get_by_role("button", name="Undo").click()

    assert "Undone" in await page.get_by_role("status").inner_text()
    assert ((), ("Inbox",)) == await labels_of(installation, invoice)


COMPLETIONS = {
    "name: a\nwhe": ["when"],
    "when:\n  - fro": ["from"],
    "when:\n  - subject: {cont": ["contains"],
    "when:\n  - size_bytes: {gre": ["greater_than"],
    "when:\n  - flag: {equals: ans": ["answered"],
    "when:\n  - flag: [seen, dra": ["draft"],
    "when:\n  - label:\n      equals: boo": ["Bookkeeping"],
    "when:\n  any:\n    - has_a": ["has_attachment"],
    "when: [{not: {list": ["list_id"],
    "then:\n  - move: Arc": ["Archive"],
    "then: [mark_u": ["mark_unread"],
    "when: [{from: {equals: ana@": ["ana@example.com"],
    "safety: {max": ["max_messages"],
    "inbox: me@": ["me@postroom.localhost"],
    "name: from": [],
}


async def test_names_and_values_are_completed_by_context(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    message = await incoming.arrive("Invoice 7")
    made = await saved(
        installation, BILLS.replace("archive", "{apply_label: Bookkeeping}, archive")
    )
    plan = await call(installation.owner, rules.run_rule_plan, {"rule_id": made.id})
    await call(installation.owner, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    assert "Bookkeeping" in (await installation.message(message)).labels
    page = await signed_in(browser, installation)
    await page.goto("/rules/new")
    field = page.get_by_label("Rule (YAML)")

    found = {}
    for typed in COMPLETIONS:
        await field.fill(typed[:-1])
        await type_at_the_end(page, typed[-1])
        found[typed] = await page.locator("#completions li").all_inner_texts()
        await page.keyboard.press("Escape")
    await field.fill("")
    await page.keyboard.press("Tab")

    assert COMPLETIONS == found
    await expect(field).not_to_be_focused()  # Tab leaves the field when nothing is suggested


async def test_two_versions_are_compared_on_stored_mail(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    for subject in ("Invoice 7", "Receipt 8", "Invoice and receipt 9"):
        await incoming.arrive(subject)
    made = await saved(installation, BILLS)
    page = await signed_in(browser, installation)
    await page.goto(f"/rules/{made.id}")

    await page.get_by_label("Rule (YAML)").fill(
        BILLS.replace("invoice", "receipt").replace("archive", "flag")
    )
    await page.get_by_text("Back-test").click()
    await page.get_by_role("button", name="Compare").click()

    rows = page.locator("table.comparison tbody tr")
    await expect(rows).to_have_count(3)
    await expect(page.locator("tr.gone")).to_contain_text("Invoice 7")
    await expect(page.locator("tr.gone")).to_contain_text("does not match")
    await expect(page.locator("tr.added")).to_contain_text("Receipt 8")
    await expect(page.locator("tr.changed")).to_contain_text("Invoice and receipt 9")
    await expect(page.locator("tr.changed")).to_contain_text("archive")
    assert 0 == (await call(installation.owner, rules.list_rules, {})).results[0].yaml.count(
        "receipt"
    )


async def test_the_pages_of_rules_fit_every_screen(
    browser: Browser, installation: WebInstallation, incoming: IncomingMail
) -> None:
    paths = await some_rules(installation, incoming)
    page = await signed_in(browser, installation, reduced_motion="reduce")

    for name, path in paths.items():
        await page.goto(path)
        if name == "planned":
            await page.get_by_role("button", name="Preview plan", exact=True).click()
            await page.locator("table.plan").wait_for()
        if name == "compared":
            await page.get_by_text("Back-test").click()
            await page.get_by_label("Other version").fill(BILLS.replace("archive", "flag"))
            await page.get_by_role("button", name="Compare").click()
            await page.locator("table.comparison").wait_for()
        assert (name, {}) == (name, await obstacles(page))


async def some_rules(installation: WebInstallation, incoming: IncomingMail) -> dict[str, str]:
    """Typical rules; returns the paths of their pages by name."""
    inbox = await incoming.inbox()
    for number in range(3):
        await incoming.arrive(
            f"Invoice {number} for the last quarter", sender="Ana <ana@shop.example>"
        )
    bills = f"inbox: {inbox.address}\ndescription: Suppliers\n{BILLS}"
    text = bills.replace("archive", "{apply_label: Bookkeeping}, mark_read, archive")
    made = await saved(installation, text)
    plan = await call(installation.owner, rules.run_rule_plan, {"rule_id": made.id})
    await call(installation.owner, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    odd = BILLS.replace("Bills", "W" * 90).replace(
        "subject: {contains: invoice}", "from: shop.example"
    )
    strange = await saved(installation, odd)
    sends = BILLS.replace("archive", "{forward: ana@example.com}, flag").replace("Bills", "On")
    forward = await saved(installation, sends)
    await call(installation.owner, rules.update_rule, {"rule_id": forward.id, "enabled": False})
    await incoming.arrive("Invoice 4, new", sender="Ana <ana@shop.example>")
    return {
        "list": "/rules",
        "new": "/rules/new?template=receipts",
        "broken": f"/rules/{strange.id}",
        "planned": f"/rules/{forward.id}",
        "compared": f"/rules/{made.id}",
        "plan": f"/rules/plans/{plan.plan_id}",
        "runs": "/rules/runs",
    }
