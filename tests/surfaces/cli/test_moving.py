"""Moving house and back leaves everything as it was; a backup of a busy house is whole."""

from __future__ import annotations

import threading
import urllib.request

import pytest

from postroom.errors import Conflict
from tests.mails import mail
from tests.servers.postroom import running

FILES = [("plan.pdf", "application/pdf", b"%PDF-1.4"), ("a.txt", "text/plain", b"a")]


def seen(postroom, *place: str) -> list[object]:
    """What a caller sees of a house, in full."""
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
    """A house with some mail in it."""
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
    from postroom.store import moving

    real, calls = moving._put, []

    def fails(tx, **given):
        calls.append(1)
        if len(calls) == 9:
            raise Conflict("interrupted")
        real(tx, **given)

    monkeypatch.setattr(moving, "_put", fails)
    interrupted = full("migrate", "--from", data, "--to", database_url)
    monkeypatch.setattr(moving, "_put", real)
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
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    full("inbox", "create", "--username", "somebody")
    monkeypatch.delenv("POSTROOM_DATABASE_URL")

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


def test_a_backup_of_a_busy_house_is_whole(data, postroom, tmp_path):
    """Mail comes in all the time; each backup is one moment of it, and can be brought back."""
    kept = tmp_path / "kept"
    with running(data) as server:
        postroom("inbox", "create", "--username", "bo")
        stop, sent = threading.Event(), []

        def send() -> None:
            while not stop.is_set():
                request = urllib.request.Request(
                    f"{server.url}/v1/inbound?recipient=bo@postroom.localhost",
                    data=mail(f"Number {len(sent)}", attachments=FILES),
                    headers={
                        "Authorization": f"Bearer {server.key}",
                        "Content-Type": "message/rfc822",
                    },
                )
                urllib.request.urlopen(request, timeout=30).close()
                sent.append(1)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            counts = []
            for number in range(3):
                least = len(sent)
                made = postroom("backup", kept, "-o", "json").json
                back = postroom("--data", tmp_path / f"back{number}", "restore", kept)
                checked = postroom("--data", tmp_path / f"back{number}", "verify", "-o", "json")
                counts.append((least, made["rows"], back.code, checked.json["problems"]))
        finally:
            stop.set()
            sender.join()

    assert all(least <= rows for least, rows, _, _ in counts)
    assert [(0, [])] * 3 == [(code, problems) for _, _, code, problems in counts]


def test_a_backup_is_not_brought_back_over_mail(full, tmp_path):
    full("backup", tmp_path / "kept")

    assert 5 == full("restore", tmp_path / "kept").code
