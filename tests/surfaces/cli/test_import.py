"""Mail is imported from files completely and once, however often it is interrupted."""

from __future__ import annotations

import gzip
import lzma
import signal
import subprocess
from pathlib import Path

import apsw
import psycopg
import pytest

from postroom.model.view import EVERYTHING
from postroom.surfaces.cli.session import Session
from tests.mails import mail
from tests.servers.postroom import command, environment

FROM = b"From ana@example.com Fri Jan  2 03:04:05 2026\n"
TO = ("--inbox", "bo@postroom.localhost")


def mbox(*mails: bytes) -> bytes:
    return b"".join(FROM + raw + b"\n" for raw in mails)


def sources(data: Path) -> list[bytes]:
    """The bytes of all stored mails, in the order of arrival."""

    async def read(app):
        [inbox] = (await app.services.store.inboxes_at([TO[1]])).values()
        messages = [m async for m in app.services.store.raw_messages(inbox.id, EVERYTHING)]
        return [await app.services.blobs.read(m.raw) for m in messages]

    return Session(data=str(data)).run(read)


@pytest.mark.parametrize("suffix", [".mbox", ".mbox.xz", ".mbox.gz"])
def test_an_mbox_is_imported_compressed_or_not(postroom, data, inbox, suffix):
    mails = [mail(f"Number {n}") for n in range(3)]
    pack = {".mbox.xz": lzma.compress, ".mbox.gz": gzip.compress}.get(suffix, bytes)
    file = Path(f"mail{suffix}")
    file.write_bytes(pack(mbox(*mails)))

    outcome = postroom("import", file, *TO, "-o", "json").json

    assert {"read": 3, "stored": 3, "duplicates": 0, "refused": 0, "problems": []} == outcome
    assert mails == sources(data)


def test_a_second_run_stores_nothing_twice(postroom, data, inbox):
    Path("a.mbox").write_bytes(
        mbox(*(mail(f"Number {n}") for n in range(5)), mail(message_id=None))
    )

    first = postroom("import", "a.mbox", *TO)
    again = postroom("import", "a.mbox", *TO)

    assert "6 mails read: 6 stored, 0 duplicates, 0 refused\n" == first.out
    assert "6 mails read: 0 stored, 6 duplicates, 0 refused\n" == again.out


def test_the_inbox_is_created_on_request(postroom, data):
    Path("a.mbox").write_bytes(mbox(mail()))

    refused = postroom("import", "a.mbox", *TO)
    made = postroom("import", "a.mbox", *TO, "--create")

    assert (3, 0) == (refused.code, made.code)


def test_an_inbox_can_be_named_by_its_id(postroom, data, inbox):
    Path("a.eml").write_bytes(mail())

    assert 0 == postroom("import", "a.eml", "--inbox", inbox["id"]).code
    assert 1 == len(sources(data))


def test_eml_files_and_folders_are_imported_in_the_order_of_names(postroom, data, inbox):
    Path("letters/deep").mkdir(parents=True)
    mails = [mail(f"Number {n}") for n in range(4)]
    for path, raw in zip(
        ["letters/a.eml", "letters/b.EML", "letters/deep/c.eml"], mails, strict=False
    ):
        Path(path).write_bytes(raw)
    Path("letters/notes.txt").write_text("no mail")
    Path("last").write_bytes(mails[3])

    outcome = postroom("import", "letters", "last", *TO, "-o", "json").json

    assert (4, 4) == (outcome["read"], outcome["stored"])
    assert mails == sources(data)


def test_a_maildir_keeps_flags_and_mailboxes(postroom, data, inbox):
    places = {
        "Maildir/new/1": ([], ["Inbox"]),
        "Maildir/cur/2:2,FS": (["seen", "flagged"], ["Inbox"]),
        "Maildir/cur/3:2,RST": (["seen", "answered"], ["Trash"]),
        "Maildir/.Sent/cur/4:2,S": (["seen"], ["Sent"]),
        "Maildir/.Spam/new/5": ([], ["Junk"]),
        "Maildir/.Work.B&APw-ro/cur/6:2,D": (["draft"], ["Work/Büro"]),
        "Maildir/Plain/Deep/cur/7:2,": ([], ["Plain/Deep"]),
    }
    for name in places:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(mail(name))
    Path("Maildir/tmp").mkdir()
    Path("Maildir/tmp/8").write_bytes(mail("half written"))

    postroom("import", "Maildir", *TO)

    page = postroom("message", "list", inbox["id"], "--mailbox", "*", "-o", "json").json
    found = {r["subject"]: (r.get("flags", []), r["mailboxes"]) for r in page["results"]}
    assert places == found
    assert ["Maildir/.Sent/cur/4:2,S"] == [
        r["subject"] for r in page["results"] if r["direction"] == "outbound"
    ]


def test_the_mailbox_can_be_named(postroom, inbox):
    Path("a.mbox").write_bytes(mbox(mail()))

    postroom("import", "a.mbox", *TO, "--mailbox", "Old mail")

    page = postroom("message", "list", inbox["id"], "--mailbox", "Old mail", "-o", "json").json
    assert 1 == page["total"]


def test_other_files_are_reported_with_their_position_and_skipped(
    postroom, data, inbox, monkeypatch
):
    monkeypatch.setenv("POSTROOM_LIMIT_MESSAGE_BYTES", "2000")
    good = mail("Good")
    huge = mail("Huge", "x\n" * 2_000)
    Path("a.mbox").write_bytes(b"junk\n\n" + mbox(huge, good, b""))
    Path("empty.eml").touch()

    result = postroom("import", "a.mbox", "empty.eml", *TO, "--format", "mbox", "-o", "json")
    told = postroom("import", "empty.eml", *TO)

    places = [p["place"] for p in result.json["problems"]]
    assert (4, 1, 3) == tuple(result.json[name] for name in ("read", "stored", "refused"))
    assert ["a.mbox: mail 1 at byte 0", "a.mbox: mail 2 at byte 6"] == places[:2]
    assert "refused: empty.eml: the message is empty" in told.err
    assert [good] == sources(data)


@pytest.mark.parametrize("cut", [1, 60, 200])
def test_a_damaged_archive_is_imported_as_far_as_possible(postroom, data, inbox, cut):
    packed = lzma.compress(mbox(*(mail(f"Number {n}", "text " * 500) for n in range(3))))
    Path("a.mbox.xz").write_bytes(packed[:-cut])

    result = postroom("import", "a.mbox.xz", *TO, "-o", "json")

    assert result.code == (10 if result.json["stored"] else 2)
    assert 1 == result.json["refused"]
    assert "a.mbox.xz: after mail " in result.json["problems"][0]["place"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-file"], "No such file"),
        (["folder"], "neither a Maildir nor a folder with .eml files"),
        (["folder", "--format", "mbox"], "a folder, not an mbox"),
        (["a.eml", "--mailbox", "*"], "mailbox: give a name"),
        (["folder", "no-such-file"], "No such file"),
        (["bad.xz"], "damaged"),
    ],
)
def test_a_source_that_cannot_be_read_stops_it_before_it_begins(postroom, data, inbox, words, said):
    Path("folder").mkdir()
    Path("a.eml").write_bytes(mail())
    Path("bad.xz").write_bytes(b"not packed")

    result = postroom("import", *words, *TO)

    assert 2 == result.code
    assert said in result.err
    assert [] == sources(data)


def test_each_batch_is_reported_once_it_is_on_disk(postroom, data, inbox):
    Path("a.mbox").write_bytes(mbox(*(mail() for _ in range(5))))

    result = postroom("import", "a.mbox", *TO, "--batch", "2", "--verbose")

    lines = [line.split(",")[0] for line in result.err.splitlines()]
    assert ["importing: 2 mails", "importing: 4 mails", "importing: 5 mails"] == lines


def start_import(data: Path, **pipes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("import", "a.mbox", *TO, "--batch", "1", "--verbose"),
        env=environment(data),
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        **pipes,
    )


@pytest.mark.parametrize("acknowledged", [1, 7, 23])
def test_a_killed_import_loses_no_reported_mail_and_can_be_resumed(
    postroom, data, inbox, acknowledged
):
    mails = [mail(f"Number {n}") for n in range(40)]
    Path("a.mbox").write_bytes(mbox(*mails))

    running = start_import(data)
    for _ in range(acknowledged):
        running.stderr.readline()
    running.kill()
    running.wait(120)
    running.stderr.close()
    kept = sources(data)
    outcome = postroom("import", "a.mbox", *TO, "-o", "json").json

    assert acknowledged <= len(kept)
    assert mails[: len(kept)] == kept
    assert mails == sources(data)
    assert 40 - len(kept) == outcome["stored"]
    assert 0 == postroom("verify").code


def test_ctrl_c_leaves_complete_batches(postroom, data, inbox):
    mails = [mail(f"Number {n}") for n in range(1000)]  # more than are stored before the signal
    Path("a.mbox").write_bytes(mbox(*mails))

    running = start_import(data)
    running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)

    kept = sources(data)
    assert 130 == running.returncode
    assert "run it again to continue" in err
    assert "Traceback" not in err
    assert mails[: len(kept)] == kept
    assert 0 == postroom("verify").code


def test_two_imports_at_once_into_one_inbox_store_each_mail_once(data, postroom, inbox):
    mails = [mail(f"Number {n}") for n in range(60)]
    Path("a.mbox").write_bytes(mbox(*mails))

    both = [start_import(data) for _ in range(2)]
    for running in both:
        running.communicate(timeout=120)

    assert [0, 0] == [running.returncode for running in both]
    assert sorted(mails) == sorted(sources(data))


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_only_the_mail_that_the_database_refuses_is_skipped(
    postroom, data, database, request, monkeypatch
):
    if database == "postgres":
        url = request.getfixturevalue("database_url")
        monkeypatch.setenv("POSTROOM_DATABASE_URL", url)
        with psycopg.connect(url) as connection:
            connection.execute("ALTER TABLE messages ADD CHECK (subject <> 'Refused')")
    postroom("inbox", "create", "--username", "bo")
    if database == "sqlite":
        apsw.Connection(str(data / "postroom.db")).execute(
            """CREATE TRIGGER refused BEFORE INSERT ON messages WHEN new.subject = 'Refused'
               BEGIN SELECT RAISE(ABORT, 'too long'); END"""
        )
    Path("in.mbox").write_bytes(mbox(*(mail(s) for s in ("Before", "Refused", "After"))))

    ran = postroom("import", "in.mbox", *TO, "-o", "json")

    assert 10 == ran.code
    assert (3, 2, 1) == (ran.json["read"], ran.json["stored"], ran.json["refused"])
    assert "rejected" in ran.json["problems"][0]["problem"]
