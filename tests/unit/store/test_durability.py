"""What is acknowledged is on disk: the order of the system calls of one delivery."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RECEIVE_ONE = """
import asyncio, os, sys
from pathlib import Path
from postroom.blobs.files import FileBlobs
from postroom.pipeline.house import House
from postroom.store.sqlite import open_store
from tests.mails import deliver, mail, new_inbox

async def main():
    folder = Path(sys.argv[1])
    store = await open_store(folder / "one.db")
    house = House(store=store, blobs=FileBlobs(folder / "blobs"))
    inbox = await new_inbox(house)
    os.write(2, b"START\\n")
    await deliver(house, inbox, mail("Durable"))
    os.write(2, b"ACKNOWLEDGED\\n")
    os._exit(0)

asyncio.run(main())
"""


def test_a_mail_is_synced_to_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,rename,write,pwrite64"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c"]
    subprocess.run([*command, RECEIVE_ONE, str(tmp_path)], check=True, capture_output=True)

    lines = trace.read_text(errors="replace").splitlines()
    start = next(n for n, line in enumerate(lines) if '"START' in line)
    end = next(n for n, line in enumerate(lines) if '"ACKNOWLEDGED' in line)
    steps = [name for line in lines[start:end] if (name := step_of(line))]

    order = [
        "sync of the blob",
        "rename",
        "sync of the folder",
        "write to the WAL",
        "sync of the WAL",
    ]
    assert order == [name for name in dict.fromkeys(steps) if name in order]


def step_of(line: str) -> str | None:
    patterns = {
        "sync of the blob": r"fsync\(\d+<.*/blobs/../\.new-",
        "rename": r"rename\(.*\.new-",
        "sync of the folder": r"fsync\(\d+<[^>]*/blobs/..>",
        "write to the WAL": r"pwrite64\(\d+<.*-wal>",
        "sync of the WAL": r"f(data)?sync\(\d+<.*-wal>",
    }
    return next((name for name, pattern in patterns.items() if re.search(pattern, line)), None)
