"""Mail is acknowledged only once it is stored, whatever fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from postroom.admission.spool import MEMORY_BYTES
from postroom.app import App
from postroom.errors import StorageFull
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.surfaces.smtp.connection import combined_reply
from postroom.surfaces.smtp.server import Listener, listening
from tests.mails import mail, new_inbox
from tests.surfaces.smtp.conftest import Client, connect
from tests.surfaces.smtp.mails import MAIL, subjects


async def test_a_disk_failure_is_a_temporary_error(app: App, inbox: Inbox, tmp_path: Path) -> None:
    settings = replace(app.settings, smtp_listen="127.0.0.1:0", data_dir=tmp_path / "gone")
    async with listening(replace(app, settings=settings)) as listener:
        assert listener is not None
        client = await connect(listener)
        await client.begin(inbox.address)
        answer = await client.send(MAIL + b"x\r\n" * MEMORY_BYTES + b".\r\n")
        client.writer.close()

    assert b"452 4.3.1" == answer[:9]
    assert [] == await subjects(app)


async def test_a_full_disk_is_a_temporary_error(
    app: App, client: Client, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = app.services.blobs.put

    async def full(_: object) -> list[str]:
        raise StorageFull("no space")

    monkeypatch.setattr(app.services.blobs, "put", full)
    await client.begin(inbox.address)
    first = await client.send(MAIL + b".\r\n")
    monkeypatch.setattr(app.services.blobs, "put", put)
    await client.say(b"MAIL FROM:<a@b.c>", f"RCPT TO:<{inbox.address}>".encode(), b"DATA")
    second = await client.send(MAIL + b".\r\n")

    assert [b"452 4.3.1", b"250 2.0.0"] == [first[:9], second[:9]]


async def test_a_removed_inbox_does_not_affect_other_mail_of_the_batch(
    app: App, listener: Listener, inbox: Inbox
) -> None:
    gone = await new_inbox(app.services, "gone")
    clients = [await connect(listener) for _ in range(6)]
    for number, client in enumerate(clients):
        await client.begin((gone if number == 3 else inbox).address)
    await app.services.store.remove_inbox(gone.id, EVERYTHING, force=True)
    for number, client in enumerate(clients):
        text = mail(f"{number}").replace(b"\n", b"\r\n")
        client.writer.write(text + b".\r\n")
    answers = [(await client.reply())[:3] for client in clients]
    for client in clients:
        client.writer.close()

    assert [b"250", b"250", b"250", b"550", b"250", b"250"] == answers
    assert 5 == (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).total


@pytest.mark.parametrize("hello", [b"LHLO me", b"EHLO me"])
async def test_a_removed_inbox_does_not_affect_other_recipients(
    app: App, client: Client, inbox: Inbox, hello: bytes
) -> None:
    gone, other = await new_inbox(app.services, "gone"), await new_inbox(app.services, "other")
    await client.reply()
    await client.say(hello, b"MAIL FROM:<a@b.c>")
    for place in (inbox, gone, other, inbox):
        await client.say(f"RCPT TO:<{place.address}>".encode())
    await client.say(b"DATA")
    await app.services.store.remove_inbox(gone.id, EVERYTHING, force=True)
    client.writer.write(MAIL + b".\r\n")
    count = 4 if hello.startswith(b"LHLO") else 1
    answers = [(await client.reply()).decode().strip() for _ in range(count)]

    rows = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    told = {row.inbox_id: f"250 2.0.0 stored as {row.id}" for row in rows}
    refused = {gone.id: "550 5.1.1 the mailbox no longer exists"}
    expected = [{**told, **refused}[place.id] for place in (inbox, gone, other, inbox)]
    assert {inbox.id, other.id} == told.keys()
    assert expected[:count] == answers
    assert b"221" == (await client.say(b"QUIT"))[:3]


async def test_mail_for_removed_inboxes_only_is_refused(
    app: App, client: Client, inbox: Inbox
) -> None:
    await client.begin(inbox.address)
    await app.services.store.remove_inbox(inbox.id, EVERYTHING, force=True)

    assert b"550 5.1.1" == (await client.send(MAIL + b".\r\n"))[:9]


def test_a_recipient_with_a_temporary_failure_is_retried() -> None:
    assert "451 x" == combined_reply(["250 a", "451 x", "550 y"])
    assert "250 a" == combined_reply(["550 y", "250 a", "250 b"])
    assert "550 y" == combined_reply(["550 y", "550 y"])


async def test_a_client_that_disconnects_leaves_nothing(
    app: App, listener: Listener, inbox: Inbox
) -> None:
    for place in range(0, len(MAIL), 37):
        client = await connect(listener)
        await client.begin(inbox.address)
        client.writer.write(MAIL[:place])
        await client.writer.drain()
        client.writer.close()
    whole = await connect(listener)
    await whole.begin(inbox.address)
    await whole.send(MAIL + b".\r\n")
    whole.writer.close()

    assert ["Over SMTP"] == await subjects(app)
