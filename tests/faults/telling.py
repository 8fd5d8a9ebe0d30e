"""Kill a server while it tells a webhook."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.faults.drilled import PATIENCE_S, Outcome, Server, server
from tests.faults.receiving import over_rest
from tests.mails import mail

MAILS = 3
"""How many mails there are to be told of in each round."""


@dataclass
class Receiver:
    """Takes what it is told; at some event it has the server killed, before or after it is read."""

    running: Server
    told: list[str] = field(default_factory=list)
    port: int = 0
    kill_in: int | None = None
    reads_first: bool = False
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            is_the_end = self._is_the_end()
            if is_the_end and not self.reads_first:
                self._kill()
                return
            self.told.append(await _subject(reader))
            self.news.set()
            if is_the_end:
                self._kill()
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
        writer.close()

    def _is_the_end(self) -> bool:
        if self.kill_in is None:
            return False
        self.kill_in -= 1
        return self.kill_in <= 0

    def _kill(self) -> None:
        self.kill_in = None
        self.running.kill()
        self.killed.set()


async def _subject(reader: asyncio.StreamReader) -> str:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].split()[0])
    return str(json.loads(await reader.readexactly(length))["data"]["data"]["subject"])


@asynccontextmanager
async def _receiving(running: Server) -> AsyncIterator[Receiver]:
    receiver = Receiver(running)
    listening = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = listening.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        listening.close()


def killed_while_telling(rounds: int, defect: str = "none", seed: int = 3) -> Outcome:
    """Kill -9 as a webhook is told; in the end it was told of everything, at first in turn."""
    return asyncio.run(_killed_while_telling(rounds, defect, random.Random(seed)))


async def _killed_while_telling(rounds: int, defect: str, chance: random.Random) -> Outcome:
    outcome = Outcome("kill -9 while telling a webhook")
    with server(defect, POSTROOM_WEBHOOK_ALLOW="127.0.0.0/8") as running:
        async with _receiving(running) as receiver:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            hook = {"url": f"http://127.0.0.1:{receiver.port}/", "types": ["message.received"]}
            await asyncio.to_thread(running.ask, "POST", "/v1/webhooks", hook)
            expected: list[str] = []
            for _ in range(rounds):
                receiver.kill_in = chance.randint(1, MAILS)
                receiver.reads_first = chance.random() < 0.5
                expected += await _one_round(running, receiver, len(expected))
                outcome.tried += 1
            await _all_told(receiver, set(expected))
            _count(receiver, expected, outcome)
            outcome.torn += await asyncio.to_thread(running.problems)
    return outcome


async def _one_round(running: Server, receiver: Receiver, start: int) -> list[str]:
    """Bring some mail, wait until the server is killed, start it again; what was acknowledged."""
    receiver.killed.clear()
    subjects = [f"drill {start + number}" for number in range(MAILS)]
    raws = [mail(subject) for subject in subjects]
    acked = len(await asyncio.to_thread(over_rest, running, raws, MAILS + 1))
    with suppress(TimeoutError):
        await asyncio.wait_for(receiver.killed.wait(), PATIENCE_S)
    await asyncio.to_thread(running.start)
    while acked < MAILS:
        acked += len(await asyncio.to_thread(over_rest, running, raws[acked:], MAILS + 1))
    return subjects


async def _all_told(receiver: Receiver, expected: set[str]) -> None:
    """Wait until the webhook was told of everything, or nothing more comes."""
    with suppress(TimeoutError):
        while not expected <= set(receiver.told):
            receiver.news.clear()
            await asyncio.wait_for(receiver.news.wait(), 20)


def _count(receiver: Receiver, expected: list[str], outcome: Outcome) -> None:
    first_told = list(dict.fromkeys(receiver.told))
    outcome.acknowledged = len(expected)
    outcome.lost = len(set(expected) - set(first_told))
    outcome.torn = sum(a != b for a, b in zip(first_told, expected, strict=False))
