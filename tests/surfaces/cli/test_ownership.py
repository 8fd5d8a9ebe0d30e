"""Two installations never share their blobs: a sweep of the one would remove those of the other."""

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
    """A sweep takes what was put just now, too."""
    monkeypatch.setattr(administration, "SWEEP_AGE", timedelta(seconds=-60))


@pytest.fixture
def full(postroom, receive):
    """An installation with some mail in it."""
    for number in range(3):
        receive(mail(f"Plan {number}", attachments=[("a.txt", "text/plain", b"%d" % number)]))
    return postroom


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch):
    """A bucket that the environment leads to, and whose blobs are there."""
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
def test_the_folder_of_an_installation_on_a_server_is_no_new_installation(
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


def test_an_empty_database_takes_no_blobs_that_are_there(full, data, database_url, monkeypatch):
    kept = blobs(data)
    (data / "blobs" / "installation.json").unlink()
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    refused = full("verify", "--sweep")

    assert (5, kept) == (refused.code, blobs(data))
    assert "none of them belongs to this installation" in refused.err


def test_the_blobs_of_an_older_installation_are_taken_over(full, data):
    (data / "blobs" / "installation.json").unlink()

    assert 0 == full("verify", "--sweep").code

    assert (data / "blobs" / "installation.json").exists()
    assert 6 == len(blobs(data))


def test_a_mark_of_an_earlier_version_is_read_and_replaced(full, data):
    mark, old = data / "blobs" / "installation.json", data / "blobs" / ".house"
    old.write_text(json.loads(mark.read_text())["installation"] + "\n")
    content = mark.read_text()
    mark.unlink()

    assert 0 == full("verify", "--sweep").code

    assert (content, False) == (mark.read_text(), old.exists())
    old.write_text("another\n")
    mark.unlink()
    refused = full("verify", "--sweep")
    assert (5, "another\n") == (refused.code, old.read_text())


def test_who_has_moved_on_keeps_the_blobs(full, receive, data, database_url, monkeypatch):
    left = shutil.copytree(data, data.parent / "left")
    assert 0 == full("migrate", "--from", data, "--to", database_url).code
    with monkeypatch.context() as patch:
        patch.setenv("POSTROOM_DATABASE_URL", database_url)
        receive(mail("After the move"))
    # As it was before the move, whatever that has written into it.
    shutil.copy(left / "postroom.db", data / "postroom.db")

    refused = full("--data", data, "verify", "--sweep")

    assert 5 == refused.code
    assert str(data / "blobs" / "installation.json") in refused.err
    assert 7 == len(blobs(data))
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    assert 0 == full("--data", data, "verify", "--sweep").code
    assert 7 == len(blobs(data))


def test_a_backup_is_checked_and_swept_in_its_folder(full, receive, data, monkeypatch, bucket):
    kept, live = data.parent / "kept", data.parent / "live"
    monkeypatch.setenv("POSTROOM_BLOBS_URL", "s3://postroom-test/live")
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(live))
    full("inbox", "create", "--username", "bo")
    receive(mail("Before"))
    assert 0 == full("backup", kept).code
    receive(mail("After"))
    there = objects(bucket)

    checked = full("--data", kept, "verify", "--sweep")

    assert 0 == checked.code
    assert "ignoring POSTROOM_BLOBS_URL" in checked.err
    assert there == objects(bucket)
    blobs(kept)[0].write_bytes(b"junk")
    assert 1 == full("--data", kept, "verify").code
    assert 0 == full("verify").code


def test_a_data_folder_wins_over_a_database_that_is_set(full, data, database_url, monkeypatch):
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    listed = full("--data", data, "inbox", "list", "-o", "json")

    assert 1 == listed.json["total"]
    assert "ignoring POSTROOM_DATABASE_URL" in listed.err


@pytest.mark.parametrize("words", [("serve", "--port", "0"), ("mcp",), ("worker",)])
def test_who_serves_leaves_no_doubt_which_installation_is_meant(
    full, data, database_url, monkeypatch, words
):
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)

    refused = full("--data", data, *words)

    assert 5 == refused.code
    assert "POSTROOM_DATABASE_URL" in refused.err


@pytest.mark.parametrize("command", ["migrate", "restore"])
def test_no_installation_migrates_into_the_bucket_of_another(
    full, data, monkeypatch, bucket, command
):
    kept, new, url = data.parent / "kept", data.parent / "new", "s3://postroom-test/taken"
    full("backup", kept)
    with monkeypatch.context() as patch:
        patch.setenv("POSTROOM_BLOBS_URL", url)
        patch.setenv("POSTROOM_DATA_DIR", str(data.parent / "other"))
        full("inbox", "create", "--username", "eve")
        full("message", "receive", "eve@postroom.localhost", "-", stdin=mail("Eve's"))
    there = objects(bucket)

    if command == "migrate":
        refused = full("migrate", "--from", data, "--to", new, "--to-blobs", url)
    else:
        monkeypatch.setenv("POSTROOM_BLOBS_URL", url)
        refused = full("--data", new, "restore", kept)

    assert 5 == refused.code
    assert f"{url}/installation.json" in refused.err
    assert there == objects(bucket)


def test_a_bucket_is_taken_over_by_who_removes_its_mark(full, data, monkeypatch, bucket):
    kept, new, live = data.parent / "kept", data.parent / "new", data.parent / "live"
    url = "s3://postroom-test/lost"
    assert 0 == full("migrate", "--from", data, "--to", live, "--to-blobs", url).code
    monkeypatch.setenv("POSTROOM_BLOBS_URL", url)
    assert 0 == full("--data", live, "backup", kept).code
    shutil.rmtree(live)

    assert 5 == full("--data", new, "restore", kept).code
    obstore.delete(bucket, "lost/installation.json")
    assert 0 == full("--data", new, "restore", kept).code

    assert 0 == full("--data", new, "verify").code
    assert "lost/installation.json" in objects(bucket)


def test_a_bucket_that_is_away_does_not_keep_an_installation_closed(full, data, monkeypatch):
    monkeypatch.setenv("POSTROOM_BLOBS_URL", "s3://postroom-test/away")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    assert 0 == full("--data", os.fspath(data.parent / "new"), "inbox", "create").code
