"""How much one key without pauses delays the requests of others: `python -m bench.fairness`.

Some keys send requests now and then, first alone and then beside one that sends as fast as it gets
responses, over many connections. Prints the times of the others, and the rate of the greedy one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from statistics import median

from bench.clients import Clients, LoadResult
from bench.load import fill, serving
from tests.faults.server_under_test import ServerUnderTest

OTHERS, GREEDY = 10, 50
"""The number of other keys, and of connections of the greedy one."""
WARM_S = 4.0
"""The warm-up of the greedy key, after which its burst is used up."""
MOST = 1.2


def asking(server: ServerUnderTest, names: int) -> Iterator[bytes]:
    """Requests of several keys in turn: the newest mail of an inbox."""
    inbox = server.ask("GET", "/v1/inboxes")["results"][0]["id"]  # type: ignore[index]
    keys = [_key(server, f"client {n}") for n in range(names)]
    path = f"/v1/messages?inbox_id={inbox}&limit=20"
    return cycle([_request(key, path) for key in keys])


def _key(server: ServerUnderTest, name: str) -> str:
    return str(server.ask("POST", "/v1/keys", {"name": name, "scopes": ["read"]})["key"])


def _request(key: str, path: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}", "", "")
    return "\r\n".join(lines).encode()


async def others(server: ServerUnderTest, per_s: float, seconds: float) -> LoadResult:
    """The response times of keys with few requests."""
    requests = asking(server, OTHERS)
    clients = Clients(server.port, OTHERS, lambda: next(requests))
    await clients.open()
    took = await clients.open_loop(per_s, seconds)
    clients.close()
    return took


async def greedy(port: int, request: bytes, seconds: float) -> None:
    """Send requests as fast as they are answered; prints their number."""
    clients = Clients(port, GREEDY, lambda: request)
    took = LoadResult()
    try:
        async with asyncio.timeout(seconds):
            while True:
                some = await clients.closed_loop(GREEDY, GREEDY * 20)
                took.answers += some.answers
    except TimeoutError:
        clients.close()
    print(json.dumps({str(status): n for (status, _), n in took.answers.items()}))


async def measured(server: ServerUnderTest, per_s: float, seconds: float, rounds: int) -> float:
    """The ratio of the p99 of the others with and without the greedy key: the median of several
    rounds.
    """
    await others(server, per_s, WARM_S)
    request = next(asking(server, 1)).decode()
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(await others(server, per_s, seconds))
        async with asking_without_end(server, request, seconds + WARM_S):
            await asyncio.sleep(WARM_S)
            beside.append(await others(server, per_s, seconds - 1))
    tell("alone", alone)
    tell("beside it", beside)
    return middle(beside, 0.99) / middle(alone, 0.99)


@asynccontextmanager
async def asking_without_end(
    server: ServerUnderTest, request: str, seconds: float
) -> AsyncIterator[None]:
    """A greedy key, in a separate process."""
    words = [sys.executable, "-m", "bench.fairness", "--greedy", str(server.port), request]
    process = await asyncio.create_subprocess_exec(
        *words, "--seconds", str(seconds), stdout=subprocess.PIPE
    )
    yield
    said, _ = await process.communicate()
    print(f"the greedy key: {said.decode().strip()} in {seconds:.0f} s")


def middle(rounds: Sequence[LoadResult], share: float) -> float:
    return median(took.ms(share) for took in rounds)


def tell(name: str, rounds: Sequence[LoadResult]) -> None:
    times = " / ".join(f"{middle(rounds, share):.1f}" for share in (0.5, 0.99, 1.0))
    good = sum(took.good for took in rounds)
    bad = sum(took.answers.total() for took in rounds) - good
    print(f"{name:10} {good} good, {bad} not; p50 / p99 / max {times} ms")
    print("           p99 of each round:", *(f"{took.ms(0.99):.1f}" for took in rounds))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.fairness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="of each phase")
    parser.add_argument("--rounds", type=int, default=5, help="of alone and beside it")
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
        grown = asyncio.run(measured(server, options.per_second, options.seconds, options.rounds))
    print(f"p99 of the others: {grown:.2f} times (bar {MOST})")
    return 0 if grown <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
