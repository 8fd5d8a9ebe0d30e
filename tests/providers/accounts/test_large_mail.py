"""Large mail is uploaded in parts as the provider requires, and arrives complete."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from random import Random

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.operations.outgoing import sending
from postroom.providers.web.graph_sender import AmbiguousParts, sent_copy, split_attachments
from tests.providers.accounts.conftest import add_synced_account
from tests.providers.accounts.remote_mailboxes import GraphRemote
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.test_sent_copies import OUTSIDE, outbox_worker, send
from tests.servers.graph import Graph

MB = 2**20


@pytest.mark.parametrize(("size", "sessions"), [(2 * MB, 0), (7 * MB, 1)])
async def test_files_above_three_megabytes_use_outlook_upload_sessions(
    tmp_path: Path, size: int, sessions: int
) -> None:
    content = Random(7).randbytes(size)
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    with Graph() as graph:
        remote = GraphRemote(graph)
        settings = read_settings({**values, **remote.settings}).settings
        async with open_app(settings) as app:
            synced = await add_synced_account(app, remote)
            await synced.sync()
            work = asyncio.create_task(app.outbox().run())
            file = {"filename": "Überblick.bin", "content_type": "application/x-data"}
            sent = await ask(
                synced,
                sending.send_message,
                to=["bo@elsewhere.example"],
                bcc=["hidden@elsewhere.example"],
                subject="The plan",
                body_text="See the file.",
                attachments=[{**file, "content": b64encode(content).decode()}],
                wait_s=30,
            )
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await synced.sync()
            await synced.sync()

            assert "sent" == sent.status, sent
            assert [sent.message_id] == [row.id for row in await synced.rows()]
        assert sessions == len(graph.uploads)
        assert max(len(asked.body) for asked in graph.requests) < 4 * MB

        (raw,) = graph.sent
        mail = message_from_bytes(raw, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        (part,) = mail.iter_attachments()
        assert ("Überblick.bin", content) == (part.get_filename(), part.get_content())
        assert "hidden@elsewhere.example" in str(mail["Bcc"])
        assert [] == [m for m in graph.mails.values() if m.is_draft]


INNER = b"From: x@y.example\r\nSubject: Inner\r\n\r\nThe inner words.\r\n"


def with_an_attached_mail(encoding: str) -> bytes:
    """A mail with a text, an attached mail and a file; the attached mail is 8bit or base64."""
    inner = b64encode(INNER) if encoding == "base64" else INNER
    head = b"From: a@b.org\r\nTo: c@d.org\r\nSubject: Outer\r\nMessage-ID: <1@b.org>\r\n"
    head += b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=xx\r\n\r\n"
    named = b"Content-Disposition: attachment; filename="
    parts = [
        b"Content-Type: text/plain\r\n\r\nHello",
        b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: " + encoding.encode() + b"\r\n"
        b"%bfwd.eml\r\n\r\n%b" % (named, inner),
        b"Content-Type: text/x-data\r\n%bdata\r\n\r\n1234" % named,
    ]
    return head + b"".join(b"--xx\r\n" + part + b"\r\n" for part in parts) + b"--xx--\r\n"


@pytest.mark.parametrize("encoding", ["base64", "8bit"])
def test_an_attached_mail_is_complete_in_any_encoding(encoding: str) -> None:
    raw = with_an_attached_mail(encoding)
    outgoing_mail, files = split_attachments(raw)
    copy = sent_copy(raw)

    wanted = [("fwd.eml", "message/rfc822", INNER), ("data", "text/x-data", b"1234")]
    for found in (files, copy.files):
        assert wanted == [(file.filename, file.content_type, file.content) for file in found]
    assert "Hello" == copy.message["body"]["content"].strip()
    assert (b"Hello" in outgoing_mail, b"inner" in outgoing_mail) == (True, False)


def test_a_mail_with_ambiguous_boundaries_is_refused() -> None:
    lines = b"".join(b"--xx\r\n\r\n%d\r\n" % number for number in range(600))
    head = b"Subject: x\r\nContent-Type: multipart/mixed; boundary=xx\r\n\r\n"
    with pytest.raises(AmbiguousParts, match="one by one"):
        split_attachments(head + lines + b"--xx--\r\n")


async def test_a_mail_attached_to_a_large_mail_is_uploaded_to_outlook(tmp_path: Path) -> None:
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    files = [("big.bin", "application/x-data", bytes(4 * MB)), ("a.eml", "message/rfc822", INNER)]
    given = [
        {"filename": name, "content_type": kind, "content": b64encode(content).decode()}
        for name, kind, content in files
    ]
    with Graph() as graph:
        remote = GraphRemote(graph)
        async with open_app(read_settings({**values, **remote.settings}).settings) as app:
            synced = await add_synced_account(app, remote)
            await synced.sync()
            async with outbox_worker(synced):
                sent = await send(synced, OUTSIDE, attachments=given, wait_s=30)

        assert "sent" == sent.status, sent
        uploads = [(item["name"], bytes(held)) for _, item, held in graph.uploads.values()]
        assert [(name, content) for name, _, content in files] == uploads
