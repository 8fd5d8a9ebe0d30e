"""Moving house and back leaves everything as it was; `tests/faults` drills backups."""

from __future__ import annotations

import pytest

from postroom.errors import Conflict
from tests.mails import mail

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


def test_a_backup_is_not_brought_back_over_mail(full, tmp_path):
    full("backup", tmp_path / "kept")

    assert 5 == full("restore", tmp_path / "kept").code
