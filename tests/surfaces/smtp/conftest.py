"""An SMTP listener, and a client that sends exactly the given lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from postroom.app import App
from postroom.model.inbox import Inbox
from postroom.surfaces.smtp.server import Listener, listening
from tests.mails import new_inbox


@pytest.fixture
async def listener(app: App) -> AsyncIterator[Listener]:
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, settings=settings)) as opened:
        assert opened is not None
        yield opened


@pytest.fixture
async def inbox(app: App) -> Inbox:
    return await new_inbox(app.services)


class Client:
    """Raw SMTP: lines out, replies in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def reply(self) -> bytes:
        """The next reply, with all of its lines."""
        lines = b""
        while True:
            line = await asyncio.wait_for(self.reader.readline(), 20)
            lines += line
            if line[3:4] != b"-":
                return lines

    async def say(self, *lines: bytes) -> bytes:
        """Send several commands in sequence; returns the last reply."""
        answer = b""
        for line in lines:
            self.writer.write(line + b"\r\n")
            answer = await self.reply()
        return answer

    async def begin(self, to: str = "bo@postroom.localhost", hello: bytes = b"EHLO me") -> bytes:
        """Send everything before the data; returns the reply to DATA."""
        await self.reply()
        recipient = f"RCPT TO:<{to}>".encode()
        return await self.say(hello, b"MAIL FROM:<ana@example.com>", recipient, b"DATA")

    async def send(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reply()


async def connect(listener: Listener) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", listener.port))


@pytest.fixture
async def client(listener: Listener) -> AsyncIterator[Client]:
    opened = await connect(listener)
    yield opened
    opened.writer.close()
