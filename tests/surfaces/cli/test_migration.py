"""Moving installation and back leaves everything as it was; `tests/faults` drills backups."""

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
    """What a caller sees of an installation, in full."""
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
def full(postroom, receive):
    """An installation with some mail in it."""
    for number in range(7):
        receive(mail(f"Plan {number} für Ü", attachments=FILES[: number % 3]))
    message = postroom("search", "plan 3", "-o", "json").json["results"][0]["id"]
    postroom("message", "label", "Work", message)
    postroom("message", "move", message, "Trash")
    return postroom


def test_there_and_back_again(full, data, tmp_path, database_url, monkeypatch):
    before = seen(full)

    there = full("migrate", "--from", data, "--to", database_url, "-o", "json")
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    on_server = seen(full)
    monkeypatch.delenv("POSTROOM_DATABASE_URL")
    back = full("migrate", "--from", database_url, "--to", tmp_path / "back", "-o", "json")

    assert (0, 0) == (there.code, back.code)
    assert there.json == back.json
    assert before == on_server
    assert before == seen(full, "--data", tmp_path / "back")


def test_what_was_interrupted_goes_on_and_new_mail_gets_new_numbers(
    full, data, database_url, monkeypatch
):
    from postroom.store.maintenance import migration

    real, calls = migration.insert_rows, []

    def fails(tx, **given):
        calls.append(1)
        if len(calls) == 9:
            raise Conflict("interrupted")
        real(tx, **given)

    monkeypatch.setattr(migration, "insert_rows", fails)
    interrupted = full("migrate", "--from", data, "--to", database_url)
    monkeypatch.setattr(migration, "insert_rows", real)
    before = seen(full)

    assert 0 != interrupted.code
    assert 0 == full("migrate", "--from", data, "--to", database_url).code
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert before == seen(full)
    [inbox] = full("inbox", "list", "-o", "json").json["results"]
    full("message", "receive", inbox["address"], "-", stdin=mail("After the move"))
    assert 7 == full("message", "list", inbox["id"], "-o", "json").json["total"]
    assert [] == full("verify", "-o", "json").json["problems"]


def test_a_target_in_use_is_refused(full, data, database_url, monkeypatch):
    with monkeypatch.context() as patch:
        full(
            *placed(database_url, data.parent / "own", patch),
            *("inbox", "create", "--username", "somebody"),
        )

    refused = full("migrate", "--from", data, "--to", database_url, "-o", "json")

    assert (5, "conflict") == (refused.code, refused.error["code"])


@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "--from", "nothing", "--to", "elsewhere"),
        ("migrate", "--from", ".", "--to", "."),
        ("restore", "."),
    ],
)
def test_what_cannot_be_is_said(postroom, words):
    assert 2 == postroom(*words).code


def test_a_backup_is_not_brought_back_over_mail(full, tmp_path):
    full("backup", tmp_path / "kept")

    assert 5 == full("restore", tmp_path / "kept").code


def test_a_target_with_nothing_but_memories_is_in_use(full, data, target, monkeypatch):
    own = data.parent / "own"
    with monkeypatch.context() as patch:
        if isinstance(target, Path):
            create_store(target)
        full(*placed(target, own, patch), "memory", "add", "precious", "--text", "Mine.")

    refused = full("migrate", "--from", data, "--to", target)

    assert 5 == refused.code
    assert "in use" in refused.err
    listed = full(*placed(target, own, monkeypatch), "memory", "list", "-o", "json").json
    assert ["precious"] == [memory["key"] for memory in listed["results"]]


def test_an_installation_with_nothing_but_memories_migrates(
    postroom, data, database_url, monkeypatch
):
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
    """The words that open a place."""
    if isinstance(target, Path):
        return ("--data", target)
    monkeypatch.setenv("POSTROOM_DATABASE_URL", target)
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(data))
    return ()


def test_what_is_half_moved_cannot_be_opened_and_can_be_finished(full, data, target, monkeypatch):
    from postroom.store.maintenance.migration import Migration

    real = Migration.is_equal

    async def fails(self):
        raise Conflict("interrupted")

    monkeypatch.setattr(Migration, "is_equal", fails)
    assert 5 == full("migrate", "--from", data, "--to", target).code
    monkeypatch.setattr(Migration, "is_equal", real)

    with monkeypatch.context() as patch:
        opened = full(*placed(target, data, patch), "inbox", "list")
    assert 5 == opened.code
    assert "postroom migrate" in opened.err
    assert 0 == full("migrate", "--from", data, "--to", target).code
    assert 0 == full(*placed(target, data, monkeypatch), "verify").code


@pytest.mark.parametrize("writes", [1, 100])
def test_who_writes_to_the_source_is_told_or_waited_for(full, data, target, monkeypatch, writes):
    """One mail that comes meanwhile comes along, with its bytes; more and more are too much."""
    from postroom.store.maintenance.migration import Migration

    real, left = Migration.copy, [writes]

    async def copy(self, tell):
        rows = await real(self, tell)
        if left[0]:
            left[0] -= 1
            await asyncio.to_thread(come, data, left[0])
        return rows

    monkeypatch.setattr(Migration, "copy", copy)
    moved = full("migrate", "--from", data, "--to", target)

    if writes == 1:
        assert 0 == moved.code, moved.err
        assert 0 == full(*placed(target, data, monkeypatch), "verify").code
    else:
        assert 5 == moved.code
        assert "the source is being written to" in moved.err


def come(data: Path, number: int) -> None:
    """Let a mail arrive, and somebody act, in an installation that is open elsewhere."""

    async def work(app):
        inbox = (await app.services.store.inboxes(EVERYTHING, Slice(limit=1))).rows[0]
        await deliver(app.services, inbox, mail(f"Meanwhile {number}"))
        await app.reset_owner_key()

    Session(data=str(data)).run(work)


@pytest.mark.parametrize("blobs", ["folder", "elsewhere"])
def test_the_seal_moves_with_the_log(full, data, tmp_path, database_url, monkeypatch, blobs):
    """Into a data folder that has another key it is refused, else it fits."""
    other = tmp_path / "other"
    other.mkdir()
    if blobs == "elsewhere":
        (other / "audit.key").write_text("ab" * 32)

    moved = full("--data", other, "migrate", "--from", data, "--to", database_url)

    if blobs == "elsewhere":
        assert 5 == moved.code
        assert str(other / "audit.key") in moved.err
        assert "ab" * 32 == (other / "audit.key").read_text()
        return
    assert 0 == moved.code
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert 0 == full("--data", other, "verify").code
    assert (data / "audit.key").read_text() == (other / "audit.key").read_text()


def test_without_the_key_of_its_log_an_installation_does_not_migrate(
    full, data, tmp_path, database_url, monkeypatch
):
    full("migrate", "--from", data, "--to", database_url)
    key = (data / "audit.key").read_text()

    words = ("--data", tmp_path / "nowhere", "migrate", "--from", database_url)
    blobs = ("--from-blobs", data, "--to", tmp_path / "back")
    (data / "audit.key").rename(tmp_path / "apart.key")
    refused = full(*words, *blobs)
    monkeypatch.setenv("POSTROOM_AUDIT_KEY", key)
    moved = full(*words, *blobs)

    assert 5 == refused.code
    assert "POSTROOM_AUDIT_KEY" in refused.err
    assert 0 == moved.code
    assert 0 == full("--data", tmp_path / "back", "verify").code
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
def test_an_address_with_a_typing_error_is_no_folder(full, data, place):
    refused = full("migrate", "--from", data, "--to", place)

    assert 2 == refused.code
    assert "hunter2" not in refused.err
    assert [] == list(Path.cwd().iterdir())


@pytest.mark.parametrize("option", ["--from-blobs", "--to-blobs"])
def test_a_bucket_that_is_no_setting_is_no_place(full, data, tmp_path, option):
    place = ("--from", data, "--to", tmp_path / "new")

    refused = full("migrate", *place, option, "s3://postroom-test/a b")

    assert (2, True) == (refused.code, "s3://bucket" in refused.err)
    assert not (tmp_path / "new").exists()


def test_all_blobs_are_told_of(full, data, tmp_path, monkeypatch):
    from postroom.backup import migrate_installation

    told: list[tuple[str, int]] = []
    settings = Session(data=str(data)).settings
    target = replace(settings, data_dir=tmp_path / "new")

    moved = asyncio.run(
        migrate_installation(settings, target, lambda what, count, _: told.append((what, count)))
    )

    assert ("blobs", moved.blobs) == [one for one in told if one[0] == "blobs"][-1]
    assert moved.blobs > 0
