"""Exported mail is identical to the received mail, and can be imported again."""

from __future__ import annotations

import lzma
import mailbox
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.pipeline.transfer.import_export import export_mail, import_mail, open_target
from postroom.pipeline.transfer.mail_files import open_source
from postroom.surfaces.cli.session import Session
from tests.mails import mail

NASTY = [
    b"From: a@example.com\nSubject: ends without a newline\n\nFrom here\n>From there\n>>From far",
    b"From: a@example.com\r\nSubject: crlf\r\n\r\nFrom here\r\n\r\nFrom there\r\n",
    b"From x Fri Jan  2 03:04:05 2026\nSubject: begins with a From line\n\ntext\n",
    b"Subject: 8-bit \xe4\xf6\xfc\n\n\xff\xfe\x00 text\n\n\n",
    b"Subject: only headers",
    b"\n",
    b"\r",
    b"no header at all\r",
    b"Subject: a trailing blank line\n\ntext\n\n",
    b"Subject: forwarded\n\nFrom b@example.com Fri Jan  2 03:04:05 2026\nSubject: inner\n\ninner\n",
]
KINDS = ["mbox", "maildir", "eml"]


async def fill(app, mails, username="bo"):
    inbox = Inbox(
        f"inb_{username}", f"{username}@postroom.localhost", "", None, app.services.clock()
    )
    await app.services.store.add_inbox(inbox, client_id=None, payload=b"")
    await receive_many(app.services, [Arrival(raw, inbox.id) for raw in mails])
    return inbox.id


async def sources(app, inbox_id):
    messages = [m async for m in app.services.store.raw_messages(inbox_id, EVERYTHING)]
    return [await app.services.blobs.read(m.raw) for m in messages]


async def export_and_import(app, source_id, target_id, path, kind):
    """Export an inbox to a path and import that path into another inbox."""
    with open_target(path, kind) as target:
        await export_mail(app.services, source_id, target)
    source = open_source(path, kind=kind, mailbox="Inbox", max_bytes=1_000_000)
    return await import_mail(app.services, source, target_id, takes_any=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_difficult_mails_survive_export_and_import(app, tmp_path, kind):
    first, second = await fill(app, NASTY), await fill(app, [], "ana")

    outcome = await export_and_import(app, first, second, tmp_path / "out", kind)

    assert (len(NASTY), 0) == (outcome.stored, outcome.refused)
    assert NASTY == await sources(app, second)


LINES = st.sampled_from(
    [b"From ", b"From a\n", b">From b\n", b"\n", b"\r\n", b"\r", b"Subject: x\n", b"\xff", b"text"]
)


@given(
    mails=st.lists(st.lists(LINES, min_size=1, max_size=6).map(b"".join), unique=True, max_size=5)
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("kind", KINDS)
def test_any_mails_survive_export_and_import(tmp_path_factory, kind, mails):
    folder = tmp_path_factory.mktemp("carry")

    async def work(app):
        first, second = await fill(app, mails), await fill(app, [], "ana")
        await export_and_import(app, first, second, folder / "out", kind)
        return await sources(app, first), await sources(app, second)

    kept, carried = Session(data=str(folder / "data")).run(work, creates=True)

    assert kept == carried


async def test_a_maildir_keeps_mailboxes_and_flags(app, tmp_path):
    first, second = await fill(app, []), await fill(app, [], "ana")
    places = [
        ("Inbox", ("seen", "flagged")),
        ("Sent", ("seen",)),
        ("Trash", ()),
        ("Work/Büro", ("answered", "draft")),
        ("a.b & c//d", ()),
        ("仕事", ("seen",)),
    ]
    await receive_many(
        app.services,
        [
            Arrival(mail(str(n)), first, mailbox, flags=flags)
            for n, (mailbox, flags) in enumerate(places)
        ],
    )

    await export_and_import(app, first, second, tmp_path / "out", "maildir")

    carried = [m async for m in app.services.store.raw_messages(second, EVERYTHING)]
    assert sorted(places) == sorted((m.mailboxes[0], m.flags) for m in carried)


def test_an_exported_mbox_is_read_by_other_programs(postroom, receive):
    for n in range(3):
        receive(mail(f"Number {n}", "text\n\nFrom me\n"))

    postroom("export", "out.mbox", "--inbox", "bo@postroom.localhost")

    assert ["Number 0", "Number 1", "Number 2"] == [m["subject"] for m in mailbox.mbox("out.mbox")]


def test_an_exported_maildir_is_read_by_other_programs(postroom, receive):
    message_id = receive(mail("Hello"))["message_id"]
    postroom("message", "flag", message_id, "seen", "flagged")
    postroom("message", "move", message_id, "Archive")

    postroom("export", "out", "--format", "maildir", "--inbox", "bo@postroom.localhost")

    [message] = mailbox.Maildir("out", create=False).get_folder("Archive")
    assert ("Hello", "FS") == (message["subject"], message.get_flags())


def test_an_export_can_be_compressed_or_piped(postroom, forked, receive):
    receive(mail())
    to = ("--inbox", "bo@postroom.localhost")

    postroom("export", "a.mbox", *to)
    postroom("export", "a.mbox.xz", *to)
    piped = forked("export", "-", *to)

    plain = Path("a.mbox").read_bytes()
    assert plain == lzma.decompress(Path("a.mbox.xz").read_bytes()) == piped.out.encode()


def test_an_export_is_private_and_reports_what_it_wrote(postroom, receive):
    receive(mail())

    result = postroom("export", "a.mbox", "--inbox", "bo@postroom.localhost", "-o", "json")

    assert {"path": "a.mbox", "written": 1, "problems": []} == result.json
    assert 0o600 == Path("a.mbox").stat().st_mode & 0o777
    assert ["a.mbox"] == [path.name for path in Path().iterdir()]


def test_an_export_overwrites_nothing(postroom, receive):
    receive(mail())
    Path("a.mbox").write_text("mine")

    result = postroom("export", "a.mbox", "--inbox", "bo@postroom.localhost")

    assert (5, "mine") == (result.code, Path("a.mbox").read_text())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["out", "--inbox", "bo@postroom.localhost"], 2),
        (["-", "--format", "eml", "--inbox", "bo@postroom.localhost"], 2),
        (["out.mbox", "--inbox", "nobody@postroom.localhost"], 3),
        (["out.mbox"], 2),
    ],
)
def test_a_failed_export_leaves_no_files(postroom, inbox, words, code):
    result = postroom("export", *words)

    assert code == result.code
    assert [] == list(Path().iterdir())


def test_a_message_whose_bytes_are_gone_is_named_and_the_others_are_written(
    postroom, data, receive
):
    lost = receive(mail("Lost"))["message_id"]
    for blob in (data / "blobs").glob("??/*"):
        blob.unlink()
    receive(mail("Kept"))

    result = postroom("export", "a.mbox", "--inbox", "bo@postroom.localhost")

    assert 1 == result.code
    assert f"missing: {lost}" in result.err
    assert ["Kept"] == [m["subject"] for m in mailbox.mbox("a.mbox")]


def test_an_unknown_inbox_is_reported(postroom, inbox, tmp_path):
    refused = postroom("export", str(tmp_path / "out.mbox"), "--inbox", "nobody")

    expected = "error: no inbox nobody; `postroom inbox list` lists inboxes\n"
    assert (3, expected) == (refused.code, refused.err)
