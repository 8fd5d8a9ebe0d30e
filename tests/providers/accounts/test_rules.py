"""Rules on mail that comes from an account: their work is done at the provider too, once."""

from __future__ import annotations

import asyncio
import imaplib
import time
from pathlib import Path
from typing import Any

from postroom.app import open_app
from postroom.config import read_settings
from postroom.operations import keys, memories, rules, webhooks
from tests.providers.accounts.conftest import Desk, open_desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.worlds import ImapWorld, Standing, World, open_world

DONE = {
    "mark": "{apply_label: Books}, {apply_label: To pay}, mark_read, flag",
    "archive": "archive",
    "delete": "delete",
    "junk": "{move: Junk}",
    "project": "{move: Projects}",
}
"""What a rule does with a mail whose subject has the word."""

_GRAPH_NAMES = {"Junk Email": "Junk", "Deleted Items": "Trash"}


async def keep_rule(desk: Desk, then: str, *, word: str = "invoice") -> None:
    text = f"name: r\nwhen: [{{subject: {{contains: {word}}}}}]\nthen: [{then}]"
    await ask(desk, rules.create_rule, rule_yaml=text, dry_run=False)


def shown(there: Standing | None) -> tuple[int, frozenset[str], str]:
    """How many labels, which flags, and where; some keywords spell labels in their own way."""
    assert there is not None
    return len(there.labels), there.flags, _GRAPH_NAMES.get(there.mailbox, there.mailbox)


async def applied(desk: Desk) -> list[Any]:
    """What rules did at arrivals, as the log has it."""
    page = await ask(desk, keys.list_audit, limit=100)
    return [entry for entry in page.results if entry.action == "rule_applied"]


async def sync_until_quiet(desk: Desk, world: World) -> None:
    """Passes enough for an echo to come back, and one that compares everything."""
    for _ in range(2):
        await desk.sync()
    world.expire()
    for _ in range(2):
        await desk.sync()


async def test_what_rules_do_at_arrival_is_done_at_the_provider_and_once(
    desk: Desk, world: World
) -> None:
    for word, then in DONE.items():
        await keep_rule(desk, then, word=word)
        world.deliver(outgoing_mail(f"A mail to {word}"))
    world.deliver(outgoing_mail("A mail to nobody"))
    await desk.sync()
    there = {word: world.find(f"A mail to {word}") for word in (*DONE, "nobody")}
    before = {row.subject: row.id for row in await desk.rows()}
    world.archive("A mail to mark")
    await sync_until_quiet(desk, world)
    here = {row.subject.rsplit()[-1]: row for row in await desk.rows()}

    assert (2, {"seen", "flagged"}, "Inbox") == shown(there["mark"])
    assert (0, frozenset(), "Inbox") == shown(there["nobody"])
    for word, mailbox in (("archive", "Archive"), ("delete", "Trash"), ("junk", "Junk")):
        assert (0, frozenset(), mailbox) == shown(there[word])
        assert (mailbox,) == here[word].mailboxes
    project = there["project"]
    assert project is not None
    assert "Projects" in (project.mailbox, *(label.title() for label in project.labels))
    assert "Projects" in (*here["project"].mailboxes, *here["project"].labels)
    assert "Inbox" not in (*here["project"].mailboxes, project.mailbox)
    assert before == {row.subject: row.id for row in here.values()}
    assert ({"Books", "To pay"}, ("Archive",)) == (set(here["mark"].labels), here["mark"].mailboxes)
    assert {"seen", "flagged"} == set(here["mark"].flags)
    assert len(DONE) == len(await applied(desk))
    assert await desk.app.services.store.next_push_at("work") is None


async def test_what_is_sent_is_sent_once(desk: Desk, world: World) -> None:
    hook = await ask(desk, webhooks.create_webhook, url="https://hooks.example/x")
    await keep_rule(
        desk,
        "{forward: bo@elsewhere.example}, {reply: We have it.}, "
        f"{{webhook: {hook.id}}}, {{remember: {{key: last, text: came}}}}",
    )
    world.deliver(outgoing_mail("Hello"))
    world.deliver(outgoing_mail("Invoice 7", sender="Cy <cy@elsewhere.example>"))
    await desk.sync()
    outbox = desk.app.outbox()
    work = asyncio.create_task(outbox.run())
    rule_jobs = desk.app.rule_jobs()
    first = await rule_jobs.run_due("tester")
    await outbox.finish(20)
    await sync_until_quiet(desk, world)
    second = await rule_jobs.run_due("tester")
    await outbox.finish(20)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)

    assert (2, 0) == (first, second)
    sent = world.sent()
    assert [1, 1] == [len([raw for raw in sent if word in raw]) for word in (b"Fwd:", b"We have")]
    assert 2 == len(sent)
    told = await ask(desk, webhooks.list_deliveries, webhook_id=hook.id)
    assert 1 == len([d for d in told.results if d.type == "rule.matched"])
    kept = await ask(desk, memories.memory_get, key="last")
    assert ("came", 1) == (kept.text, kept.version)


def lay(world: ImapWorld, mailbox: str, raw: bytes, *, age_s: float = 0) -> None:
    at = imaplib.Time2Internaldate(time.time() - age_s)
    assert world.imap.append(mailbox, "", at, raw)[0] == "OK"


async def test_rules_leave_alone_what_was_there_before_and_what_is_junk(tmp_path: Path) -> None:
    values = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_SECRETS": "file"}
    async with (
        open_world("imap") as world,
        open_app(read_settings(values).settings) as app,
    ):
        assert isinstance(world, ImapWorld)
        lay(world, "INBOX", outgoing_mail("Invoice of old"), age_s=3600)
        desk = await open_desk(app, world)
        await keep_rule(desk, "flag, {forward: bo@elsewhere.example}")
        lay(world, "Junk", outgoing_mail("Invoice of nobody"))
        lay(world, "INBOX", outgoing_mail("Invoice of today"))
        await desk.sync()

        flagged = {row.subject for row in await desk.rows() if "flagged" in row.flags}
        assert {"Invoice of today"} == flagged
        assert 1 == len(await applied(desk))
        assert 1 == await app.rule_jobs().run_due("tester")
