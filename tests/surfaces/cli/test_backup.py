"""Backups are created and restored completely, or nothing existing is changed."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from postroom.blobs.objects import ObjectBlobs
from postroom.providers.vault import FileVault
from postroom.surfaces.cli.session import Session
from tests.mails import deliver, mail, new_inbox
from tests.servers import s3


@pytest.fixture
def filled_installation(postroom, receive):
    """An installation with some mail in it."""
    for number in range(5):
        receive(mail(f"Plan {number}", attachments=[("a.txt", "text/plain", b"%d" % number)]))
    return postroom


def subjects(folder: Path) -> set[str]:
    database = apsw.Connection(str(folder / "postroom.db"))
    return {str(row[0]) for row in database.execute("SELECT subject FROM messages")}


def blobs(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "blobs").glob("??/*") if path.is_file())


def is_whole(postroom, folder: Path) -> bool:
    return 0 == postroom("--data", folder, "verify").code


def test_a_write_ahead_log_without_its_database_stops_a_restore(
    filled_installation, data, tmp_path
):
    filled_installation("backup", tmp_path / "kept")
    (tmp_path / "new").mkdir()
    log = tmp_path / "new" / "postroom.db-wal"
    log.write_bytes(b"the newest mail of another file")

    refused = filled_installation("--data", tmp_path / "new", "restore", tmp_path / "kept")

    assert 5 == refused.code
    assert str(log) in refused.err
    assert log.exists()


def test_a_stale_write_ahead_log_in_a_backup_is_ignored(
    filled_installation, receive, data, tmp_path
):
    kept = tmp_path / "kept"
    filled_installation("backup", kept)
    with_log = sqlite3.connect(kept / "postroom.db")
    with_log.execute("PRAGMA journal_mode = wal")
    with_log.execute("UPDATE messages SET subject = 'overwritten'")
    with_log.commit()
    shutil.copytree(kept, tmp_path / "killed")
    with_log.close()
    assert (tmp_path / "killed" / "postroom.db-wal").stat().st_size
    receive(mail("After"))

    assert 0 == filled_installation("backup", tmp_path / "killed").code

    assert subjects(data) == subjects(tmp_path / "killed")
    assert is_whole(filled_installation, tmp_path / "killed")


@pytest.mark.parametrize("name", ["link", "data/../data"])
def test_the_data_folder_under_another_path_is_refused(filled_installation, data, tmp_path, name):
    (tmp_path / "link").symlink_to(data)

    assert 2 == filled_installation("backup", tmp_path / name).code
    assert is_whole(filled_installation, data)


def test_another_installation_is_not_overwritten(filled_installation, data, tmp_path):
    other = tmp_path / "other"
    filled_installation("--data", other, "inbox", "create", "--username", "ana")
    before = {path: path.read_bytes() for path in other.iterdir() if path.is_file()}

    refused = filled_installation("backup", other)

    assert 5 == refused.code
    assert "another installation" in refused.err
    assert before == {path: path.read_bytes() for path in other.iterdir() if path.is_file()}


def test_the_key_of_an_installation_on_a_server_is_not_overwritten(filled_installation, tmp_path):
    (tmp_path / "other").mkdir()
    key = tmp_path / "other" / "audit.key"
    key.write_text("ab" * 32)

    assert 5 == filled_installation("backup", tmp_path / "other").code
    assert "ab" * 32 == key.read_text()


def test_a_backup_that_is_in_use_is_not_replaced(filled_installation, tmp_path):
    kept = tmp_path / "kept"
    filled_installation("backup", kept)
    user = apsw.Connection(str(kept / "postroom.db"))
    user.pragma("journal_mode", "wal")
    user.execute("SELECT count(*) FROM messages").fetchall()

    assert 5 == filled_installation("backup", kept).code
    user.close()
    assert 0 == filled_installation("backup", kept).code


def test_an_interrupted_restore_can_be_resumed(filled_installation, data, tmp_path, monkeypatch):
    from postroom.blobs.files import FileBlobs

    kept, new = tmp_path / "kept", tmp_path / "new"
    filled_installation("backup", kept)
    real = FileBlobs.put
    calls: list[int] = []

    async def fails(self, contents, **how):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return await real(self, contents, **how)

    monkeypatch.setattr(FileBlobs, "put", fails)
    interrupted = filled_installation("--data", new, "restore", kept)
    monkeypatch.setattr(FileBlobs, "put", real)

    assert 0 != interrupted.code
    assert 0 == filled_installation("--data", new, "restore", kept).code
    assert is_whole(filled_installation, new)
    assert subjects(data) == subjects(new)


def test_a_failed_backup_keeps_the_previous_one(
    filled_installation, receive, tmp_path, monkeypatch
):
    from postroom.blobs.files import FileBlobs
    from postroom.errors import StorageFull

    kept = tmp_path / "kept"
    filled_installation("backup", kept)
    before = subjects(kept)
    receive(mail("After"))

    async def is_full(self, contents, **_):
        raise StorageFull("the disk is full")

    monkeypatch.setattr(FileBlobs, "put", is_full)
    failed = filled_installation("backup", kept)
    monkeypatch.undo()

    assert 9 == failed.code
    assert before == subjects(kept)
    assert is_whole(filled_installation, kept)


@pytest.mark.parametrize("harm", ["damage", "loss"])
@pytest.mark.parametrize("command", ["backup", "migrate"])
def test_a_damaged_blob_is_reported_and_the_others_are_backed_up(
    filled_installation, data, tmp_path, harm, command
):
    first = blobs(data)[0]
    if harm == "damage":
        first.write_bytes(b"rot")
    else:
        first.unlink()
    new = tmp_path / "new"
    words = ("backup", new) if command == "backup" else ("migrate", "--from", data, "--to", new)

    ran = filled_installation(*words, "-o", "json")

    assert 1 == ran.code
    [problem] = ran.json["problems"]
    assert first.parent.name + first.name in problem
    assert len(blobs(data)) - (harm == "damage") == len(blobs(new)) == ran.json["blobs"]
    assert subjects(data) == subjects(new)


_KNOWN_BY_SIZE = [("backup", "cut"), ("restore", "cut"), ("migrate", "cut")]
_KNOWN_BY_HASH = [("restore", "rot"), ("migrate", "rot")]


@pytest.mark.parametrize(("command", "harm"), _KNOWN_BY_SIZE + _KNOWN_BY_HASH)
def test_blobs_in_the_target_are_verified(filled_installation, data, tmp_path, command, harm):
    new, kept = tmp_path / "new", tmp_path / "kept"
    filled_installation("backup", kept)
    words = {
        "backup": ("backup", kept),
        "restore": ("--data", new, "restore", kept),
        "migrate": ("migrate", "--from", data, "--to", new),
    }
    target = kept if command == "backup" else new
    first = target / blobs(data)[0].relative_to(data)
    first.parent.mkdir(parents=True, exist_ok=True)
    content = blobs(data)[0].read_bytes()
    first.write_bytes(content[:-1] if harm == "cut" else bytes(len(content)))

    assert 0 == filled_installation(*words[command]).code

    assert content == first.read_bytes()
    assert is_whole(filled_installation, target)


def test_a_backup_is_restored_into_a_bucket(filled_installation, data, tmp_path, monkeypatch):
    filled_installation("backup", tmp_path / "kept")
    with s3.running() as bucket:
        monkeypatch.setattr(ObjectBlobs, "at", lambda *_: ObjectBlobs(bucket))
        monkeypatch.setenv("POSTROOM_BLOBS_URL", "s3://postroom-test/back")

        assert (
            0 == filled_installation("--data", tmp_path / "new", "restore", tmp_path / "kept").code
        )

        assert is_whole(filled_installation, tmp_path / "new")
    assert [] == blobs(tmp_path / "new")


@pytest.mark.parametrize("command", ["restore", "migrate"])
def test_logins_are_backed_up(filled_installation, data, tmp_path, monkeypatch, command):
    monkeypatch.setenv("POSTROOM_SECRETS", "file")
    FileVault(data / "secrets").write("work", {"password": "s3cret"})
    filled_installation("inbox", "create", "--username", "ana")
    database = apsw.Connection(str(data / "postroom.db"))
    for number, name in enumerate(("work", "forgotten"), 1):
        database.execute(
            """INSERT INTO accounts (id, provider, address, inbox, options, state, detail,
                   created_at) VALUES (?, 'imap', 'a@b.example', ?, '{}', 'new', '', 0)""",
            (name, number),
        )
    database.close()
    new = tmp_path / "new"
    if command == "migrate":
        ran = filled_installation("migrate", "--from", data, "--to", new, "-o", "json")
    else:
        filled_installation("backup", tmp_path / "kept")
        ran = filled_installation("--data", new, "restore", tmp_path / "kept", "-o", "json")

    assert (0, ["forgotten"]) == (ran.code, ran.json["without_login"])
    assert {"password": "s3cret"} == FileVault(new / "secrets").read("work")
    modes = {path.stat().st_mode & 0o777 for path in (new / "secrets").iterdir()}
    assert {0o600} == modes


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_concurrent_backups_into_one_folder_are_refused(
    filled_installation, tmp_path, monkeypatch, command
):
    from postroom.blobs.files import FileBlobs

    kept, new = tmp_path / "kept", tmp_path / "new"
    filled_installation("backup", tmp_path / "first")
    words = ("backup", kept) if command == "backup" else ("--data", new, "restore", "../first")
    real, ran = FileBlobs.put, []

    async def put(self, contents, **how):
        if not ran:
            ran.append(None)
            ran.append(await asyncio.to_thread(filled_installation, *words))
        return await real(self, contents, **how)

    monkeypatch.setattr(FileBlobs, "put", put)
    first = filled_installation(*words)

    assert (0, 5) == (first.code, ran[1].code)
    assert "is running" in ran[1].err
    target = kept if command == "backup" else new
    assert [] == [path.name for path in target.iterdir() if path.name.startswith(".")]
    assert is_whole(filled_installation, target)


def test_remains_of_a_killed_backup_do_not_stop_the_next(filled_installation, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in (".backup-lock", ".new-postroom.db"):
        (kept / name).write_bytes(b"left")

    assert 0 == filled_installation("backup", kept).code

    assert [] == list(kept.glob(".*"))
    assert is_whole(filled_installation, kept)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_refused_restore_leaves_nothing(filled_installation, tmp_path, monkeypatch, is_there):
    new = tmp_path / "new"
    filled_installation("backup", tmp_path / "kept")
    monkeypatch.setenv("POSTROOM_AUDIT_KEY", "ab" * 32)
    if is_there:
        new.mkdir()
        (new / "mine").write_text("kept")

    assert 5 == filled_installation("--data", new, "restore", tmp_path / "kept").code

    assert ([new / "mine"] if is_there else []) == list(new.glob("*"))
    assert is_there == new.exists()


@pytest.mark.parametrize("way", ["restore", "migrate", "postgres"])
def test_webhooks_sign_with_the_same_secret_elsewhere(
    filled_installation, data, tmp_path, monkeypatch, request, way
):
    made = filled_installation("webhook", "create", "https://example.com/hook", "-o", "json").json
    new = tmp_path / "new"
    if way == "restore":
        filled_installation("backup", tmp_path / "kept")
        assert 0 == filled_installation("--data", new, "restore", tmp_path / "kept").code
    elif way == "migrate":
        assert 0 == filled_installation("migrate", "--from", data, "--to", new).code
    else:
        url = request.getfixturevalue("database_url")
        assert 0 == filled_installation("migrate", "--from", data, "--to", url).code
        new = data
        monkeypatch.setenv("POSTROOM_DATABASE_URL", url)

    async def secrets(app):
        await deliver(app.services, await new_inbox(app.services, "told"), mail("Told"))
        end = datetime.now(UTC) + timedelta(days=1)
        jobs = await app.services.store.claim_webhooks("me", now=end, until=end, limit=10)
        return {secret for job in jobs for secret in job.secrets}

    assert {made["secret"]} == Session(str(new)).run(secrets)
    assert made["secret"][6:].encode() not in (data / "postroom.db").read_bytes()


@pytest.fixture
def external_key(tmp_path, monkeypatch):
    """The place of the key of logins, outside of the data folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("POSTROOM_SECRETS", "file")
    monkeypatch.setenv("POSTROOM_VAULT_KEY_FILE", str(tmp_path / "elsewhere" / "vault.key"))
    return tmp_path / "elsewhere" / "vault.key"


def test_a_backup_with_the_key_of_logins_says_so(filled_installation, data, tmp_path, monkeypatch):
    monkeypatch.setenv("POSTROOM_SECRETS", "file")
    without = filled_installation("backup", tmp_path / "first")
    FileVault(data / "secrets").write("work", {"password": "s3cret"})
    with_logins = filled_installation("backup", tmp_path / "second")

    assert "POSTROOM_VAULT_KEY_FILE" not in without.err
    assert "POSTROOM_VAULT_KEY_FILE" in with_logins.err


def test_an_external_key_is_in_no_backup(filled_installation, data, tmp_path, external_key):
    FileVault(data / "secrets").write("work", {"password": "s3cret"})
    shutil.copytree(data / "secrets", tmp_path / "kept" / "secrets")  # an earlier backup
    ran = filled_installation("backup", tmp_path / "kept")
    restored = filled_installation("--data", tmp_path / "new", "restore", tmp_path / "kept")

    assert (0, 0, False) == (ran.code, restored.code, "KEY_FILE" in ran.err)
    key = external_key.read_bytes()
    for folder in (data, tmp_path / "kept", tmp_path / "new"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [] == [path for path in files if key in path.read_bytes()]
        vault = FileVault(folder / "secrets", external_key)
        assert {"password": "s3cret"} == vault.read("work")


def test_a_backup_with_its_key_is_restored_with_an_external_key(
    filled_installation, data, tmp_path, external_key
):
    FileVault(tmp_path / "old" / "secrets").write("work", {"password": "s3cret"})
    filled_installation("backup", tmp_path / "kept")
    shutil.copytree(tmp_path / "old" / "secrets", tmp_path / "kept" / "secrets")
    external_key.write_bytes(b"k" * 32)
    new = tmp_path / "new"
    assert 0 == filled_installation("--data", new, "restore", tmp_path / "kept").code
    add_account(new)

    assert 0 == filled_installation("--data", new, "account", "list").code
    assert {"password": "s3cret"} == FileVault(new / "secrets", external_key).read("work")
    assert not (new / "secrets" / "key").exists()
    assert (tmp_path / "kept" / "secrets" / "key").exists()


def add_account(folder: Path) -> None:
    database = apsw.Connection(str(folder / "postroom.db"))
    options = '{"host": "127.0.0.1", "user": "a", "port": 1, "security": "tls"}'
    database.execute(
        """INSERT INTO accounts (id, provider, address, inbox, options, state, detail,
               created_at) VALUES ('work', 'imap', 'a@b.example', 1, ?, 'new', '', 0)""",
        (options,),
    )
    database.close()


def test_a_lost_key_of_logins_is_reported_and_stops_no_restore(
    filled_installation, data, external_key, caplog
):
    FileVault(data / "secrets").write("work", {"password": "s3cret"})
    add_account(data)
    before = filled_installation("doctor", "-o", "json").json["checks"]
    listed = filled_installation("account", "list")
    after = filled_installation("doctor", "-o", "json").json["checks"]
    external_key.unlink()
    without = filled_installation("account", "list")
    lost = filled_installation("doctor", "-o", "json").json["checks"]

    said = [next(c for c in checks if c["check"] == "logins") for checks in (before, after, lost)]
    assert ["warning", "ok", "problem"] == [one["status"] for one in said]
    assert (0, 0) == (listed.code, without.code)
    assert str(external_key) in said[1]["detail"]
    assert "is not at" in said[2]["detail"]
    [record, *_] = [r for r in caplog.records if r.msg == "accounts.no_login"]
    assert "*.sealed" in record.error


def test_a_backup_of_an_earlier_version_has_no_secret_of_a_webhook_in_clear(
    filled_installation, data, tmp_path
):
    secret = "whsec_" + "A" * 43 + "="
    database = apsw.Connection(str(data / "postroom.db"))
    database.execute(
        """INSERT INTO webhooks (id, url, secret, types, created_at)
               VALUES ('whk_1', 'https://example.com/', ?, '[]', 0)""",
        (secret,),
    )
    database.close()
    assert 0 == filled_installation("backup", tmp_path / "kept").code

    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept").glob("postroom.db*"))
    assert secret[6:].encode() not in kept
    assert b"$seal1$" in kept
