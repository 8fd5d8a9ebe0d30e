"""Kill a server while it receives."""

from __future__ import annotations

import asyncio
import http.client
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.faults.drilled import PATIENCE_S, Server, Tally, connect, server, twice
from tests.mails import mail

Send = Callable[[Server, Sequence[bytes], int], int]
"""Sends mails until the server dies, and kills it after so many; how many it acknowledged."""


def over_smtp(running: Server, mails: Sequence[bytes], stop_after: int) -> int:
    return asyncio.run(_over_smtp(running, mails, stop_after))


async def _over_smtp(running: Server, mails: Sequence[bytes], stop_after: int) -> int:
    acked = 0
    with suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await connect(running.smtp)
        for raw in mails:
            lines = (b"MAIL FROM:<a@b.c>", b"RCPT TO:<bo@postroom.localhost>", b"DATA", raw + b".")
            reply = b""
            for line in lines:
                writer.write(line + b"\r\n")
                reply = await asyncio.wait_for(reader.readline(), PATIENCE_S)
                if not reply:
                    return acked
            if reply.startswith(b"250"):
                acked += 1
            if acked == stop_after:
                running.kill()
    return acked


def over_rest(running: Server, mails: Sequence[bytes], stop_after: int) -> int:
    acked = 0
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE_S)
    login = {"Authorization": f"Bearer {running.key}", "Content-Type": "message/rfc822"}
    with suppress(OSError, http.client.HTTPException):
        for raw in mails:
            path = "/v1/inbound?recipient=bo@postroom.localhost"
            connection.request("POST", path, raw, login)
            response = connection.getresponse()
            response.read()
            acked += response.status in (200, 201)
            if acked == stop_after:
                running.kill()
    connection.close()
    return acked


def killed_while_receiving(rounds: int, defect: str = "none", seed: int = 1, **extra: str) -> Tally:
    """Over SMTP; see `_killed`."""
    return _killed("kill -9 while receiving (SMTP)", over_smtp, rounds, defect, seed, **extra)


def killed_while_posting(rounds: int, defect: str = "none", seed: int = 2) -> Tally:
    """Over REST; see `_killed`."""
    return _killed("kill -9 while receiving (REST)", over_rest, rounds, defect, seed)


def _killed(name: str, send: Send, rounds: int, defect: str, seed: int, **extra: str) -> Tally:
    """Kill -9 after a random number of acknowledgements; the sender repeats its last five."""
    tally, chance = Tally(name), random.Random(seed)
    mails = [mail(f"drill {number}").replace(b"\n", b"\r\n") for number in range(rounds * 40)]
    acked = 0
    with server(defect, **extra) as running:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        for _ in range(rounds):
            start = max(0, acked - 5)
            acked = max(acked, start + send(running, mails[start:], chance.randint(1, 30)))
            running.kill()
            running.start()
            tally.tried += 1
        _count(running, tally, acked)
    return tally


def _count(running: Server, tally: Tally, acked: int) -> None:
    stored = Counter(row[0] for row in running.rows("SELECT subject FROM messages"))
    told = running.rows("SELECT message FROM events WHERE type LIKE '%received'")
    tally.acknowledged = acked
    tally.lost = sum(1 for number in range(acked) if not stored[f"drill {number}"])
    tally.doubled = twice(stored) + twice(Counter(row[0] for row in told))
    tally.torn = running.problems()
