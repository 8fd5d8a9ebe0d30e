"""Mail is received over SMTP and LMTP from any client, for local recipients."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
import subprocess
from dataclasses import replace
from email import message_from_bytes
from pathlib import Path

import pytest

from postroom.app import App
from postroom.calls.operation import call
from postroom.errors import Conflict, Forbidden
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.key import AGENT, OWNER
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING, only
from postroom.operations.outgoing.approvals import set_policy
from postroom.operations.outgoing.identities import create_alias
from postroom.operations.outgoing.sending import reply_to_message
from postroom.surfaces.smtp.server import Listener, listening
from tests.callers import a_caller
from tests.mails import mail, new_inbox
from tests.servers.certificates import certificate
from tests.surfaces.smtp.conftest import Client, connect
from tests.surfaces.smtp.mails import MAIL, subjects


async def test_mail_from_smtplib_is_received(app: App, listener: Listener, inbox: Inbox) -> None:
    def send() -> None:
        with smtplib.SMTP("127.0.0.1", listener.port) as client:
            outgoing_mail = message_from_bytes(mail("Dots\u00e9", ".a\n..b\n.", to=inbox.address))
            client.send_message(outgoing_mail)

    await asyncio.to_thread(send)

    [row] = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    message = await app.services.store.message(row.id, EVERYTHING)
    assert message is not None
    assert ("Dots\u00e9", ".a\n..b\n.") == (message.subject, message.text.rstrip("\n"))


async def test_mail_from_swaks_is_received(app: App, listener: Listener, inbox: Inbox) -> None:
    words = ["swaks", "--server", "127.0.0.1", "--port", str(listener.port), "--to", inbox.address]
    process = await asyncio.create_subprocess_exec(
        *words, "--from", "ana@example.com", "--header", "Subject: From swaks", "-n",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()

    assert (0, ["From swaks"]) == (process.returncode, await subjects(app)), out.decode()


async def test_the_stored_mail_is_byte_for_byte_the_sent_one(
    app: App, client: Client, inbox: Inbox
) -> None:
    raw = b"Subject: x\r\n\r\n.dot\r\n..\r\n\xff\xfe eight bit\r\n\0\r\nend\r\n"
    await client.begin(inbox.address)
    answer = await client.send(raw.replace(b"\r\n.", b"\r\n..") + b".\r\n")

    [row] = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    message = await app.services.store.message(row.id, EVERYTHING)
    assert answer.startswith(b"250 2.0.0 stored as msg_")
    assert message is not None
    assert raw == await app.services.blobs.read(message.raw)


async def test_one_mail_for_several_inboxes_arrives_in_each(
    app: App, client: Client, inbox: Inbox
) -> None:
    other = await new_inbox(app.services, "cy")
    await client.reply()
    await client.say(b"LHLO me", b"MAIL FROM:<>")
    for address in (inbox.address, other.address.upper()):
        await client.say(f"RCPT TO:<{address}>".encode())
    await client.say(b"DATA")
    client.writer.write(MAIL + b".\r\n")

    answers = [await client.reply(), await client.reply()]

    assert [b"250", b"250"] == [answer[:3] for answer in answers]
    assert 2 == (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).total
    assert 2 == (await app.services.store.events(EventQuery(visible=EVERYTHING))).total


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("bo@postroom.localhost", b"250 2.1.5"),
        ("BO@Postroom.LOCALHOST", b"250 2.1.5"),
        ("bo+shopping@postroom.localhost", b"250 2.1.5"),
        ("@relay.example:bo@postroom.localhost", b"250 2.1.5"),
        ("nobody@postroom.localhost", b"550 5.1.1"),
        ("bo@elsewhere.example", b"550 5.7.1"),
        ("", b"501 5.1.3"),
        ("bo", b"501 5.1.3"),
        ('"bo"@postroom.localhost', b"250 2.1.5"),
        ('"b o"@postroom.localhost', b"501 5.1.3"),
        ("postmaster", b"550 5.1.1"),
        ("postmaster@postroom.localhost", b"550 5.1.1"),
        ("bo@postroom.localhost> SIZE=1 <x@y", b"555 5.5.4"),
    ],
)
async def test_recipients_are_validated_before_the_data(
    client: Client, inbox: Inbox, address: str, code: bytes
) -> None:
    await client.reply()
    answer = await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>", f"RCPT TO:<{address}>".encode())

    assert code == answer[: len(code)], answer


@pytest.mark.parametrize("address", ["postmaster", "Postmaster", "postmaster@postroom.localhost"])
async def test_the_postmaster_needs_no_domain(app: App, client: Client, address: str) -> None:
    await new_inbox(app.services, "postmaster")
    await client.begin(address)

    assert b"250" == (await client.send(MAIL + b".\r\n"))[:3]
    assert ["Over SMTP"] == await subjects(app)


async def test_lmtp_answers_each_recipient_also_of_one_inbox(
    app: App, client: Client, inbox: Inbox
) -> None:
    await client.reply()
    await client.say(b"LHLO me", b"MAIL FROM:<a@b.c>")
    for address in (inbox.address, inbox.address.upper(), "bo+x@postroom.localhost"):
        await client.say(f"RCPT TO:<{address}>".encode())
    await client.say(b"DATA")
    client.writer.write(MAIL + b".\r\n")

    answers = [(await client.reply())[:3] for _ in range(3)]

    assert [b"250", b"250", b"250"] == answers
    assert b"221" == (await client.say(b"QUIT"))[:3]
    assert ["Over SMTP"] == await subjects(app)


async def test_a_catch_all_receives_mail_for_unknown_addresses(app: App, inbox: Inbox) -> None:
    services = replace(app.services, catch_all=inbox.address)
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, services=services, settings=settings)) as listener:
        assert listener is not None
        client = await connect(listener)
        await client.begin("anyone@postroom.localhost")
        answer = await client.send(MAIL + b".\r\n")
        client.writer.close()

    assert b"250" == answer[:3]
    assert ["Over SMTP"] == await subjects(app)


async def test_a_repeated_mail_is_stored_once(app: App, listener: Listener, inbox: Inbox) -> None:
    for _ in range(3):
        client = await connect(listener)
        await client.begin(inbox.address)
        assert (await client.send(MAIL + b".\r\n")).startswith(b"250")
        client.writer.close()

    assert 1 == (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).total
    assert 1 == (await app.services.store.events(EventQuery(visible=EVERYTHING))).total


async def test_starttls_discards_earlier_commands(app: App, inbox: Inbox, tmp_path: Path) -> None:
    made = certificate(tmp_path / "tls")
    settings = replace(
        app.settings, smtp_listen="127.0.0.1:0", tls_cert=made.cert, tls_key=made.key
    )
    async with listening(replace(app, settings=settings)) as listener:
        assert listener is not None

        def send() -> None:
            with smtplib.SMTP("localhost", listener.port) as client:
                client.starttls(context=ssl.create_default_context(cafile=str(made.cert)))
                client.sendmail("a@b.c", [inbox.address], MAIL)

        await asyncio.to_thread(send)
        eager = await connect(listener)
        await eager.reply()
        await eager.say(b"EHLO me")
        eager.writer.write(b"STARTTLS\r\nMAIL FROM:<evil@example.com>\r\n")
        refused = await eager.reader.read()

    assert ["Over SMTP"] == await subjects(app)
    assert b"554 5.5.1" == refused[:9]


async def test_a_mail_loop_is_rejected(client: Client, inbox: Inbox) -> None:
    await client.begin(inbox.address)
    hops = b"".join(b"Received: from a by b; x\r\n" for _ in range(51))
    answer = await client.send(hops + MAIL + b".\r\n")

    assert b"554 5.4.6" == answer[:9]


async def test_mail_with_a_null_sender_gets_no_automatic_answer(
    app: App, client: Client, inbox: Inbox
) -> None:
    await client.reply()
    recipient = f"RCPT TO:<{inbox.address}>".encode()
    await client.say(b"EHLO me", b"MAIL FROM:<>", recipient, b"DATA")
    await client.send(MAIL + b".\r\n")
    [row] = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    answer = {"message_id": row.id, "body_text": "I am away.", "automatic": True}

    with pytest.raises(Conflict, match="sent automatically"):
        await call(app.context(OWNER), reply_to_message, answer)

    message = await app.services.store.message(row.id, EVERYTHING)
    assert message is not None
    assert b"Return-Path: <>\r\n" + MAIL == await app.services.blobs.read(message.raw)


@pytest.mark.parametrize(
    "to",
    [
        "bo+x@postroom.localhost",
        "bo+@postroom.localhost",
        "BO+X+Y@POSTROOM.localhost",
        '"bo+x"@postroom.localhost',
        '"bo"@postroom.localhost',
        "bo+x@ｐｏｓｔｒｏｏｍ.localhost",
    ],
)
async def test_mail_to_a_tag_goes_to_the_inbox_of_its_base_address(
    app: App, client: Client, inbox: Inbox, to: str
) -> None:
    other = await new_inbox(app.services, "other")
    limited = app.context(a_caller("key_1", inboxes=only(other.id)))
    for ctx in (limited, app.context(AGENT)):
        for email in (to, to.replace('"', "")):
            with pytest.raises((Forbidden, Conflict)):
                await call(ctx, create_alias, {"email": email, "inbox_id": other.id})

    await client.begin(to)
    assert (await client.send(MAIL + b"\r\n.\r\n")).startswith(b"250")

    [row] = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    assert inbox.id == row.inbox_id


@pytest.mark.parametrize(
    ("sender", "expected"),
    [("x@spam.example", b"550 5.7.1"), ("x@ham.example", b"250"), ("", b"250")],
)
async def test_a_blocked_sender_is_rejected_if_configured(
    app: App, client: Client, inbox: Inbox, sender: str, expected: bytes
) -> None:
    senders = {"block": ["@spam.example"], "action": "refuse"}
    await call(app.context(OWNER), set_policy, {"inbox_id": inbox.id, "senders": senders})
    await client.reply()

    answer = await client.say(
        b"EHLO me", f"MAIL FROM:<{sender}>".encode(), f"RCPT TO:<{inbox.address}>".encode()
    )

    assert answer.startswith(expected)
