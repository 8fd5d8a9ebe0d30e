"""An installation that was migrated, backed up or restored sends no mail twice."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.errors import Conflict
from postroom.model.mail.sending import TRANSPORTS
from postroom.surfaces.cli.session import Session
from tests.mails import mail
from tests.surfaces.cli.test_migration import placed, target, write_meanwhile  # noqa: F401 - a fixture
from tests.surfaces.cli.test_outbox_and_webhooks import NOWHERE, OUTGOING

LATER = f"{datetime.now(UTC) + timedelta(days=300):%Y-%m-%d}"


@pytest.fixture
def sender(postroom, inbox, monkeypatch):
    """An installation with unsent mail: two mails to be sent now, one scheduled."""
    monkeypatch.setenv("POSTROOM_RELAY_URL", NOWHERE)
    postroom("send", *OUTGOING)
    postroom("send", *OUTGOING, "--cc", "bob@example.com")
    made = postroom("draft", "create", *OUTGOING, "--send-at", LATER, "-o", "json").json
    postroom("draft", "send", made["id"])
    return postroom


def statuses(postroom, *place: object) -> list[str]:
    listed = postroom(*place, "outbox", "list", "-o", "json").json
    return sorted(row["status"] for row in listed["results"])


def due(data: Path) -> int:
    """The number of mails that a worker started on a folder sends."""
    return Session(data=str(data)).run(claim)


async def claim(app) -> int:
    """The number of mails that a worker claims, once failed attempts are due again."""
    now = datetime.now(UTC) + timedelta(hours=1)
    claimed = await app.services.store.claim_mail(
        "proc_test",
        now=now,
        until=now + timedelta(minutes=1),
        free=dict.fromkeys(TRANSPORTS, 8),
        max_per_domain=100,
    )
    return len(claimed.jobs)


def test_unsent_mail_of_a_restored_backup_is_sent_only_on_request(sender, tmp_path):
    kept, new = tmp_path / "kept", tmp_path / "new"
    sender("backup", kept)
    restored = sender("--data", new, "restore", kept, "-o", "json").json
    told = sender("--data", new, "outbox", "list", "unknown", "-o", "json").json["results"]

    assert 2 == restored["held"]
    assert ["scheduled", "unknown", "unknown"] == statuses(sender, "--data", new)
    assert "may have been sent since" in told[0]["recipients"][0]["detail"]
    assert 0 == due(new)
    retried = sender("--data", new, "outbox", "retry", told[0]["message_id"], "-o", "json").json
    assert "queued" == retried["status"]
    assert 1 == due(new)
    assert 0 == sender("--data", new, "verify").code


def test_an_installation_continues_to_send_after_a_backup(sender, data, tmp_path):
    sender("backup", tmp_path / "kept")

    assert ["queued", "queued", "scheduled"] == statuses(sender)
    assert 2 == due(data)


def test_nothing_is_sent_from_a_backup_itself(sender, tmp_path):
    kept = tmp_path / "kept"
    sender("backup", kept)

    resumed = sender("--data", kept, "outbox", "resume")

    assert 0 == due(kept)
    assert (5, True) == (resumed.code, "postroom restore" in resumed.err)


def test_a_backup_can_be_migrated_more_than_once(sender, tmp_path, target, monkeypatch):  # noqa: F811
    kept, own = tmp_path / "kept", tmp_path / "own"
    sender("backup", kept)

    first = sender("--data", own, "migrate", "--from", kept, "--to", target, "-o", "json")
    again = sender("migrate", "--from", kept, "--to", tmp_path / "again", "-o", "json")

    assert (0, 2) == (first.code, first.json["held"])
    assert (0, 2) == (again.code, again.json["held"])
    assert 0 == sender("--data", kept, "verify").code
    place = placed(target, own, monkeypatch)
    assert ["scheduled", "unknown", "unknown"] == statuses(sender, *place)
    assert 0 == sender(*place, "outbox", "resume").code


def test_after_a_migration_only_the_target_can_be_opened(sender, data, target, monkeypatch):  # noqa: F811
    moved = sender("migrate", "--from", data, "--to", target)
    refused = sender("inbox", "list")
    again = sender("migrate", "--from", data, "--to", target)
    examined = sender("doctor")

    assert 0 == moved.code
    assert (1, True) == (examined.code, "no data is damaged" in examined.out)
    kind = "migrated to another folder" if isinstance(target, Path) else "migrated to PostgreSQL"
    place = str(target) if isinstance(target, Path) else target.rpartition("@")[2]
    for result in (refused, again):
        assert (5, True) == (result.code, f"{kind} ({place})" in result.err)
        assert "postgres@" not in result.err
        assert "postroom migrate" in result.err
    assert ["queued", "queued", "scheduled"] == statuses(sender, *placed(target, data, monkeypatch))


def test_an_mcp_client_gets_the_error_that_the_installation_has_moved(
    sender, forked, data, tmp_path
):
    sender("migrate", "--from", data, "--to", tmp_path / "new")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}

    started = forked("mcp", "--data", data, stdin=json.dumps(hello).encode() + b"\n")

    assert (5, True) == (started.code, "migrated to another folder" in started.err)


def test_a_process_with_the_migrated_source_open_sends_nothing(sender, data, tmp_path):
    words = ("migrate", "--from", data, "--to", tmp_path / "new")

    async def work(app):
        moved = await asyncio.to_thread(sender, *words)
        with pytest.raises(Conflict, match="migrated to another folder"):
            await claim(app)
        return moved.code, await app.services.store.next_mail_at()

    assert (0, None) == Session(data=str(data)).run(work)


def test_a_migrated_installation_is_restored(sender, data, tmp_path, target, monkeypatch):  # noqa: F811
    sender("migrate", "--from", data, "--to", target)
    with monkeypatch.context() as patch:
        sender(*placed(target, data, patch), "inbox", "create", "--username", "since")

    back = sender("migrate", "--from", target, "--to", tmp_path / "back", "-o", "json")

    assert (0, 0) == (back.code, back.json["held"])
    listed = sender("--data", tmp_path / "back", "inbox", "list", "-o", "json").json
    assert {"bo", "since"} == {row["address"].split("@")[0] for row in listed["results"]}
    assert 5 == sender(*placed(target, data, monkeypatch), "inbox", "list").code


def test_the_source_of_a_migration_is_a_backup(sender, data, tmp_path):
    """The way back if the target is lost."""
    sender("migrate", "--from", data, "--to", tmp_path / "lost")

    restored = sender("--data", tmp_path / "new", "restore", data, "-o", "json")

    assert (0, 2) == (restored.code, restored.json["held"])
    assert ["scheduled", "unknown", "unknown"] == statuses(sender, "--data", tmp_path / "new")


def test_a_copy_is_a_backup_and_its_source_continues(sender, data, tmp_path, target):  # noqa: F811
    own = ("--data", tmp_path / "own")
    copied = sender(*own, "migrate", "--copy", "--from", data, "--to", target, "-o", "json")
    back = sender(*own, "migrate", "--from", target, "--to", tmp_path / "back", "-o", "json")

    assert (0, 0) == (copied.code, copied.json["held"])
    assert (0, 2) == (back.code, back.json["held"])
    assert 2 == due(data)


def test_a_backup_has_its_own_blobs(sender, data, tmp_path, database_url):
    kept = tmp_path / "kept"
    sender("backup", kept)

    copied = sender("migrate", "--copy", "--from", data, "--to", database_url)
    moved = sender("--data", kept, "migrate", "--from", kept, "--to", database_url)

    for refused in (copied, moved):
        assert (2, True) == (refused.code, "--to-blobs" in refused.err)


def test_a_migration_without_its_last_step_is_completed_later(
    sender,
    data,
    tmp_path,
    target,  # noqa: F811
    monkeypatch,
):
    """Until then neither place can be opened, and another target is refused."""
    from postroom.store.postgres.engine import PostgresEngine
    from postroom.store.sqlite.engine import SqliteEngine

    def fails(*_):
        raise Conflict("interrupted")

    with monkeypatch.context() as patch:
        for engine in (PostgresEngine, SqliteEngine):
            patch.setattr(engine, "set_counters", fails)
        assert 5 == sender("migrate", "--from", data, "--to", target).code

    assert 5 == sender("inbox", "list").code
    assert 5 == sender("migrate", "--from", data, "--to", tmp_path / "other").code
    assert 5 == sender("migrate", "--copy", "--from", data, "--to", target).code
    with monkeypatch.context() as patch:
        assert 5 == sender(*placed(target, data, patch), "inbox", "list").code
    assert 0 == sender("migrate", "--from", data, "--to", target).code
    place = placed(target, data, monkeypatch)
    assert ["queued", "queued", "scheduled"] == statuses(sender, *place)


def test_mail_that_arrives_after_the_comparison_is_migrated(
    sender,
    data,
    target,  # noqa: F811
    monkeypatch,
):
    from postroom.store.maintenance.migration import Migration

    real = Migration.finish

    async def finish(self):
        await asyncio.to_thread(write_meanwhile, data, 1)
        return await real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Migration, "finish", finish)
        assert 5 == sender("migrate", "--from", data, "--to", target).code

    assert 0 == sender("migrate", "--from", data, "--to", target).code
    place = placed(target, data, monkeypatch)
    assert 1 == sender(*place, "search", "meanwhile", "-o", "json").json["total"]


def test_changes_after_the_comparison_are_migrated(
    sender,
    receive,
    data,
    target,  # noqa: F811
    monkeypatch,
):
    """They add no row, so only a full comparison finds them. The source stays open meanwhile."""
    from postroom.store.maintenance.migration import Migration

    message, real = receive(mail("Gone"))["message_id"], Migration.finish

    async def finish(self):
        await asyncio.to_thread(sender, "message", "move", message, "Trash")
        return await real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Migration, "finish", finish)
        assert 5 == sender("migrate", "--from", data, "--to", target).code
    assert 0 == sender("inbox", "list").code

    assert 0 == sender("migrate", "--from", data, "--to", target).code
    place = placed(target, data, monkeypatch)
    words = ("message", "list", "--mailbox", "Trash", "-o", "json")
    inbox = sender(*place, "inbox", "list", "-o", "json").json["results"][0]["id"]
    assert 1 == sender(*place, *words[:2], inbox, *words[2:]).json["total"]


def test_of_two_concurrent_migrations_one_is_made(sender, data, tmp_path, monkeypatch):
    from postroom.store.maintenance.migration import Migration

    real, ran = Migration.finish, []

    async def finish(self):
        if not ran:
            ran.append(None)
            ran.append(await asyncio.to_thread(sender, *words, tmp_path / "second"))
        return await real(self)

    words = ("migrate", "--from", data, "--to")
    monkeypatch.setattr(Migration, "finish", finish)
    first = sender(*words, tmp_path / "first")
    later = sender(*words, tmp_path / "first")

    assert (0, 5, 5) == (ran[1].code, first.code, later.code)
    assert 0 == sender("--data", tmp_path / "second", "verify").code


def test_a_resumed_stale_migration_writes_nothing(
    sender,
    receive,
    data,
    target,  # noqa: F811
    monkeypatch,
):
    """Another run has completed the migration meanwhile, and mail has arrived in the target."""
    from postroom.store.maintenance import lifecycle
    from postroom.store.maintenance.migration import Migration

    real, ran = Migration.copy, []

    async def copy(self, tell):
        rows = await real(self, tell)
        if not ran:
            ran.append(None)
            ran.append(await asyncio.to_thread(sender, *words))
            with monkeypatch.context() as patch:
                place = placed(target, data, patch)
                write_meanwhile = (*place, "message", "receive", "bo@postroom.localhost", "-")
                ran.append(
                    await asyncio.to_thread(
                        lambda: sender(*write_meanwhile, stdin=mail("Precious"))
                    )
                )
        return rows

    receive(mail("Before"))
    words = ("migrate", "--from", data, "--to", target)
    monkeypatch.setattr(Migration, "copy", copy)
    monkeypatch.setattr(lifecycle, "_LASTING", timedelta())  # as if it had not been renewed
    stopped = sender(*words)

    assert [0, 0] == [one.code for one in ran[1:]]
    assert (5, True) == (stopped.code, "has taken over or finished" in stopped.err)
    place = placed(target, data, monkeypatch)
    assert 1 == sender(*place, "search", "precious", "-o", "json").json["total"]
    assert 0 == sender(*place, "verify").code


def test_a_migration_that_lost_its_lease_writes_nothing(
    sender,
    data,
    target,  # noqa: F811
    monkeypatch,
):
    from postroom.store.maintenance import lifecycle
    from postroom.store.maintenance.lifecycle import MigrationLease
    from postroom.store.maintenance.migration import Migration, count_rows

    real, counted = Migration.copy, []

    async def copy(self, tell):
        engine, tables = self._target, self._tables
        async with MigrationLease(engine):
            monkeypatch.setattr(lifecycle, "_LASTING", timedelta(seconds=20))
            async with MigrationLease(engine):
                try:
                    return await real(self, tell)
                finally:
                    counted.append(
                        await engine.read(lambda tx: sum(count_rows(tx, table) for table in tables))
                    )

    monkeypatch.setattr(Migration, "copy", copy)
    monkeypatch.setattr(lifecycle, "_LASTING", timedelta())
    stopped = sender("migrate", "--from", data, "--to", target)

    assert (5, [0]) == (stopped.code, counted)


def test_concurrent_migrations_are_refused(sender, data, target, monkeypatch):  # noqa: F811
    from postroom.store.maintenance import lifecycle
    from postroom.store.maintenance.migration import Migration

    real, ran = Migration.copy, []

    async def copy(self, tell):
        if not ran:
            ran.append(None)
            ran.append(await asyncio.to_thread(sender, *words))
        return await real(self, tell)

    words = ("migrate", "--from", data, "--to", target)
    monkeypatch.setattr(Migration, "copy", copy)
    monkeypatch.setattr(lifecycle, "_LOOKS", 1)
    first = sender(*words)

    assert (0, 5) == (first.code, ran[1].code)
    assert "is running" in ran[1].err
