"""The first sync of an IMAP account compared with the import of the same mail from an mbox.

The bar: at least half the rate of the import; after three kills nothing is lost or duplicated. Both
run in this process, one after the other; Dovecot runs beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import imaplib
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.model.mail.message import MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.operations.accounts import add_account
from postroom.operations.inboxes import create_inbox
from postroom.operations.mail.messages import search_messages
from postroom.pipeline.maintenance import compact_all
from postroom.pipeline.sync import SyncScheduler, sync_once
from postroom.pipeline.transfer.import_export import import_mail
from postroom.pipeline.transfer.mail_files import open_source
from tests.servers.dovecot import PASSWORD, Dovecot, _roles

KILLS = 3
NEWS = 20
REST_S = 1.0
"""The pause between two changes: a mail that arrives during a sync needs no notification."""

LOOK_S = 0.02


def mails(count: int) -> Iterator[bytes]:
    """Ordinary mail, each different, from a fixed seed."""
    chance = random.Random(7)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ade", "ilo", "ume", "ora", "enti")]
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for number in range(count):
        message = EmailMessage()
        message["From"] = f"Person {number % 97} <p{number % 97}@example.com>"
        message["To"] = "alice@example.com"
        message["Subject"] = " ".join(chance.choices(words, k=5))
        message["Date"] = format_datetime(start + timedelta(minutes=number))
        message["Message-ID"] = f"<bench-{number}@example.com>"
        lines = (" ".join(chance.choices(words, k=12)) for _ in range(chance.randrange(10, 60)))
        message.set_content("\n".join(lines))
        if number % 10 == 0:
            content = chance.randbytes(chance.randrange(1_000, 20_000))
            message.add_attachment(
                content, maintype="application", subtype="pdf", filename=f"file-{number}.pdf"
            )
        yield message.as_bytes()


def file_name(number: int) -> str:
    """A file name as Dovecot generates it: names that are more similar make it slow."""
    micros, process = number * 7919 % 1_000_000, 1_000 + number % 3_000
    return f"{1_700_000_000 + number}.M{micros}P{process}.mail.example.com:2,"


def lay_out(dovecot: Dovecot, mbox: Path, count: int) -> None:
    """The same mail as an mbox and as Dovecot's Inbox."""
    inbox = dovecot.home / "home" / "alice" / "mail"
    for name in ("cur", "new", "tmp"):
        (inbox / name).mkdir(parents=True, exist_ok=True)
    with mbox.open("wb") as file:
        for number, raw in enumerate(mails(count)):
            file.write(b"From bench Mon Jan  1 00:00:00 2024\n" + raw + b"\n")
            (inbox / "cur" / file_name(number)).write_bytes(raw)
    if os.getuid() == 0:
        roles = _roles()
        for path in (inbox.parent, inbox, *inbox.rglob("*")):
            shutil.chown(path, roles["owner"], roles["group"])


def cpu_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def settings(folder: Path) -> dict[str, str]:
    return {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}


async def import_rate(mbox: Path, folder: Path, count: int) -> tuple[float, float]:
    async with open_app(read_settings(settings(folder)).settings) as app:
        inbox = await call(app.context(OWNER), create_inbox, {})
        began, used = time.monotonic(), cpu_s()
        source = open_source(mbox, kind=None, mailbox="Inbox", max_bytes=36 * 2**20)
        outcome = await import_mail(app.services, iter(source), inbox.id)
        rates = count / (time.monotonic() - began), count / (cpu_s() - used)
        assert outcome.stored == count, outcome
        return rates


async def add(app: App, dovecot: Dovecot) -> str:
    account = await call(
        app.context(OWNER),
        add_account,
        {
            "account_id": "bench",
            "provider": "imap",
            "address": "alice@example.com",
            "user": "alice",
            "password": PASSWORD,
            "host": "127.0.0.1",
            "port": dovecot.imaps,
            "ca_file": str(dovecot.certificate),
        },
    )
    return str(account.id)


async def sync_rate(dovecot: Dovecot, folder: Path, count: int) -> tuple[float, float]:
    async with open_app(read_settings(settings(folder)).settings) as app:
        account = await app.services.store.account(await add(app, dovecot), EVERYTHING)
        assert account is not None
        began, used = time.monotonic(), cpu_s()
        await sync_once(app.services, account)
        rates = count / (time.monotonic() - began), count / (cpu_s() - used)
        await check(app, count)
        return rates


async def check(app: App, count: int) -> None:
    """Nothing is lost, and nothing is duplicated."""
    found = await app.services.store.messages(
        MessageQuery(visible=EVERYTHING, mailbox="*", page=Slice(limit=1))
    )
    assert found.total == count, f"{found.total} messages instead of {count}"


async def news(dovecot: Dovecot, folder: Path) -> tuple[list[float], list[float]]:
    """The time until a mail and a flag of another client are synced."""
    async with open_app(read_settings(settings(folder)).settings) as app:
        await compact_all(app.services)  # which a server does in the background
        await asyncio.sleep(1)  # `synced_at`, for which `in_step` waits, counts whole seconds
        work = asyncio.create_task(SyncScheduler(app.services).run())
        client = imaplib.IMAP4("127.0.0.1", dovecot.imap)
        client.login("alice", PASSWORD)
        client.select("INBOX")
        try:
            await in_step(app)
            mails_s = [await one_mail(app, client, number) for number in range(NEWS)]
            flags_s = [await one_flag(app, client, number) for number in range(NEWS)]
        finally:
            client.logout()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        return mails_s, flags_s


async def one_mail(app: App, client: imaplib.IMAP4, number: int) -> float:
    message = EmailMessage()
    message["From"], message["To"] = "news@example.com", "alice@example.com"
    message["Subject"] = f"Newsflash {number}."
    message["Message-ID"] = f"<news-{number}@example.com>"
    message.set_content("Read all about it.")
    await asyncio.sleep(REST_S)
    now = imaplib.Time2Internaldate(time.time())
    await asyncio.to_thread(client.append, "INBOX", "", now, message.as_bytes())
    began = time.monotonic()
    while not await searched(app, number):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began


async def one_flag(app: App, client: imaplib.IMAP4, number: int) -> float:
    _, found = await asyncio.to_thread(client.search, None, "SUBJECT", f'"Newsflash {number}."')
    await asyncio.sleep(REST_S)
    await asyncio.to_thread(client.store, found[0].decode(), "+FLAGS", r"(\Flagged)")
    began = time.monotonic()
    while "flagged" not in (await searched(app, number))[0].flags:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - began


async def searched(app: App, number: int) -> Sequence[MessageRow]:
    page = await call(app.context(OWNER), search_messages, {"q": f"newsflash {number}."})
    return tuple(page.results)


async def in_step(app: App) -> None:
    """Wait until the account is being listened to."""
    account = await app.services.store.account("bench", EVERYTHING)
    before = account.synced_at if account else None
    while account is None or account.synced_at == before:
        await asyncio.sleep(0.05)
        account = await app.services.store.account("bench", EVERYTHING)
    await asyncio.sleep(1)


def drill(dovecot: Dovecot, folder: Path, count: int) -> None:
    """Kill the first sync three times, then let it complete."""
    asyncio.run(added(dovecot, folder))
    line = [sys.executable, "-m", "postroom", "account", "sync", "bench"]
    environment = {**os.environ, **settings(folder)}
    for number in range(KILLS):
        process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
        wanted = count * (number + 1) // (KILLS + 1)
        while process.poll() is None and asyncio.run(held(folder)) < wanted:
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        print(f"killed with {asyncio.run(held(folder))} of {count} messages")
        time.sleep(21)  # the lease of the killed process expires after 20 s
    subprocess.run(line, env=environment, check=True, stdout=subprocess.DEVNULL)
    asyncio.run(checked(folder, count))


async def added(dovecot: Dovecot, folder: Path) -> None:
    async with open_app(read_settings(settings(folder)).settings) as app:
        await add(app, dovecot)


async def checked(folder: Path, count: int) -> None:
    async with open_app(read_settings(settings(folder)).settings) as app:
        await check(app, count)
        assert not await app.services.store.problems()


async def held(folder: Path) -> int:
    async with open_app(read_settings(settings(folder)).settings) as app:
        found = await app.services.store.messages(
            MessageQuery(visible=EVERYTHING, mailbox="*", page=Slice(limit=1))
        )
        return found.total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--no-kills", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Dovecot() as dovecot:
        folder = Path(name)
        lay_out(dovecot, folder / "all.mbox", given.count)
        wall, cpu = asyncio.run(import_rate(folder / "all.mbox", folder / "a", given.count))
        print(f"import: {wall:,.0f}/s, {cpu:,.0f} for each second of CPU")
        wall_sync, cpu_sync = asyncio.run(sync_rate(dovecot, folder / "b", given.count))
        print(f"sync:   {wall_sync:,.0f}/s, {cpu_sync:,.0f} for each second of CPU")
        print(f"        {wall_sync / wall:.2f} of the import by the clock (promised: 0.50)")
        for what, times in zip(
            ("mail", "flag"), asyncio.run(news(dovecot, folder / "b")), strict=True
        ):
            print(
                f"a new {what}: {statistics.median(times):.2f} s until it is found, "
                f"{max(times):.2f} s at most of {NEWS} (promised: 2)"
            )
        if not given.no_kills:
            drill(dovecot, folder / "c", given.count + NEWS)
            print(f"killed {KILLS} times: nothing lost, nothing doubled")
    return 0 if wall_sync >= wall / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
