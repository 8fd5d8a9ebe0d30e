"""Rules on mail of an account: their changes are pushed to the provider once."""

from __future__ import annotations

import asyncio
import imaplib
import time
from pathlib import Path
from typing import Any

from postroom.app import open_app
from postroom.config import read_settings
from postroom.operations import keys, memories, rules, webhooks
from tests.providers.accounts.conftest import SyncedAccount, add_synced_account
from tests.providers.accounts.remote_mailboxes import (
    ImapRemote,
    RemoteMailbox,
    RemoteState,
    open_remote,
)
from tests.providers.accounts.test_every_provider import ask, outgoing_mail

DONE = {
    "mark": "{apply_label: Books}, {apply_label: To pay}, mark_read, flag",
    "archive": "archive",
    "delete": "delete",
    "junk": "{move: Junk}",
    "project": "{move: Projects}",
}
"""The actions of a rule on mail whose subject contains the word."""

_GRAPH_NAMES = {"Junk Email": "Junk", "Deleted Items": "Trash"}


async def keep_rule(synced: SyncedAccount, then: str, *, word: str = "invoice") -> None:
    text = f"name: r\nwhen: [{{subject: {{contains: {word}}}}}]\nthen: [{then}]"
    await ask(synced, rules.create_rule, rule_yaml=text, dry_run=False)


def shown(there: RemoteState | None) -> tuple[int, frozenset[str], str]:
    """The number of labels, the flags, and the mailbox; some servers change the case of
    keywords.
    """
    assert there is not None
    return len(there.labels), there.flags, _GRAPH_NAMES.get(there.mailbox, there.mailbox)


async def applied(synced: SyncedAccount) -> list[Any]:
    """The rules that ran on arriving mail, from the audit log."""
    page = await ask(synced, keys.list_audit, limit=100)
    return [entry for entry in page.results if entry.action == "rule_applied"]


async def sync_until_quiet(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    """Sync until an echo of the changes would have come back, including a full comparison."""
    for _ in range(2):
        await synced.sync()
    remote.expire()
    for _ in range(2):
        await synced.sync()


async def test_changes_of_rules_at_arrival_are_pushed_once(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    for word, then in DONE.items():
        await keep_rule(synced, then, word=word)
        remote.deliver(outgoing_mail(f"A mail to {word}"))
    remote.deliver(outgoing_mail("A mail to nobody"))
    await synced.sync()
    there = {word: remote.find(f"A mail to {word}") for word in (*DONE, "nobody")}
    before = {row.subject: row.id for row in await synced.rows()}
    remote.archive("A mail to mark")
    await sync_until_quiet(synced, remote)
    here = {row.subject.rsplit()[-1]: row for row in await synced.rows()}

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
    assert len(DONE) == len(await applied(synced))
    assert await synced.app.services.store.next_push_at("work") is None


async def test_mail_of_a_rule_is_sent_once(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    hook = await ask(synced, webhooks.create_webhook, url="https://hooks.example/x")
    await keep_rule(
        synced,
        "{forward: bo@elsewhere.example}, {reply: We have it.}, "
        f"{{webhook: {hook.id}}}, {{remember: {{key: last, text: came}}}}",
    )
    remote.deliver(outgoing_mail("Hello"))
    remote.deliver(outgoing_mail("Invoice 7", sender="Cy <cy@elsewhere.example>"))
    await synced.sync()
    outbox = synced.app.outbox()
    work = asyncio.create_task(outbox.run())
    rule_jobs = synced.app.rule_jobs()
    first = await rule_jobs.run_due("tester")
    await outbox.finish(20)
    await sync_until_quiet(synced, remote)
    second = await rule_jobs.run_due("tester")
    await outbox.finish(20)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)

    assert (2, 0) == (first, second)
    sent = remote.sent()
    assert [1, 1] == [len([raw for raw in sent if word in raw]) for word in (b"Fwd:", b"We have")]
    assert 2 == len(sent)
    told = await ask(synced, webhooks.list_deliveries, webhook_id=hook.id)
    assert 1 == len([d for d in told.results if d.type == "rule.matched"])
    kept = await ask(synced, memories.memory_get, key="last")
    assert ("came", 1) == (kept.text, kept.version)


def lay(remote: ImapRemote, mailbox: str, raw: bytes, *, age_s: float = 0) -> None:
    at = imaplib.Time2Internaldate(time.time() - age_s)
    assert remote.imap.append(mailbox, "", at, raw)[0] == "OK"


async def test_rules_skip_existing_mail_and_junk(tmp_path: Path) -> None:
    values = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_SECRETS": "file"}
    async with (
        open_remote("imap") as remote,
        open_app(read_settings(values).settings) as app,
    ):
        assert isinstance(remote, ImapRemote)
        lay(remote, "INBOX", outgoing_mail("Invoice of old"), age_s=3600)
        synced = await add_synced_account(app, remote)
        await keep_rule(synced, "flag, {forward: bo@elsewhere.example}")
        lay(remote, "Junk", outgoing_mail("Invoice of nobody"))
        lay(remote, "INBOX", outgoing_mail("Invoice of today"))
        await synced.sync()

        flagged = {row.subject for row in await synced.rows() if "flagged" in row.flags}
        assert {"Invoice of today"} == flagged
        assert 1 == len(await applied(synced))
        assert 1 == await app.rule_jobs().run_due("tester")
