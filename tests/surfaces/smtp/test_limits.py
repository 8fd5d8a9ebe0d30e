"""Limits on size, memory, line length and errors, each with its reply."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from dataclasses import replace
from functools import partial

import pytest

from postroom.admission import spool
from postroom.admission.spool import MEMORY_BYTES
from postroom.app import App
from postroom.model.inbox import Inbox
from postroom.model.limits import Limits
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.surfaces.smtp import server
from postroom.surfaces.smtp.connection import MAX_TEXT_LINE_BYTES
from postroom.surfaces.smtp.server import (
    MAX_ERRORS,
    MAX_RECIPIENTS,
    Listener,
    Session,
    listening,
)
from tests.mails import new_inbox
from tests.surfaces.smtp.conftest import Client, connect
from tests.surfaces.smtp.mails import MAIL, subjects


async def test_a_mail_over_the_limit_is_refused_and_one_at_it_is_not(
    app: App, inbox: Inbox
) -> None:
    services = replace(app.services, limits=Limits(message_bytes=2_000))
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    answers = []
    async with listening(replace(app, services=services, settings=settings)) as listener:
        assert listener is not None
        for size in (2_000, 2_001, 3_000_000):
            client = await connect(listener)
            await client.begin(inbox.address)
            head = b"Subject: x\r\n\r\n"
            body = head + b"x" * (size - len(head) - 2) + b"\r\n"
            answers.append((await client.send(body + b".\r\n"))[:9])
            assert b"250" == (await client.say(b"NOOP"))[:3]
            client.writer.close()
        client = await connect(listener)
        await client.reply()
        early = await client.say(b"EHLO me", b"MAIL FROM:<a@b.c> SIZE=2001")
        client.writer.close()

    assert [b"250 2.0.0", b"552 5.3.4", b"552 5.3.4"] == answers
    assert b"552 5.3.4" == early[:9]


@pytest.mark.parametrize("cut", range(7))
async def test_a_large_mail_is_stored_unchanged_however_it_is_split(
    app: App, client: Client, inbox: Inbox, cut: int
) -> None:
    raw = b"Subject: large\r\n\r\n" + b"x" * 10 + b"\r\n.y\r\n" * (3 * MEMORY_BYTES // 6)
    whole = raw.replace(b"\r\n.", b"\r\n..") + b".\r\n"
    await client.begin(inbox.address)
    for part in (whole[: 2 * MEMORY_BYTES + cut], whole[2 * MEMORY_BYTES + cut : -cut or None]):
        client.writer.write(part)
        await client.writer.drain()
    answer = await client.send(whole[len(whole) - cut :])

    [row] = (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    message = await app.services.store.message(row.id, EVERYTHING)
    assert b"250" == answer[:3]
    assert message is not None
    assert raw == await app.services.blobs.read(message.raw)


async def test_a_mail_that_never_ends_is_not_held_in_memory(
    app: App, listener: Listener, inbox: Inbox
) -> None:
    line = b"x" * 998 + b"\r\n"
    tracemalloc.start()
    try:
        clients = [await connect(listener) for _ in range(8)]
        for client in clients:
            await client.begin(inbox.address)
            for _ in range(40):
                client.writer.write(line * 100)
                await client.writer.drain()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for client in clients:
        client.writer.close()

    assert held < 8 * 40 * 100 * len(line) / 2


async def test_large_mails_are_received_in_sequence_if_memory_is_short(
    app: App, listener: Listener, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_BYTES_AT_ONCE", 1)
    body = b"x\r\n" * MEMORY_BYTES + b".\r\n"
    clients = [await connect(listener) for _ in range(5)]
    for number, client in enumerate(clients):
        await client.begin(inbox.address)
        client.writer.write(b"Subject: %d\r\n\r\n" % number + body)
    answers = [(await client.reply())[:3] for client in clients]
    for client in clients:
        client.writer.close()

    assert [b"250"] * 5 == answers
    assert {"0", "1", "2", "3", "4"} == set(await subjects(app))


@pytest.mark.parametrize(("size", "code"), [(0, b"250 2.0.0"), (1, b"554 5.6.0")])
async def test_the_length_of_a_line_is_limited(
    client: Client, inbox: Inbox, size: int, code: bytes
) -> None:
    await client.begin(inbox.address)
    line = b"x" * (MAX_TEXT_LINE_BYTES + size)
    answer = await client.send(b"Subject: x\r\n\r\nshort\r\n" + line + b"\r\nend\r\n.\r\n")

    assert code == answer[:9]


async def test_a_client_that_does_not_read_replies_is_disconnected(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "Session", partial(Session, idle_s=0.5))
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, settings=settings)) as listener:
        assert listener is not None
        deaf = socket.create_connection(("127.0.0.1", listener.port))
        deaf.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionError):
                await loop.sock_sendall(deaf, b"NOOP\r\n" * 5_000_000)
        deaf.close()


async def test_recipients_over_the_limit_get_a_temporary_error(app: App, client: Client) -> None:
    await new_inbox(app.services)
    await client.reply()
    await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>")
    answers = [
        await client.say(f"RCPT TO:<bo+{number}@postroom.localhost>".encode())
        for number in range(MAX_RECIPIENTS + MAX_ERRORS + 1)
    ]

    assert b"250" == answers[MAX_RECIPIENTS - 1][:3]
    assert {b"452 4.5.3"} == {answer[:9] for answer in answers[MAX_RECIPIENTS:]}
    await client.say(b"DATA")
    assert b"250" == (await client.send(MAIL + b".\r\n"))[:3]


async def test_only_the_client_over_the_rate_limit_is_deferred(app: App, inbox: Inbox) -> None:
    services = replace(app.services, limits=replace(app.services.limits, smtp_per_minute=2))
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, services=services, settings=settings)) as listener:
        assert listener is not None
        hasty, other = [
            Client(*await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(own, 0)))
            for own in ("127.0.0.1", "127.0.0.2")
        ]
        for client in (hasty, other):
            await client.reply()
            await client.say(b"EHLO me")
        answers = [(await hasty.say(b"RSET", b"MAIL FROM:<a@b.c>"))[:9] for _ in range(4)]
        welcome = (await other.say(b"MAIL FROM:<a@b.c>"))[:9]
        for client in (hasty, other):
            client.writer.close()

    assert [b"250 2.1.0", b"250 2.1.0", b"450 4.7.1", b"450 4.7.1"] == answers
    assert b"250 2.1.0" == welcome


async def test_a_client_with_too_many_errors_is_disconnected(client: Client) -> None:
    await client.reply()
    for _ in range(MAX_ERRORS - 1):
        assert b"500" == (await client.say(b"BOGUS"))[:3]
    client.writer.write(b"BOGUS\r\n")

    assert b"421 4.7.0" in await client.reader.read()


@pytest.mark.parametrize("line", [b"x" * 3_000, b"NOOP " + b"x" * 2_000 + b"\r\n"])
async def test_a_command_line_that_is_too_long_ends_the_connection(
    client: Client, line: bytes
) -> None:
    await client.reply()
    client.writer.write(line)

    assert b"500 5.5.2" in await client.reader.read()


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([b"MAIL FROM:<a@b.c>"], b"503"),
        ([b"EHLO"], b"501"),
        ([b"EHLO me", b"RCPT TO:<a@b.c>"], b"503"),
        ([b"EHLO me", b"DATA"], b"503"),
        ([b"EHLO me", b"MAIL FROM:a@b.c"], b"501"),
        ([b"EHLO me", b"MAIL FROM:<a@b.c> FOO=1"], b"555"),
        ([b"EHLO me", b"MAIL FROM:<a@b.c> SIZE=x"], b"501"),
        ([b"EHLO me", b"MAIL FROM:<a@b.c> BODY=BINARYMIME"], b"501"),
        ([b"EHLO me", b"MAIL FROM:<a@b.c> BODY=8BITMIME SMTPUTF8"], b"250"),
        ([b"EHLO me", "MAIL FROM:<ä@ö.example> SMTPUTF8".encode()], b"250"),
        ([b"EHLO me", b"MAIL FROM:<>", b"MAIL FROM:<>"], b"503"),
        ([b"EHLO me", b"MAIL FROM:<>", b"RSET", b"MAIL FROM:<>"], b"250"),
        ([b"EHLO me", b"STARTTLS"], b"503"),
        ([b"HELO me"], b"250"),
        ([b"VRFY bo"], b"252"),
        ([b"HELP"], b"214"),
        ([b"NOOP\0"], b"500"),
        ([b"QUIT"], b"221"),
    ],
)
async def test_commands_out_of_turn_are_refused(
    client: Client, lines: list[bytes], code: bytes
) -> None:
    await client.reply()

    assert code == (await client.say(*lines))[:3]


async def test_an_empty_line_is_answered(client: Client) -> None:
    await client.reply()

    assert b"500 5.5.2" == (await client.say(b""))[:9]
    assert b"500 5.5.2" == (await client.say(b" "))[:9]
    assert b"250" == (await client.say(b"NOOP"))[:3]
