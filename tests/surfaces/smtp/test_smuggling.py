"""SMTP smuggling is not possible, whatever line endings a client sends."""

from __future__ import annotations

from itertools import product

import pytest

from postroom.app import App
from postroom.model.inbox import Inbox
from postroom.surfaces.smtp.server import Listener
from tests.surfaces.smtp.conftest import Client, connect
from tests.surfaces.smtp.mails import subjects

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
    """For all line endings before and after the dot, and all splits into packets."""
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

    assert b"554 5.6.0 bare CR or LF" == answer[:23]
    assert [] == await subjects(app)


async def test_data_sent_before_the_reply_to_data_is_refused(client: Client, inbox: Inbox) -> None:
    await client.reply()
    await client.say(b"EHLO me", b"MAIL FROM:<a@b.c>", f"RCPT TO:<{inbox.address}>".encode())
    client.writer.write(b"DATA\r\nSubject: early\r\n\r\nx\r\n.\r\n")

    assert b"503 5.5.0" == (await client.reply())[:9]
    assert b"" == await client.reader.read()


async def test_an_http_request_is_refused_and_disconnected(client: Client) -> None:
    await client.reply()
    reply = await client.say(b"POST / HTTP/1.1")

    assert b"421 4.7.0 this port is for SMTP, not for HTTP\r\n" == reply
    assert b"" == await client.reader.read()
