"""Mail in over SMTP compared with an import, and the latency of a wait.

    python -m bench.post [MAILS [KILOBYTES]]

Prints one JSON object. Times depend on the machine: compare them as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mailbox
import os
import statistics
import subprocess
import sys
import tempfile
import time
from email.message import EmailMessage
from pathlib import Path

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations.mail.messages import wait_for_message
from postroom.surfaces.smtp.server import listening
from tests.mails import deliver, mail, new_inbox

CONNECTIONS = 8
WAITERS = 200


def outgoing_mail(number: int, kilobytes: int) -> bytes:
    """A mail of about this many kilobytes, different from any other."""
    message = EmailMessage()
    message["From"] = f"Sender {number} <s{number}@example.com>"
    message["To"] = "bo@postroom.localhost"
    message["Subject"] = f"Message number {number}"
    message["Message-ID"] = f"<{number}@bench.example>"
    message["Date"] = "Sun, 01 Mar 2026 09:00:00 +0000"
    message.set_content(f"Line {number} of some text that is not the same.\n" * 20 * kilobytes)
    return message.as_bytes()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def import_rate(folder: Path, mails: list[bytes]) -> float:
    box = mailbox.mbox(folder / "box.mbox")
    for raw in mails:
        box.add(raw)
    box.close()
    env = {**os.environ, "POSTROOM_DATA_DIR": str(folder / "import")}
    words = ["import", str(folder / "box.mbox"), "--inbox", "bo@postroom.localhost", "--create"]
    subprocess.run([sys.executable, "-m", "postroom", "version"], env=env, check=True,
                   capture_output=True)  # fmt: skip
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "postroom", *words], env=env, check=True,
                   capture_output=True)  # fmt: skip
    return len(mails) / (time.perf_counter() - started)


async def smtp_rate(app: App, mails: list[bytes], kilobytes: int) -> tuple[float, list[float]]:
    """The server in this process, the clients in another one."""
    await new_inbox(app.services)
    async with listening(app) as listener:
        assert listener is not None
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.post", "--clients"),
            *(str(listener.port), str(len(mails)), str(kilobytes)), stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    answer = json.loads(out)
    return len(mails) / answer["seconds"], answer["acks"]


async def clients(port: int, count: int, kilobytes: int) -> None:
    mails = [outgoing_mail(number, kilobytes).replace(b"\n", b"\r\n") for number in range(count)]
    left, acks = list(enumerate(mails)), []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        writer.write(b"EHLO bench\r\n")
        while (await reader.readline())[3:4] == b"-":
            pass
        while left:
            _, raw = left.pop()
            for line in (b"MAIL FROM:<a@b.c>", b"RCPT TO:<bo@postroom.localhost>", b"DATA"):
                writer.write(line + b"\r\n")
                await reader.readline()
            started = time.perf_counter()
            writer.write(raw + b".\r\n")
            assert (await reader.readline()).startswith(b"250")
            acks.append(time.perf_counter() - started)
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    print(json.dumps({"seconds": time.perf_counter() - started, "acks": acks}))


async def wait_times(app: App, *, elsewhere: bool) -> list[float]:
    """The time from the commit to the end of each wait."""
    ctx = app.context(OWNER)
    boxes = [await new_inbox(ctx, f"w{elsewhere}{n}".lower()) for n in range(WAITERS)]
    ended: dict[str, float] = {}

    async def wait(inbox_id: str) -> None:
        await call(ctx, wait_for_message, {"inbox_id": inbox_id, "timeout_s": 120})
        ended[inbox_id] = time.time()

    tasks = [asyncio.create_task(wait(box.id)) for box in boxes]
    await asyncio.sleep(3)
    committed: dict[str, float] = {}
    if elsewhere:
        script = [sys.executable, "-m", "bench.post", "--deliver", str(app.settings.data_dir)]
        process = await asyncio.create_subprocess_exec(
            *script, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        out, _ = await process.communicate(json.dumps([b.address for b in boxes]).encode())
        times = json.loads(out)
        committed = {box.id: times[box.address] for box in boxes}
    else:
        for box in boxes:
            await deliver(ctx, box, mail("x"))
            committed[box.id] = time.time()
    await asyncio.gather(*tasks)
    return [max(0.0, ended[i] - committed[i]) * 1000 for i in committed]


async def deliver_all(folder: str) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": folder}).settings
    times = {}
    async with open_app(settings) as app:
        for address in json.load(sys.stdin):
            inbox = (await app.services.store.inboxes_at([address]))[address]
            await deliver(app.services, inbox, mail("x"))
            times[address] = time.time()
    print(json.dumps(times))


async def measure(count: int, kilobytes: int) -> None:
    mails = [outgoing_mail(number, kilobytes) for number in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        imported = import_rate(folder, mails)
        environ = {"POSTROOM_DATA_DIR": str(folder / "smtp"), "POSTROOM_SMTP_LISTEN": "127.0.0.1:0"}
        async with open_app(read_settings(environ).settings) as app:
            rate, acks = await smtp_rate(app, mails, kilobytes)
            here = await wait_times(app, elsewhere=False)
            there = await wait_times(app, elsewhere=True)
    print(
        json.dumps(
            {
                "mails": count,
                "kilobytes": kilobytes,
                "import_per_s": round(imported, 1),
                "smtp_per_s": round(rate, 1),
                "smtp_to_import": round(rate / imported, 2),
                "ack_p50_ms": round(statistics.median(acks) * 1000, 1),
                "ack_p99_ms": round(percentile(acks, 0.99) * 1000, 1),
                "wait_same_process_p50_ms": round(statistics.median(here), 2),
                "wait_same_process_p99_ms": round(percentile(here, 0.99), 2),
                "wait_other_process_p50_ms": round(statistics.median(there), 2),
                "wait_other_process_p99_ms": round(percentile(there, 0.99), 2),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clients"]:
        asyncio.run(clients(*map(int, sys.argv[2:5])))
    elif sys.argv[1:2] == ["--deliver"]:
        asyncio.run(deliver_all(sys.argv[2]))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("mails", type=int, nargs="?", default=2000)
        parser.add_argument("kilobytes", type=int, nargs="?", default=8)
        given = parser.parse_args()
        asyncio.run(measure(given.mails, given.kilobytes))
