"""Mail comes in over SMTP and LMTP, and is acknowledged only when it is kept."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
import subprocess
import tracemalloc
from dataclasses import replace
from email import message_from_bytes
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from postroom.app import App
from postroom.errors import Conflict, StorageFull
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.model.limits import Limits
from postroom.model.stored import MessageQuery
from postroom.operations import keeping
from postroom.operations.keeping import KEPT_BYTES
from postroom.operations.operation import call
from postroom.operations.sending import reply_to_message
from postroom.surfaces.smtp import server
from postroom.surfaces.smtp.server import Listener, listening
from postroom.surfaces.smtp.session import (
    MOST_ERRORS,
    MOST_RECIPIENTS,
    Session,
)
from postroom.surfaces.smtp.taking import MOST_TEXT_LINE_BYTES, for_all
from tests.mails import mail, new_inbox
from tests.servers.certificates import certificate
from tests.surfaces.smtp.conftest import Client, connect

MAIL = mail("Over SMTP").replace(b"\n", b"\r\n")


async def subjects(app: App) -> list[str]:
    return [row.subject for row in (await app.house.store.messages(MessageQuery())).rows]


async def test_pythons_own_client_is_understood(app: App, listener: Listener, inbox: Inbox) -> None:
    def send() -> None:
        with smtplib.SMTP("127.0.0.1", listener.port) as client:
            letter = message_from_bytes(mail("Dots\u00e9", ".a\n..b\n.", to=inbox.address))
            client.send_message(letter)

    await asyncio.to_thread(send)

    [row] = (await app.house.store.messages(MessageQuery())).rows
    message = await app.house.store.message(row.id, None)
    assert message is not None
    assert ("Dots\u00e9", ".a\n..b\n.") == (message.subject, message.text.rstrip("\n"))


async def test_swaks_is_understood(app: App, listener: Listener, inbox: Inbox) -> None:
    words = ["swaks", "--server", "127.0.0.1", "--port", str(listener.port), "--to", inbox.address]
    process = await asyncio.create_subprocess_exec(
        *words, "--from", "ana@example.com", "--header", "Subject: From swaks", "-n",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()

    assert (0, ["From swaks"]) == (process.returncode, await subjects(app)), out.decode()


async def test_what_is_kept_is_what_was_sent_to_the_byte(
    app: App, client: Client, inbox: Inbox
) -> None:
    raw = b"Subject: x\r\n\r\n.dot\r\n..\r\n\xff\xfe eight bit\r\n\0\r\nend\r\n"
    await client.begin(inbox.address)
    answer = await client.send(raw.replace(b"\r\n.", b"\r\n..") + b".\r\n")

    [row] = (await app.house.store.messages(MessageQuery())).rows
    message = await app.house.store.message(row.id, None)
    assert answer.startswith(b"250 2.0.0 stored as msg_")
    assert message is not None
    assert raw == await app.house.blobs.read(message.raw)


async def test_one_mail_for_several_inboxes_arrives_in_each(
    app: App, client: Client, inbox: Inbox
) -> None:
    other = await new_inbox(app.house, "cy")
    await client.reply()
    await client.say(b"LHLO me", b"MAIL FROM:<>")
    for address in (inbox.address, other.address.upper()):
        await client.say(f"RCPT TO:<{address}>".encode())
    await client.say(b"DATA")
    client.writer.write(MAIL + b".\r\n")

    answers = [await client.reply(), await client.reply()]

    assert [b"250", b"250"] == [answer[:3] for answer in answers]
    assert 2 == (await app.house.store.messages(MessageQuery())).total
    assert 2 == (await app.house.store.events(EventQuery())).total


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
async def test_recipients_are_checked_before_the_mail(
    client: Client, inbox: Inbox, address: str, code: bytes
) -> None:
    await client.reply()
    answer = await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>", f"RCPT TO:<{address}>".encode())

    assert code == answer[: len(code)], answer


@pytest.mark.parametrize("address", ["postmaster", "Postmaster", "postmaster@postroom.localhost"])
async def test_the_postmaster_needs_no_domain(app: App, client: Client, address: str) -> None:
    await new_inbox(app.house, "postmaster")
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


async def test_a_catch_all_takes_what_nobody_else_does(app: App, inbox: Inbox) -> None:
    house = replace(app.house, catch_all=inbox.address)
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, house=house, settings=settings)) as listener:
        assert listener is not None
        client = await connect(listener)
        await client.begin("anyone@postroom.localhost")
        answer = await client.send(MAIL + b".\r\n")
        client.writer.close()

    assert b"250" == answer[:3]
    assert ["Over SMTP"] == await subjects(app)


async def test_a_repeated_mail_is_kept_once(app: App, listener: Listener, inbox: Inbox) -> None:
    for _ in range(3):
        client = await connect(listener)
        await client.begin(inbox.address)
        assert (await client.send(MAIL + b".\r\n")).startswith(b"250")
        client.writer.close()

    assert 1 == (await app.house.store.messages(MessageQuery())).total
    assert 1 == (await app.house.store.events(EventQuery())).total


ENDS = [b"\r", b"\n", b"\r\n", b"\0"]
SMUGGLED = (
    b"MAIL FROM:<evil@example.com>\r\nRCPT TO:<bo@postroom.localhost>\r\nDATA\r\n"
    b"Subject: smuggled\r\n\r\nx\r\n.\r\n"
)


@pytest.mark.parametrize("before", ENDS)
@pytest.mark.parametrize("after", ENDS)
@pytest.mark.parametrize("split", [False, True])
async def test_no_second_mail_can_be_smuggled(
    app: App, client: Client, inbox: Inbox, before: bytes, after: bytes, split: bool
) -> None:
    await client.begin(inbox.address)
    first = b"Subject: first\r\n\r\nbody" + before + b"." + after
    if split:
        client.writer.write(first[:-2])
        await client.writer.drain()
        client.writer.write(first[-2:-1])
        await client.writer.drain()
        client.writer.write(first[-1:] + SMUGGLED)
    else:
        client.writer.write(first + SMUGGLED)

    answer = await client.reply()

    kept = await subjects(app)
    assert "smuggled" not in kept
    if (before, after) == (b"\r\n", b"\r\n"):
        assert b"554 5.5.0" == answer[:9]
    elif b"\0" in (before, after) and {before, after} <= {b"\0", b"\r\n"}:
        assert b"554 5.5.0" == answer[:9] or ["first"] == kept
    else:
        assert b"554 5.6.0" == answer[:9]
        assert [] == kept


SEVERAL = [b"".join(ends) for count in (1, 2) for ends in product(ENDS, repeat=count)]


@pytest.mark.parametrize("before", SEVERAL)
async def test_no_dot_between_several_line_ends_smuggles_a_mail(
    app: App, listener: Listener, inbox: Inbox, before: bytes
) -> None:
    """Whatever comes before and after the dot, and wherever TCP cuts it."""
    for after, place in product(SEVERAL, (0, 1, 2)):
        client = await connect(listener)
        await client.begin(inbox.address)
        first = b"Subject: first\r\n\r\nbody" + before + b"." + after
        cut = len(first) - place
        client.writer.write(first[:cut])
        await client.writer.drain()
        client.writer.write(first[cut:] + SMUGGLED)
        await client.reply()
        client.writer.close()

    assert {"first"} >= set(await subjects(app))


@pytest.mark.parametrize("lone", [b"a\nb", b"a\rb", b"\n", b"a\r\r\nb", b"a\n\r\nb"])
async def test_a_bare_newline_is_refused(
    app: App, client: Client, inbox: Inbox, lone: bytes
) -> None:
    await client.begin(inbox.address)
    answer = await client.send(b"Subject: x\r\n\r\n" + lone + b"\r\n.\r\n")

    assert b"554 5.6.0 a bare newline" == answer[:24]
    assert [] == await subjects(app)


async def test_nothing_is_taken_that_was_said_before_the_answer_to_data(
    client: Client, inbox: Inbox
) -> None:
    await client.reply()
    await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>", f"RCPT TO:<{inbox.address}>".encode())
    client.writer.write(b"DATA\r\nSubject: early\r\n\r\nx\r\n.\r\n")

    assert b"503 5.5.0" == (await client.reply())[:9]
    assert b"" == await client.reader.read()


async def test_a_mail_over_the_limit_is_refused_and_one_at_it_is_not(
    app: App, inbox: Inbox
) -> None:
    house = replace(app.house, limits=Limits(message_bytes=2_000))
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    answers = []
    async with listening(replace(app, house=house, settings=settings)) as listener:
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
async def test_a_large_mail_is_kept_as_it_was_sent_wherever_it_is_cut(
    app: App, client: Client, inbox: Inbox, cut: int
) -> None:
    raw = b"Subject: large\r\n\r\n" + b"x" * 10 + b"\r\n.y\r\n" * (3 * KEPT_BYTES // 6)
    whole = raw.replace(b"\r\n.", b"\r\n..") + b".\r\n"
    await client.begin(inbox.address)
    for part in (whole[: 2 * KEPT_BYTES + cut], whole[2 * KEPT_BYTES + cut : -cut or None]):
        client.writer.write(part)
        await client.writer.drain()
    answer = await client.send(whole[len(whole) - cut :])

    [row] = (await app.house.store.messages(MessageQuery())).rows
    message = await app.house.store.message(row.id, None)
    assert b"250" == answer[:3]
    assert message is not None
    assert raw == await app.house.blobs.read(message.raw)


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


async def test_large_mails_are_taken_one_after_the_other_where_memory_is_short(
    app: App, listener: Listener, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MOST_BYTES_AT_ONCE", 1)
    body = b"x\r\n" * KEPT_BYTES + b".\r\n"
    clients = [await connect(listener) for _ in range(5)]
    for number, client in enumerate(clients):
        await client.begin(inbox.address)
        client.writer.write(b"Subject: %d\r\n\r\n" % number + body)
    answers = [(await client.reply())[:3] for client in clients]
    for client in clients:
        client.writer.close()

    assert [b"250"] * 5 == answers
    assert {"0", "1", "2", "3", "4"} == set(await subjects(app))


async def test_a_disk_that_fails_while_a_mail_comes_says_try_again(
    app: App, inbox: Inbox, tmp_path: Path
) -> None:
    settings = replace(app.settings, smtp_listen="127.0.0.1:0", data_dir=tmp_path / "gone")
    async with listening(replace(app, settings=settings)) as listener:
        assert listener is not None
        client = await connect(listener)
        await client.begin(inbox.address)
        answer = await client.send(MAIL + b"x\r\n" * KEPT_BYTES + b".\r\n")
        client.writer.close()

    assert b"452 4.3.1" == answer[:9]
    assert [] == await subjects(app)


@pytest.mark.parametrize(("size", "code"), [(0, b"250 2.0.0"), (1, b"554 5.6.0")])
async def test_a_line_of_a_mail_has_an_end(
    client: Client, inbox: Inbox, size: int, code: bytes
) -> None:
    await client.begin(inbox.address)
    line = b"x" * (MOST_TEXT_LINE_BYTES + size)
    answer = await client.send(b"Subject: x\r\n\r\nshort\r\n" + line + b"\r\nend\r\n.\r\n")

    assert code == answer[:9]


async def test_whoever_does_not_read_our_answers_is_sent_away(
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


async def test_too_many_recipients_wait_for_another_mail(app: App, client: Client) -> None:
    await new_inbox(app.house)
    await client.reply()
    await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>")
    answers = [
        await client.say(f"RCPT TO:<bo+{number}@postroom.localhost>".encode())
        for number in range(MOST_RECIPIENTS + MOST_ERRORS + 1)
    ]

    assert b"250" == answers[MOST_RECIPIENTS - 1][:3]
    assert {b"452 4.5.3"} == {answer[:9] for answer in answers[MOST_RECIPIENTS:]}
    await client.say(b"DATA")
    assert b"250" == (await client.send(MAIL + b".\r\n"))[:3]


async def test_whoever_brings_too_many_mails_is_told_to_wait_and_nobody_else(
    app: App, inbox: Inbox
) -> None:
    house = replace(app.house, limits=replace(app.house.limits, smtp_per_minute=2))
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, house=house, settings=settings)) as listener:
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


async def test_whoever_only_makes_mistakes_is_sent_away(client: Client) -> None:
    await client.reply()
    for _ in range(MOST_ERRORS - 1):
        assert b"500" == (await client.say(b"BOGUS"))[:3]
    client.writer.write(b"BOGUS\r\n")

    assert b"421 4.7.0" in await client.reader.read()


@pytest.mark.parametrize("line", [b"x" * 3_000, b"NOOP " + b"x" * 2_000 + b"\r\n"])
async def test_a_line_that_is_too_long_ends_it(client: Client, line: bytes) -> None:
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


async def test_tls_is_offered_and_nothing_said_before_it_counts(
    app: App, inbox: Inbox, tmp_path: Path
) -> None:
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


async def test_a_full_disk_says_try_again_and_later_takes_it(
    app: App, client: Client, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = app.house.blobs.put

    async def full(_: object) -> list[str]:
        raise StorageFull("no space")

    monkeypatch.setattr(app.house.blobs, "put", full)
    await client.begin(inbox.address)
    first = await client.send(MAIL + b".\r\n")
    monkeypatch.setattr(app.house.blobs, "put", put)
    await client.say(b"MAIL FROM:<a@b.c>", f"RCPT TO:<{inbox.address}>".encode(), b"DATA")
    second = await client.send(MAIL + b".\r\n")

    assert [b"452 4.3.1", b"250 2.0.0"] == [first[:9], second[:9]]


async def test_an_inbox_that_is_gone_harms_nobody_else_in_the_lot(
    app: App, listener: Listener, inbox: Inbox
) -> None:
    gone = await new_inbox(app.house, "gone")
    clients = [await connect(listener) for _ in range(6)]
    for number, client in enumerate(clients):
        await client.begin((gone if number == 3 else inbox).address)
    await app.house.store.remove_inbox(gone.id, None, force=True)
    for number, client in enumerate(clients):
        text = mail(f"{number}").replace(b"\n", b"\r\n")
        client.writer.write(text + b".\r\n")
    answers = [(await client.reply())[:3] for client in clients]
    for client in clients:
        client.writer.close()

    assert [b"250", b"250", b"250", b"550", b"250", b"250"] == answers
    assert 5 == (await app.house.store.messages(MessageQuery())).total


@pytest.mark.parametrize("hello", [b"LHLO me", b"EHLO me"])
async def test_an_inbox_that_is_gone_takes_the_mail_from_no_other(
    app: App, client: Client, inbox: Inbox, hello: bytes
) -> None:
    gone, other = await new_inbox(app.house, "gone"), await new_inbox(app.house, "other")
    await client.reply()
    await client.say(hello, b"MAIL FROM:<a@b.c>")
    for place in (inbox, gone, other, inbox):
        await client.say(f"RCPT TO:<{place.address}>".encode())
    await client.say(b"DATA")
    await app.house.store.remove_inbox(gone.id, None, force=True)
    client.writer.write(MAIL + b".\r\n")
    count = 4 if hello.startswith(b"LHLO") else 1
    answers = [(await client.reply()).decode().strip() for _ in range(count)]

    rows = (await app.house.store.messages(MessageQuery())).rows
    told = {row.inbox_id: f"250 2.0.0 stored as {row.id}" for row in rows}
    refused = {gone.id: "550 5.1.1 the inbox is gone"}
    expected = [{**told, **refused}[place.id] for place in (inbox, gone, other, inbox)]
    assert {inbox.id, other.id} == told.keys()
    assert expected[:count] == answers
    assert b"221" == (await client.say(b"QUIT"))[:3]


async def test_mail_for_nobody_who_is_left_is_refused(
    app: App, client: Client, inbox: Inbox
) -> None:
    await client.begin(inbox.address)
    await app.house.store.remove_inbox(inbox.id, None, force=True)

    assert b"550 5.1.1" == (await client.send(MAIL + b".\r\n"))[:9]


def test_who_may_get_it_later_makes_the_sender_try_again() -> None:
    assert "451 x" == for_all(["250 a", "451 x", "550 y"])
    assert "250 a" == for_all(["550 y", "250 a", "250 b"])
    assert "550 y" == for_all(["550 y", "550 y"])


async def test_an_empty_line_is_answered(client: Client) -> None:
    await client.reply()

    assert b"500 5.5.2" == (await client.say(b""))[:9]
    assert b"500 5.5.2" == (await client.say(b" "))[:9]
    assert b"250" == (await client.say(b"NOOP"))[:3]


async def test_a_mail_that_goes_in_circles_is_stopped(client: Client, inbox: Inbox) -> None:
    await client.begin(inbox.address)
    hops = b"".join(b"Received: from a by b; x\r\n" for _ in range(51))
    answer = await client.send(hops + MAIL + b".\r\n")

    assert b"554 5.4.6" == answer[:9]


async def test_mail_without_a_sender_is_kept_as_such_and_no_machine_answers_it(
    app: App, client: Client, inbox: Inbox
) -> None:
    await client.reply()
    recipient = f"RCPT TO:<{inbox.address}>".encode()
    await client.say(b"EHLO me", b"MAIL FROM:<>", recipient, b"DATA")
    await client.send(MAIL + b".\r\n")
    [row] = (await app.house.store.messages(MessageQuery())).rows
    answer = {"message_id": row.id, "body_text": "I am away.", "automatic": True}

    with pytest.raises(Conflict, match="sent by a machine"):
        await call(app.context(OWNER), reply_to_message, answer)

    message = await app.house.store.message(row.id, None)
    assert message is not None
    assert b"Return-Path: <>\r\n" + MAIL == await app.house.blobs.read(message.raw)


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(
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
