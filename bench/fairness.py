"""Whether one key that asks without end makes the others wait: `python -m bench.fairness`.

Some keys ask now and then, first alone and then beside one that asks as fast as it is answered,
over many connections. Prints the times of the others, and what the greedy one got.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle

from bench.clients import Clients, Took
from bench.load import fill, serving
from tests.faults.drilled import Server

OTHERS, GREEDY = 10, 50
"""How many others there are, and over how many connections the greedy one asks."""
WARM_S = 5.0
"""How long the greedy one asks before it counts: its burst is used up by then."""
MOST = 1.2


def asking(server: Server, names: int) -> Iterator[bytes]:
    """Requests of some keys in turn: the newest mail of an inbox."""
    inbox = server.ask("GET", "/v1/inboxes")["results"][0]["id"]  # type: ignore[index]
    keys = [_key(server, f"client {n}") for n in range(names)]
    path = f"/v1/messages?inbox_id={inbox}&limit=20"
    return cycle([_request(key, path) for key in keys])


def _key(server: Server, name: str) -> str:
    return str(server.ask("POST", "/v1/keys", {"name": name, "scopes": ["read"]})["key"])


def _request(key: str, path: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}", "", "")
    return "\r\n".join(lines).encode()


async def others(server: Server, per_s: float, seconds: float) -> Took:
    """How long those wait who ask now and then."""
    requests = asking(server, OTHERS)
    clients = Clients(server.port, OTHERS, lambda: next(requests))
    await clients.open()
    took = await clients.open_loop(per_s, seconds)
    clients.close()
    return took


async def greedy(port: int, request: bytes, seconds: float) -> None:
    """Ask as fast as there are answers; print how many there were."""
    clients = Clients(port, GREEDY, lambda: request)
    took = Took()
    try:
        async with asyncio.timeout(seconds):
            while True:
                some = await clients.closed_loop(GREEDY, GREEDY * 20)
                took.answers += some.answers
    except TimeoutError:
        clients.close()
    print(json.dumps({str(status): n for (status, _), n in took.answers.items()}))


async def measured(server: Server, per_s: float, seconds: float) -> float:
    """By how much the p99 of the others grows."""
    await others(server, per_s, WARM_S)
    alone = await others(server, per_s, seconds)
    tell("alone", alone)
    request = next(asking(server, 1)).decode()
    words = [sys.executable, "-m", "bench.fairness", "--greedy", str(server.port), request]
    process = await asyncio.create_subprocess_exec(
        *words, "--seconds", str(seconds + WARM_S), stdout=subprocess.PIPE
    )
    await asyncio.sleep(WARM_S)
    beside = await others(server, per_s, seconds - 1)
    tell("beside it", beside)
    said, _ = await process.communicate()
    print(f"the greedy key: {said.decode().strip()} in {seconds + WARM_S:.0f} s")
    return beside.ms(0.99) / alone.ms(0.99)


def tell(name: str, took: Took) -> None:
    times = " / ".join(f"{took.ms(share):.1f}" for share in (0.5, 0.99, 1.0))
    bad = took.answers.total() - took.good
    print(f"{name:10} {took.good} good, {bad} not; p50 / p99 / max {times} ms")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.fairness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each phase")
    parser.add_argument("--per-second", type=float, default=50, help="requests of the others")
    parser.add_argument("--limit", type=int, default=500, help="requests a second of one key")
    parser.add_argument("--greedy", nargs=2, metavar=("PORT", "REQUEST"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.greedy:
        port, request = options.greedy
        asyncio.run(greedy(int(port), request.encode(), options.seconds))
        return 0
    limits = {"PER_SECOND": options.limit, "BURST": options.limit * 4}
    extra = {f"POSTROOM_LIMIT_REQUESTS_{name}": str(limit) for name, limit in limits.items()}
    with serving("sqlite", 1, **extra) as server:
        server.ask("POST", "/v1/inboxes", {"username": "bo"})
        asyncio.run(fill(server, 150))
        grown = asyncio.run(measured(server, options.per_second, options.seconds))
    print(f"p99 of the others: {grown:.2f} times (bar {MOST})")
    return 0 if grown <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
