"""Kill a server while it receives."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.faults.drilled import PATIENCE_S, Tally, connect, server, twice
from tests.mails import mail


async def _send_until_dead(
    port: int, mails: list[bytes], stop_after: int, kill: Callable[[], None]
) -> int:
    """How many of the mails were acknowledged before the server died."""
    acked = 0
    with suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await connect(port)
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
                kill()
    return acked


def killed_while_receiving(rounds: int, defect: str = "none", seed: int = 1, **extra: str) -> Tally:
    """Kill -9 after a random number of acknowledgements; the sender repeats its last five."""
    tally, chance = Tally("kill -9 while receiving (SMTP)"), random.Random(seed)
    mails = [mail(f"drill {number}").replace(b"\n", b"\r\n") for number in range(rounds * 40)]
    acked = 0
    with server(defect, **extra) as running:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        for _ in range(rounds):
            stop_after = chance.randint(1, 30)
            start = max(0, acked - 5)
            count = asyncio.run(
                _send_until_dead(running.smtp, mails[start:], stop_after, running.kill)
            )
            acked = max(acked, start + count)
            running.kill()
            running.start()
            tally.tried += 1
        stored = Counter(row[0] for row in running.rows("SELECT subject FROM messages"))
        events = Counter(
            row[0] for row in running.rows("SELECT message FROM events WHERE type LIKE '%received'")
        )
        tally.acknowledged = acked
        tally.lost = sum(1 for number in range(acked) if not stored[f"drill {number}"])
        tally.doubled = twice(stored) + twice(events)
        tally.torn = running.problems()
    return tally
