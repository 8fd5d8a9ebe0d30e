"""Kill a server while it delivers events to a webhook."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.faults.receiving import over_rest
from tests.faults.server_under_test import TIMEOUT_S, Outcome, ServerUnderTest, server
from tests.mails import mail

MAILS = 3
"""The number of mails, and so of events, in each round."""


@dataclass
class KillingReceiver:
    """Records deliveries; at one of them it kills the server, before or after reading it."""

    running: ServerUnderTest
    delivered: list[str] = field(default_factory=list)
    port: int = 0
    kill_in: int | None = None
    reads_first: bool = False
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            is_kill_due = self._is_kill_due()
            if is_kill_due and not self.reads_first:
                self._kill()
                return
            self.delivered.append(await _subject(reader))
            self.arrived.set()
            if is_kill_due:
                self._kill()
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
        writer.close()

    def _is_kill_due(self) -> bool:
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
async def _receiving(running: ServerUnderTest) -> AsyncIterator[KillingReceiver]:
    receiver = KillingReceiver(running)
    listening = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = listening.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        listening.close()


def killed_while_calling_webhooks(rounds: int, defect: str = "none", seed: int = 3) -> Outcome:
    """Send SIGKILL during deliveries; in the end each event was delivered, at first in order."""
    return asyncio.run(_killed_while_calling_webhooks(rounds, defect, random.Random(seed)))


async def _killed_while_calling_webhooks(
    rounds: int, defect: str, chance: random.Random
) -> Outcome:
    outcome = Outcome("kill -9 during webhook deliveries")
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
            await _until_all_delivered(receiver, set(expected))
            _count(receiver, expected, outcome)
            outcome.torn += await asyncio.to_thread(running.problems)
    return outcome


async def _one_round(running: ServerUnderTest, receiver: KillingReceiver, start: int) -> list[str]:
    """Deliver mail, wait until the server is killed, start it again; returns the acknowledged
    mails.
    """
    receiver.killed.clear()
    subjects = [f"drill {start + number}" for number in range(MAILS)]
    raws = [mail(subject) for subject in subjects]
    acked = len(await asyncio.to_thread(over_rest, running, raws, MAILS + 1))
    with suppress(TimeoutError):
        await asyncio.wait_for(receiver.killed.wait(), TIMEOUT_S)
    await asyncio.to_thread(running.start)
    while acked < MAILS:
        acked += len(await asyncio.to_thread(over_rest, running, raws[acked:], MAILS + 1))
    return subjects


async def _until_all_delivered(receiver: KillingReceiver, expected: set[str]) -> None:
    """Wait until every event was delivered, or nothing more arrives."""
    with suppress(TimeoutError):
        while not expected <= set(receiver.delivered):
            receiver.arrived.clear()
            await asyncio.wait_for(receiver.arrived.wait(), 20)


def _count(receiver: KillingReceiver, expected: list[str], outcome: Outcome) -> None:
    first_delivered = list(dict.fromkeys(receiver.delivered))
    outcome.acknowledged = len(expected)
    outcome.lost = len(set(expected) - set(first_delivered))
    outcome.torn = sum(a != b for a, b in zip(first_delivered, expected, strict=False))
