"""Acknowledged mail is on disk: the order of the system calls of one delivery."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom.store.open import load_key

RECEIVE_ONE = """
import asyncio, os, sys
from pathlib import Path
from postroom.blobs.files import FileBlobs
from postroom.pipeline.services import Services
from postroom.store.sqlite import open_store
from tests.bare_services import NO_PROVIDERS
from tests.mails import deliver, mail, new_inbox

async def main():
    folder = Path(sys.argv[1])
    store = await open_store(folder / "one.db")
    services = Services(**NO_PROVIDERS, store=store, blobs=FileBlobs(folder / "blobs"))
    inbox = await new_inbox(services)
    os.write(2, b"START\\n")
    await deliver(services, inbox, mail("Durable"))
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


def test_a_key_that_could_not_be_written_is_created_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash at the first start once left an empty file, and the installation could
    not be opened.
    """
    path = tmp_path / "audit.key"
    with monkeypatch.context() as dying:
        dying.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            load_key(path)

    assert not path.exists()
    assert load_key(path) == load_key(path)


def test_concurrent_starts_share_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(load_key, [tmp_path / "audit.key"] * 16))

    assert 1 == len(set(keys))
