"""A thousand clients on one installation: at half of its capacity, at three times, and after.

    python -m bench.load [--database sqlite|postgres] [--processes N] [--seconds S] [--requests N]

Of a thousand requests, 700 read over REST, 200 call MCP tools, 100 deliver mail; 1,000 connections
are open, and requests are sent at random times, whether or not the server keeps up. The clients run
on the same machine. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from bench.clients import Clients, LoadResult
from tests.faults.server_under_test import ServerUnderTest
from tests.mails import mail
from tests.servers import postgres

CONNECTIONS, KEYS = 1_000, 40
AT_ONCE = 32
OVER = 3.0
MAX_SPREAD, BACK_WITHIN_S, MAX_CPU = 20.0, 5.0, 1.15
_WORDS = ("invoice", "lunch", "report", "nvoic", "morning", "contract")


@contextmanager
def serving(database: str, processes: int, **extra: str) -> Iterator[ServerUnderTest]:
    """An installation with some mail in it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if database == "postgres":
            running = stack.enter_context(postgres.running(is_durable=True))
            extra["POSTROOM_DATABASE_URL"] = running.new_database()
        server = ServerUnderTest(folder / "data", "none", processes, **extra)
        server.start()
        stack.callback(server.kill)
        yield server


def requests(server: ServerUnderTest) -> Callable[[], bytes]:
    """Generates requests, each of a client with its own key."""
    inbox = server.ask("POST", "/v1/inboxes", {"username": "bo"})["id"]
    keys = [str(server.ask("POST", "/v1/keys", _key(n))["key"]) for n in range(KEYS)]
    chance, numbers = random.Random(1), count()

    def make() -> bytes:
        kind, key = chance.random(), chance.choice(keys)
        word = chance.choice(_WORDS)
        if kind < 0.35:
            return _request(key, "GET", f"/v1/messages?inbox_id={inbox}&limit=20")
        if kind < 0.70:
            return _request(key, "GET", f"/v1/search/messages?q={word}&limit=20")
        if kind < 0.90:
            asked = {"name": "search_messages", "arguments": {"q": word, "limit": 20}}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
            return _request(key, "POST", "/mcp", json.dumps(call).encode())
        outgoing_mail = _mail(next(numbers), word)
        return _request(key, "POST", "/v1/inbound?recipient=bo@postroom.localhost", outgoing_mail)

    return make


def _key(number: int) -> dict[str, object]:
    return {"name": f"client {number}", "scopes": ["read", "write"]}


def _mail(number: int, word: str) -> bytes:
    text = f"Good morning. This is about the {word} of last month. " * 20
    return mail(f"{word} {number}", text, message_id=f"<{number}@load.example>")


def _request(key: str, method: str, path: str, body: bytes = b"") -> bytes:
    kind = "message/rfc822" if path.startswith("/v1/inbound") else "application/json"
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {key}",
        "Accept: application/json, text/event-stream",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def cpu_s(pid: int) -> float:
    """The CPU time of a process and its children."""
    ticks = sum(int(word) for one in _family(pid) for word in _stat(one)[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def memory_mb(pid: int) -> float:
    pages = sum(int(_stat(one)[21]) for one in _family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def fill(server: ServerUnderTest, mails: int) -> None:
    """Deliver the mail that exists before the measurement."""
    mails_to_deliver = (_mail(-n, _WORDS[n % len(_WORDS)]) for n in range(1, mails + 1))
    path = "/v1/inbound?recipient=bo@postroom.localhost"
    clients = Clients(
        server.port, 8, lambda: _request(server.key, "POST", path, next(mails_to_deliver))
    )
    filled = await clients.closed_loop(8, mails)
    clients.close()
    assert filled.good == mails, filled.answers


async def measured(server: ServerUnderTest, seconds: float, count: int) -> list[str]:
    """Print the measurements, and return those that missed their bar."""
    make = requests(server)
    await fill(server, count)
    clients = Clients(server.port, CONNECTIONS, make)
    await clients.open()
    await clients.closed_loop(AT_ONCE, count)
    before = cpu_s(server.pid)
    busy = await clients.closed_loop(AT_ONCE, count * 2)
    capacity = busy.good / busy.lasted_s
    each = (cpu_s(server.pid) - before) / busy.good
    print(f"capacity {capacity:.0f} requests/s, {each * 1e3:.2f} ms of CPU each")
    half = await clients.open_loop(capacity / 2, seconds)
    tell("at half of it", half)
    over = await clients.open_loop(capacity * OVER, seconds)
    tell("at 3 times", over)
    after = await clients.open_loop(capacity / 2, max(15.0, seconds / 2))
    tell("after that", after)
    back = recovered(after)
    print(f"recovered after {back:.1f} s; {memory_mb(server.pid):.0f} MB in all processes")
    clients.close()
    bars = {
        "no 5xx at half capacity": half.answers.total() == half.good,
        "p99 within 20 times p50": half.ms(0.99) <= MAX_SPREAD * half.ms(0.5),
        "only 429 and 503 with Retry-After above capacity": not over.failed,
        "something is still answered above capacity": over.good / over.lasted_s > capacity / 4,
        "recovery within 5 s": back <= BACK_WITHIN_S and not after.failed,
    }
    return [bar for bar, is_kept in bars.items() if not is_kept]


def recovered(after: LoadResult) -> float:
    """The time after the overload until no request was refused."""
    return max(after.bad_at, default=after.began_at) - after.began_at


def tell(name: str, took: LoadResult) -> None:
    times = " / ".join(f"{took.ms(share):.0f}" for share in (0.5, 0.99, 1.0))
    print(
        f"{name:14} {took.answers.total() / took.lasted_s:6.0f}/s asked, {took.good} good, "
        f"{took.refused} told to come back, {took.failed} failed; p50 / p99 / max {times} ms"
    )


async def cpu_each(server: ServerUnderTest, count: int) -> float:
    """The CPU time of one request in milliseconds."""
    make = requests(server)
    await fill(server, count)
    clients = Clients(server.port, AT_ONCE, make)
    await clients.closed_loop(AT_ONCE, count)
    before = cpu_s(server.pid)
    busy = await clients.closed_loop(AT_ONCE, count * 2)
    clients.close()
    return (cpu_s(server.pid) - before) / busy.good * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.load", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30, help="of each phase")
    parser.add_argument("--requests", type=int, default=1_500, help="to fill, warm up and time")
    options = parser.parse_args()
    print(f"{options.processes} process(es) on {options.database}, {CONNECTIONS} connections")
    with serving(options.database, options.processes) as server:
        missed = asyncio.run(measured(server, options.seconds, options.requests))
    costs = []
    for processes in (1, 2, 1, 2):
        with serving(options.database, processes) as server:
            costs.append(asyncio.run(cpu_each(server, options.requests)))
    one, two = min(costs[::2]), min(costs[1::2])
    print(f"CPU of a request: {one:.2f} ms with one process, {two:.2f} with two ({two / one:.2f})")
    missed += ["CPU with two processes"] if two > MAX_CPU * one else []
    print("every bar is kept" if not missed else f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
