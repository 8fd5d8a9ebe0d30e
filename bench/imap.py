"""The time of a page of live IMAP with network latency, compared with a client without a pool.

    .venv/bin/python -m bench.imap

A Dovecot behind a proxy that adds 50 ms to every round trip. Alternately: a warm `search` of a page
of 50, and the same page with a simple client, which connects each time and fetches one by one. The
promise is at most 1/5 of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import imaplib
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations.imap.search import search_live_messages
from tests.mails import mail
from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.imaplib_client import imaplib_mailbox
from tests.servers.proxy import Proxy, proxied

ROUND_TRIP_S = 0.05
PAGE = 50
MOST = 1 / 5


def one_by_one(port: int, certificate: Path, mailbox: str) -> int:
    """A page read by a simple client."""
    context = ssl.create_default_context(cafile=str(certificate))
    with imaplib.IMAP4_SSL("127.0.0.1", port, ssl_context=context) as client:
        client.login("alice", PASSWORD)
        client.select(f'"{mailbox}"', readonly=True)
        uids = client.uid("SEARCH", "ALL")[1][0].split()[-PAGE:]
        items = "(FLAGS INTERNALDATE BODY.PEEK[HEADER.FIELDS (DATE FROM SUBJECT)])"
        return sum(client.uid("FETCH", uid.decode(), items)[0] == "OK" for uid in reversed(uids))


async def warm_page(app: App, mailbox: str) -> int:
    """A page read by Postroom."""
    arguments = {"mailbox": mailbox, "limit": PAGE}
    return (await call(app.context(OWNER), search_live_messages, arguments)).returned


@asynccontextmanager
async def services(folder: str, server: Dovecot, proxy: Proxy) -> AsyncIterator[App]:
    """A Postroom whose account is behind the proxy."""
    account = {"HOST": "127.0.0.1", "PORT": proxy.port, "USER": "alice", "PASS": PASSWORD}
    values = {**account, "CA_FILE": server.certificate}
    variables = {f"MAIL_IMAP_DEFAULT_{name}": str(value) for name, value in values.items()}
    async with open_app(read_settings({"POSTROOM_DATA_DIR": folder, **variables}).settings) as app:
        yield app


async def seconds(work: Callable[[], Awaitable[int]]) -> float:
    """How long one page took."""
    started = time.perf_counter()
    rows = await work()
    if rows != PAGE:
        raise SystemExit(f"{rows} rows instead of {PAGE}")
    return time.perf_counter() - started


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with (
        Dovecot() as server,
        imaplib_mailbox(server, "alice") as box,
        tempfile.TemporaryDirectory() as data,
    ):
        for number in range(PAGE):
            box.append(mail(f"Mail {number}"))
        async with (
            proxied(server.imaps, round_trip_s=ROUND_TRIP_S) as proxy,
            services(data, server, proxy) as app,
        ):
            await warm_page(app, box.name)  # the first one connects
            plain = (one_by_one, proxy.port, server.certificate, box.name)
            pairs = [
                (
                    await seconds(lambda: warm_page(app, box.name)),
                    await seconds(lambda: asyncio.to_thread(*plain)),
                )
                for _ in range(rounds)
            ]
    report(median(ours for ours, _ in pairs), median(theirs for _, theirs in pairs))


def report(ours: float, theirs: float) -> None:
    verdict = "ok" if ours / theirs <= MOST else "too much"
    print(
        f"a page of {PAGE} with {ROUND_TRIP_S * 1000:g} ms of latency: warm {ours * 1000:.0f} ms, "
        f"anew and one by one {theirs * 1000:.0f} ms, "
        f"ratio {ours / theirs:.3f} (at most {MOST:g}: {verdict})"
    )


if __name__ == "__main__":
    asyncio.run(main())
