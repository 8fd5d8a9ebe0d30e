"""Two installations never share blobs: a sweep of one would delete those of the other."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from postroom.surfaces.cli.commands import administration
from tests.mails import mail
from tests.servers import s3


@pytest.fixture(autouse=True)
def no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep also removes new blobs."""
    monkeypatch.setattr(administration, "SWEEP_AGE", timedelta(seconds=-60))


@pytest.fixture
def filled_installation(postroom, receive):
    """An installation with some mail in it."""
    for number in range(3):
        receive(mail(f"Plan {number}", attachments=[("a.txt", "text/plain", b"%d" % number)]))
    return postroom


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch):
    """A configured bucket with blobs."""
    with s3.running() as store:
        for name, value in s3.environment(store).items():
            monkeypatch.setenv(name, value)
        yield store


def blobs(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "blobs").glob("??/*") if path.is_file())


def objects(store) -> set[str]:
    return {entry["path"] for part in obstore.list(store) for entry in part}


def on_server(postroom, data: Path, database_url: str, patch: pytest.MonkeyPatch) -> None:
    """Mail in PostgreSQL, and its blobs in the data folder."""
    patch.setenv("POSTROOM_DATABASE_URL", database_url)
    postroom("inbox", "create", "--username", "bo")
    for number in range(3):
        raw = mail(f"Plan {number}")
        assert 0 == postroom("message", "receive", "bo@postroom.localhost", "-", stdin=raw).code
    patch.delenv("POSTROOM_DATABASE_URL")


@pytest.mark.parametrize(
    "words", [("verify", "--sweep"), ("inbox", "list"), ("mcp",), ("serve", "--port", "0")]
)
def test_the_folder_of_a_postgresql_installation_is_not_a_new_one(
    postroom, data, database_url, monkeypatch, words
):
    on_server(postroom, data, database_url, monkeypatch)
    kept = blobs(data)

    refused = postroom("--data", data, *words)

    assert 5 == refused.code
    assert "POSTROOM_DATABASE_URL" in refused.err
    assert not (data / "postroom.db").exists()
    assert kept == blobs(data)
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert 0 == postroom("verify", "--sweep").code
    assert 3 == len(kept) == len(blobs(data))


def test_an_empty_database_refuses_existing_blobs(
    filled_installation, data, database_url, monkeypatch
):
    kept = blobs(data)
    (data / "blobs" / "installation.json").unlink()
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    refused = filled_installation("verify", "--sweep")

    assert (5, kept) == (refused.code, blobs(data))
    assert "none of them belongs to this installation" in refused.err


def test_blobs_of_an_older_version_are_adopted(filled_installation, data):
    (data / "blobs" / "installation.json").unlink()

    assert 0 == filled_installation("verify", "--sweep").code

    assert (data / "blobs" / "installation.json").exists()
    assert 6 == len(blobs(data))


def test_a_mark_of_an_earlier_version_is_read_and_replaced(filled_installation, data):
    mark, old = data / "blobs" / "installation.json", data / "blobs" / ".house"
    old.write_text(json.loads(mark.read_text())["installation"] + "\n")
    content = mark.read_text()
    mark.unlink()

    assert 0 == filled_installation("verify", "--sweep").code

    assert (content, False) == (mark.read_text(), old.exists())
    old.write_text("another\n")
    mark.unlink()
    refused = filled_installation("verify", "--sweep")
    assert (5, "another\n") == (refused.code, old.read_text())


def test_the_target_of_a_migration_keeps_the_blobs(
    filled_installation, receive, data, database_url, monkeypatch
):
    left = shutil.copytree(data, data.parent / "left")
    assert 0 == filled_installation("migrate", "--from", data, "--to", database_url).code
    with monkeypatch.context() as patch:
        patch.setenv("POSTROOM_DATABASE_URL", database_url)
        receive(mail("After the move"))
    # The state before the migration.
    shutil.copy(left / "postroom.db", data / "postroom.db")

    refused = filled_installation("--data", data, "verify", "--sweep")

    assert 5 == refused.code
    assert str(data / "blobs" / "installation.json") in refused.err
    assert 7 == len(blobs(data))
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert 0 == filled_installation("--data", data, "verify", "--sweep").code
    assert 7 == len(blobs(data))


def test_a_backup_is_checked_and_swept_in_its_folder(
    filled_installation, receive, data, monkeypatch, bucket
):
    kept, live = data.parent / "kept", data.parent / "live"
    monkeypatch.setenv("POSTROOM_BLOBS_URL", "s3://postroom-test/live")
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(live))
    filled_installation("inbox", "create", "--username", "bo")
    receive(mail("Before"))
    assert 0 == filled_installation("backup", kept).code
    receive(mail("After"))
    there = objects(bucket)

    checked = filled_installation("--data", kept, "verify", "--sweep")

    assert 0 == checked.code
    assert "ignoring POSTROOM_BLOBS_URL" in checked.err
    assert there == objects(bucket)
    blobs(kept)[0].write_bytes(b"junk")
    assert 1 == filled_installation("--data", kept, "verify").code
    assert 0 == filled_installation("verify").code


def test_a_data_folder_overrides_the_database_setting(
    filled_installation, data, database_url, monkeypatch
):
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    listed = filled_installation("--data", data, "inbox", "list", "-o", "json")

    assert 1 == listed.json["total"]
    assert "ignoring POSTROOM_DATABASE_URL" in listed.err


@pytest.mark.parametrize("words", [("serve", "--port", "0"), ("mcp",), ("worker",)])
def test_serve_needs_an_unambiguous_installation(
    filled_installation, data, database_url, monkeypatch, words
):
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    refused = filled_installation("--data", data, *words)

    assert 5 == refused.code
    assert "POSTROOM_DATABASE_URL" in refused.err


@pytest.mark.parametrize("command", ["migrate", "restore"])
def test_no_installation_migrates_into_the_bucket_of_another(
    filled_installation, data, monkeypatch, bucket, command
):
    kept, new, url = data.parent / "kept", data.parent / "new", "s3://postroom-test/taken"
    filled_installation("backup", kept)
    with monkeypatch.context() as patch:
        patch.setenv("POSTROOM_BLOBS_URL", url)
        patch.setenv("POSTROOM_DATA_DIR", str(data.parent / "other"))
        filled_installation("inbox", "create", "--username", "eve")
        filled_installation(
            "message", "receive", "eve@postroom.localhost", "-", stdin=mail("Eve's")
        )
    there = objects(bucket)

    if command == "migrate":
        refused = filled_installation("migrate", "--from", data, "--to", new, "--to-blobs", url)
    else:
        monkeypatch.setenv("POSTROOM_BLOBS_URL", url)
        refused = filled_installation("--data", new, "restore", kept)

    assert 5 == refused.code
    assert f"{url}/installation.json" in refused.err
    assert there == objects(bucket)


def test_a_bucket_can_be_adopted_by_removing_its_mark(
    filled_installation, data, monkeypatch, bucket
):
    kept, new, live = data.parent / "kept", data.parent / "new", data.parent / "live"
    url = "s3://postroom-test/lost"
    assert 0 == filled_installation("migrate", "--from", data, "--to", live, "--to-blobs", url).code
    monkeypatch.setenv("POSTROOM_BLOBS_URL", url)
    assert 0 == filled_installation("--data", live, "backup", kept).code
    shutil.rmtree(live)

    assert 5 == filled_installation("--data", new, "restore", kept).code
    obstore.delete(bucket, "lost/installation.json")
    assert 0 == filled_installation("--data", new, "restore", kept).code

    assert 0 == filled_installation("--data", new, "verify").code
    assert "lost/installation.json" in objects(bucket)


def test_an_unreachable_bucket_does_not_prevent_opening(filled_installation, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_BLOBS_URL", "s3://postroom-test/away")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    assert (
        0 == filled_installation("--data", os.fspath(data.parent / "new"), "inbox", "create").code
    )
