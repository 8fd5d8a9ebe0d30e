"""Migrating an installation and back leaves it unchanged; `tests/faults` drills backups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.errors import Conflict
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.surfaces.cli.session import Session
from tests.mails import deliver, mail
from tests.servers.postroom import create_store

FILES = [("plan.pdf", "application/pdf", b"%PDF-1.4"), ("a.txt", "text/plain", b"a")]


def seen(postroom, *place: str) -> list[object]:
    """Everything that a caller sees of an installation."""
    inboxes = postroom(*place, "inbox", "list", "-o", "json").json
    [inbox] = inboxes["results"]
    found = [inboxes]
    listed = postroom(*place, "message", "list", inbox["id"], "--limit", 100, "-o", "json").json
    found.append(listed)
    for row in listed["results"]:
        found.append(postroom(*place, "message", "show", row["id"], "-o", "json").json)
        found.append(postroom(*place, "message", "raw", row["id"]).out)
    found.append(postroom(*place, "search", "plan", "-o", "json").json)
    found.append(postroom(*place, "events", "list", "-o", "json").json)
    found.append(postroom(*place, "verify", "-o", "json").json["problems"])
    return found


@pytest.fixture
def filled_installation(postroom, receive):
    """An installation with some mail in it."""
    for number in range(7):
        receive(mail(f"Plan {number} für Ü", attachments=FILES[: number % 3]))
    message = postroom("search", "plan 3", "-o", "json").json["results"][0]["id"]
    postroom("message", "label", "Work", message)
    postroom("message", "move", message, "Trash")
    return postroom


def test_migrating_there_and_back_changes_nothing(
    filled_installation, data, tmp_path, database_url, monkeypatch
):
    before = seen(filled_installation)

    there = filled_installation("migrate", "--from", data, "--to", database_url, "-o", "json")
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    on_server = seen(filled_installation)
    monkeypatch.delenv("POSTROOM_DATABASE_URL")
    back = filled_installation(
        "migrate", "--from", database_url, "--to", tmp_path / "back", "-o", "json"
    )

    assert (0, 0) == (there.code, back.code)
    assert there.json == back.json
    assert before == on_server
    assert before == seen(filled_installation, "--data", tmp_path / "back")


def test_an_interrupted_migration_resumes_with_new_mail(
    filled_installation, data, database_url, monkeypatch
):
    from postroom.store.maintenance import migration

    real, calls = migration.insert_rows, []

    def fails(tx, **given):
        calls.append(1)
        if len(calls) == 9:
            raise Conflict("interrupted")
        real(tx, **given)

    monkeypatch.setattr(migration, "insert_rows", fails)
    interrupted = filled_installation("migrate", "--from", data, "--to", database_url)
    monkeypatch.setattr(migration, "insert_rows", real)
    before = seen(filled_installation)

    assert 0 != interrupted.code
    assert 0 == filled_installation("migrate", "--from", data, "--to", database_url).code
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert before == seen(filled_installation)
    [inbox] = filled_installation("inbox", "list", "-o", "json").json["results"]
    filled_installation("message", "receive", inbox["address"], "-", stdin=mail("After the move"))
    assert 7 == filled_installation("message", "list", inbox["id"], "-o", "json").json["total"]
    assert [] == filled_installation("verify", "-o", "json").json["problems"]


def test_a_target_with_data_is_refused(filled_installation, data, database_url, monkeypatch):
    with monkeypatch.context() as patch:
        filled_installation(
            *placed(database_url, data.parent / "own", patch),
            *("inbox", "create", "--username", "somebody"),
        )

    refused = filled_installation("migrate", "--from", data, "--to", database_url, "-o", "json")

    assert (5, "conflict") == (refused.code, refused.error["code"])


@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "--from", "nothing", "--to", "elsewhere"),
        ("migrate", "--from", ".", "--to", "."),
        ("restore", "."),
    ],
)
def test_impossible_migrations_are_explained(postroom, words):
    assert 2 == postroom(*words).code


def test_a_backup_is_not_restored_over_mail(filled_installation, tmp_path):
    filled_installation("backup", tmp_path / "kept")

    assert 5 == filled_installation("restore", tmp_path / "kept").code


def test_a_target_with_only_memories_is_refused(filled_installation, data, target, monkeypatch):
    own = data.parent / "own"
    with monkeypatch.context() as patch:
        if isinstance(target, Path):
            create_store(target)
        filled_installation(
            *placed(target, own, patch), "memory", "add", "precious", "--text", "Mine."
        )

    refused = filled_installation("migrate", "--from", data, "--to", target)

    assert 5 == refused.code
    assert "in use" in refused.err
    listed = filled_installation(
        *placed(target, own, monkeypatch), "memory", "list", "-o", "json"
    ).json
    assert ["precious"] == [memory["key"] for memory in listed["results"]]


def test_an_installation_with_only_memories_migrates(postroom, data, database_url, monkeypatch):
    postroom("memory", "add", "one", "--text", "Kept.")

    assert 0 == postroom("migrate", "--from", data, "--to", database_url).code

    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    listed = postroom("memory", "list", "-o", "json").json
    assert ["one"] == [memory["key"] for memory in listed["results"]]
    assert 0 == postroom("inbox", "create", "--username", "bo").code


@pytest.fixture(params=["sqlite", "postgres"])
def target(request, tmp_path):
    """An empty place of each kind."""
    if request.param == "sqlite":
        return tmp_path / "new"
    return request.getfixturevalue("database_url")


def placed(target, data: Path, monkeypatch) -> tuple[object, ...]:
    """The arguments that name a place."""
    if isinstance(target, Path):
        return ("--data", target)
    monkeypatch.setenv("POSTROOM_DATABASE_URL", target)
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(data))
    return ()


def test_an_incomplete_migration_cannot_be_opened_and_can_be_resumed(
    filled_installation, data, target, monkeypatch
):
    from postroom.store.maintenance.migration import Migration

    real = Migration.is_equal

    async def fails(self):
        raise Conflict("interrupted")

    monkeypatch.setattr(Migration, "is_equal", fails)
    assert 5 == filled_installation("migrate", "--from", data, "--to", target).code
    monkeypatch.setattr(Migration, "is_equal", real)

    with monkeypatch.context() as patch:
        opened = filled_installation(*placed(target, data, patch), "inbox", "list")
    assert 5 == opened.code
    assert "postroom migrate" in opened.err
    assert 0 == filled_installation("migrate", "--from", data, "--to", target).code
    assert 0 == filled_installation(*placed(target, data, monkeypatch), "verify").code


@pytest.mark.parametrize("writes", [1, 100])
def test_mail_that_arrives_during_a_migration_is_migrated(
    filled_installation, data, target, monkeypatch, writes
):
    """One mail that arrives meanwhile is migrated with its bytes; continuous writes are
    an error.
    """
    from postroom.store.maintenance.migration import Migration

    real, left = Migration.copy, [writes]

    async def copy(self, tell):
        rows = await real(self, tell)
        if left[0]:
            left[0] -= 1
            await asyncio.to_thread(write_meanwhile, data, left[0])
        return rows

    monkeypatch.setattr(Migration, "copy", copy)
    moved = filled_installation("migrate", "--from", data, "--to", target)

    if writes == 1:
        assert 0 == moved.code, moved.err
        assert 0 == filled_installation(*placed(target, data, monkeypatch), "verify").code
    else:
        assert 5 == moved.code
        assert "the source is being written to" in moved.err


def write_meanwhile(data: Path, number: int) -> None:
    """Deliver a mail, and record an action, in an installation that is open elsewhere."""

    async def work(app):
        inbox = (await app.services.store.inboxes(EVERYTHING, Slice(limit=1))).rows[0]
        await deliver(app.services, inbox, mail(f"Meanwhile {number}"))
        await app.reset_owner_key()

    Session(data=str(data)).run(work)


@pytest.mark.parametrize("blobs", ["folder", "elsewhere"])
def test_the_audit_key_is_migrated_with_the_log(
    filled_installation, data, tmp_path, database_url, monkeypatch, blobs
):
    """A data folder with another audit key is refused."""
    other = tmp_path / "other"
    other.mkdir()
    if blobs == "elsewhere":
        (other / "audit.key").write_text("ab" * 32)

    moved = filled_installation("--data", other, "migrate", "--from", data, "--to", database_url)

    if blobs == "elsewhere":
        assert 5 == moved.code
        assert str(other / "audit.key") in moved.err
        assert "ab" * 32 == (other / "audit.key").read_text()
        return
    assert 0 == moved.code
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert 0 == filled_installation("--data", other, "verify").code
    assert (data / "audit.key").read_text() == (other / "audit.key").read_text()


def test_an_installation_without_its_audit_key_does_not_migrate(
    filled_installation, data, tmp_path, database_url, monkeypatch
):
    filled_installation("migrate", "--from", data, "--to", database_url)
    key = (data / "audit.key").read_text()

    words = ("--data", tmp_path / "nowhere", "migrate", "--from", database_url)
    blobs = ("--from-blobs", data, "--to", tmp_path / "back")
    (data / "audit.key").rename(tmp_path / "apart.key")
    refused = filled_installation(*words, *blobs)
    monkeypatch.setenv("POSTROOM_AUDIT_KEY", key)
    moved = filled_installation(*words, *blobs)

    assert 5 == refused.code
    assert "POSTROOM_AUDIT_KEY" in refused.err
    assert 0 == moved.code
    assert 0 == filled_installation("--data", tmp_path / "back", "verify").code
    assert not (tmp_path / "back" / "audit.key").exists()


@pytest.mark.parametrize(
    "place",
    [
        "postgreql://user:hunter2@db/postroom",
        "postgresql://user:hunter2%@db/postroom",
        "postgresql://user:pass@hunter2@db/postroom",
        "s3://bucket/mail",
        "host=127.0.0.1 dbname=mail password=hunter2",
    ],
)
def test_a_mistyped_url_is_not_taken_for_a_folder(filled_installation, data, place):
    refused = filled_installation("migrate", "--from", data, "--to", place)

    assert 2 == refused.code
    assert "hunter2" not in refused.err
    assert [] == list(Path.cwd().iterdir())


@pytest.mark.parametrize("option", ["--from-blobs", "--to-blobs"])
def test_a_bucket_that_is_not_configured_is_refused(filled_installation, data, tmp_path, option):
    place = ("--from", data, "--to", tmp_path / "new")

    refused = filled_installation("migrate", *place, option, "s3://postroom-test/a b")

    assert (2, True) == (refused.code, "s3://bucket" in refused.err)
    assert not (tmp_path / "new").exists()


def test_progress_covers_all_blobs(filled_installation, data, tmp_path, monkeypatch):
    from postroom.backup import migrate_installation

    told: list[tuple[str, int]] = []
    settings = Session(data=str(data)).settings
    target = replace(settings, data_dir=tmp_path / "new")

    moved = asyncio.run(
        migrate_installation(settings, target, lambda what, count, _: told.append((what, count)))
    )

    assert ("blobs", moved.blobs) == [one for one in told if one[0] == "blobs"][-1]
    assert moved.blobs > 0
