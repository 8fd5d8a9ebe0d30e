"""Kill a server while it receives mail."""

from __future__ import annotations

import asyncio
import http.client
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.faults.server_under_test import (
    TIMEOUT_S,
    Outcome,
    ServerUnderTest,
    connect,
    count_duplicates,
    server,
)
from tests.mails import mail

CONNECTIONS = 4
Send = Callable[[ServerUnderTest, Sequence[bytes], int], set[int]]
"""Sends mails and kills the server after a number of them; returns the acknowledged ones."""


def over_smtp(running: ServerUnderTest, mails: Sequence[bytes], stop_after: int) -> set[int]:
    return asyncio.run(_over_smtp(running, mails, stop_after))


async def _over_smtp(running: ServerUnderTest, mails: Sequence[bytes], stop_after: int) -> set[int]:
    """Send over several connections, because mails that arrive together share a commit."""
    acked: set[int] = set()
    left = iter(enumerate(mails))

    async def deliver() -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await connect(running.smtp)
            for number, raw in left:
                if not (await _deliver_one(reader, writer, raw)).startswith(b"250"):
                    return
                acked.add(number)
                if len(acked) == stop_after:
                    running.kill()

    await asyncio.gather(*(deliver() for _ in range(CONNECTIONS)))
    return acked


async def _deliver_one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes
) -> bytes:
    """The last reply to a mail; empty if the connection was lost."""
    reply = b""
    for line in (b"MAIL FROM:<a@b.c>", b"RCPT TO:<bo@postroom.localhost>", b"DATA", raw + b"."):
        writer.write(line + b"\r\n")
        reply = await asyncio.wait_for(reader.readline(), TIMEOUT_S)
        if not reply:
            break
    return reply


def over_rest(running: ServerUnderTest, mails: Sequence[bytes], stop_after: int) -> set[int]:
    acked: set[int] = set()
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=TIMEOUT_S)
    login = {"Authorization": f"Bearer {running.key}", "Content-Type": "message/rfc822"}
    with suppress(OSError, http.client.HTTPException):
        for number, raw in enumerate(mails):
            path = "/v1/inbound?recipient=bo@postroom.localhost"
            connection.request("POST", path, raw, login)
            response = connection.getresponse()
            response.read()
            if response.status in (200, 201):
                acked.add(number)
            if len(acked) == stop_after:
                running.kill()
    connection.close()
    return acked


def killed_while_receiving(
    rounds: int, defect: str = "none", seed: int = 1, **extra: str
) -> Outcome:
    """Deliver over SMTP; see `_killed`."""
    return _killed("kill -9 while receiving (SMTP)", over_smtp, rounds, defect, seed, **extra)


def killed_while_posting(rounds: int, defect: str = "none", seed: int = 2) -> Outcome:
    """Deliver over REST; see `_killed`."""
    return _killed("kill -9 while receiving (REST)", over_rest, rounds, defect, seed)


def _killed(name: str, send: Send, rounds: int, defect: str, seed: int, **extra: str) -> Outcome:
    """Send SIGKILL after a random number of acknowledgements; the sender repeats its last five.

    It also repeats every mail that was not acknowledged before a later one was.
    """
    outcome, chance = Outcome(name), random.Random(seed)
    mails = [mail(f"drill {number}").replace(b"\n", b"\r\n") for number in range(rounds * 40)]
    acked: set[int] = set()
    with server(defect, **extra) as running:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        for _ in range(rounds):
            first = next(number for number in range(len(mails)) if number not in acked)
            start = max(0, first - 5)
            record = send(running, mails[start : start + 40], chance.randint(1, 30))
            acked |= {start + number for number in record}
            running.kill()
            running.start()
            outcome.tried += 1
        _count(running, outcome, acked)
    return outcome


def _count(running: ServerUnderTest, outcome: Outcome, acked: set[int]) -> None:
    stored = Counter(row[0] for row in running.rows("SELECT subject FROM messages"))
    told = running.rows("SELECT message FROM events WHERE type LIKE '%received'")
    outcome.acknowledged = len(acked)
    outcome.lost = sum(1 for number in acked if not stored[f"drill {number}"])
    outcome.doubled = count_duplicates(stored) + count_duplicates(Counter(row[0] for row in told))
    outcome.torn = running.problems()
