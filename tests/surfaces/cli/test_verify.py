"""`verify` finds defects of the store, and repairs the index; `--sweep` removes what is unused."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from tests.mails import mail
from tests.surfaces.cli.conftest import run_sql


def blobs(data: Path) -> list[Path]:
    return sorted((data / "blobs").glob("??/*"))


def test_an_intact_store_has_no_problems(postroom, receive):
    receive(mail(attachments=[("a.txt", "text/plain", b"x")]))

    result = postroom("verify", "-o", "json")

    assert (0, 2, []) == (result.code, result.json["blobs"], result.json["problems"])


@pytest.mark.parametrize(("second", "is_well"), [("ab" * 32, True), ("cd" * 32, False)])
def test_machines_that_share_a_database_share_the_audit_key(
    postroom, tmp_path, database_url, monkeypatch, second, is_well
):
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    codes = []
    for number, key in enumerate(("ab" * 32, second)):
        monkeypatch.setenv("POSTROOM_AUDIT_KEY", key)
        folder = tmp_path / f"machine{number}"
        made = postroom("--data", folder, "inbox", "create", "--username", f"bo{number}")
        codes.append(made.code)
        assert not (folder / "audit.key").exists()

    monkeypatch.setenv("POSTROOM_AUDIT_KEY", "ab" * 32)
    problems = postroom("--data", tmp_path / "machine1", "verify", "-o", "json").json["problems"]

    assert ([0, 0 if is_well else 5], []) == (codes, problems)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"\0" + path.read_bytes()[1:]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
    ],
    ids=["gone", "cut", "changed", "longer"],
)
def test_a_damaged_blob_is_found(postroom, data, receive, damage):
    receive(mail())
    [blob] = blobs(data)
    blob.chmod(0o600)
    damage(blob)

    result = postroom("verify")

    assert 1 == result.code
    assert result.out.startswith("problem: ")
    assert "1 problem\n" in result.out


def test_inconsistent_rows_are_found(postroom, data, receive):
    receive(mail())
    with apsw.Connection(str(data / "postroom.db")) as database:
        database.execute("UPDATE threads SET message_count = 7")

    assert 1 == postroom("verify").code


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE messages SET subject = 'Another'",
        "UPDATE messages SET from_address = 'eve@example.com'",
        "UPDATE bodies SET text = 'Send the money'",
        "DELETE FROM attachments",
    ],
)
def test_a_row_that_differs_from_its_mail_is_found(postroom, data, receive, damage):
    receive(mail(attachments=[("a.txt", "text/plain", b"x")]))
    with apsw.Connection(str(data / "postroom.db")) as database:
        database.execute(damage)

    found, quick = postroom("verify"), postroom("verify", "--quick")

    assert 1 == found.code
    assert "differs from its bytes" in found.out
    assert "differs from its bytes" not in quick.out


def test_a_sweep_removes_old_unused_blobs(postroom, data, receive):
    receive(mail())
    orphans = [data / "blobs" / "00" / ("0" * 61 + end) for end in ("1", "2")]
    orphans[0].parent.mkdir(exist_ok=True)
    for orphan in orphans:
        orphan.write_bytes(b"nobody's")
    os.utime(orphans[0], (0, 0))

    result = postroom("verify", "--sweep", "-o", "json")

    assert (0, 1) == (result.code, result.json["swept"])
    assert [False, True] == [orphan.exists() for orphan in orphans]


WORD_IN_INDEX = "SELECT count(*) FROM search_rows WHERE instr(value, 'xylophonequasar') > 0"


def indexed(postroom, data, inbox) -> str:
    """Import mails and advance the clock, so that they are indexed.

    Returns the id of the mail with a rare word.
    """
    box = data.parent / "mails.mbox"
    texts = ["a passphrase: xylophonequasar", *(f"letter {number}" for number in range(40))]
    mails = [mail(f"Number {at}", text) for at, text in enumerate(texts)]
    box.write_bytes(b"".join(b"From x@example.com\n" + raw + b"\n" for raw in mails))
    for _ in range(2):
        assert 0 == postroom("import", box, "--inbox", inbox["id"]).code
        run_sql(data, "UPDATE messages SET received_at = received_at - 100")
    found = postroom("search", "xylophonequasar", "-o", "json").json
    return found["results"][0]["id"]


def test_a_wrong_search_index_is_rebuilt(postroom, data, inbox):
    message_id = indexed(postroom, data, inbox)
    run_sql(data, "DELETE FROM search_rows WHERE kind < 100")
    run_sql(data, "DELETE FROM search_sets WHERE name LIKE 'inbox:%'")

    found = postroom("verify")
    repaired = postroom("verify", "--repair", "-o", "json")

    assert 1 == found.code
    assert "`postroom verify --repair`" in found.out
    assert (0, []) == (repaired.code, repaired.json["problems"])
    assert repaired.json["repaired"] > 0
    again = postroom("search", "xylophonequasar", "-o", "json").json
    assert [message_id] == [row["id"] for row in again["results"]]


def test_a_sweep_leaves_no_word_of_removed_mail_in_the_index(postroom, data, inbox):
    message_id = indexed(postroom, data, inbox)
    before = run_sql(data, WORD_IN_INDEX)
    postroom("message", "delete", message_id, "--permanent")
    swept = postroom("verify", "--sweep")
    after = run_sql(data, WORD_IN_INDEX)

    assert 0 == swept.code
    assert before > 0
    assert 0 == after
