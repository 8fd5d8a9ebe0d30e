"""A mail is acknowledged after its bytes, their folder and the database are synced to disk.

`ORDER_RUNS=100` checks 100 mails instead of one.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.faults.server_under_test import ServerUnderTest, send_all, server, until_traced
from tests.mails import mail

CALL = re.compile(r"(\d+) +(?:(fsync|fdatasync)\(\d+<([^>]*)>|<\.\.\. (?:fsync|fdatasync) resumed)")
RUNS = int(os.environ.get("ORDER_RUNS", "1"))


def finished_syncs(lines: list[str]) -> list[tuple[int, str]]:
    """The line at which each sync ended, and the file that was synced."""
    begun: dict[str, str] = {}
    ended = []
    for number, line in enumerate(lines):
        if match := CALL.match(line):
            thread, kind, path = match.groups()
            begun[thread] = path if kind else begun[thread]
            if "<unfinished" not in line:
                ended.append((number, begun[thread]))
    return ended


def new_mail(number: int) -> bytes:
    content = b"%d" % number * 9_000
    return mail(f"In order {number}", attachments=[("a.pdf", "application/pdf", content)])


def over_smtp(running: ServerUnderTest, raw: bytes) -> bool:
    [reply] = asyncio.run(send_all(running.smtp, [raw.replace(b"\n", b"\r\n")]))
    return reply.startswith(b"250 2.0.0 stored")


def over_rest(running: ServerUnderTest, raw: bytes) -> bool:
    return 201 == running.status("POST", "/v1/inbound?recipient=bo@postroom.localhost", raw)


DOORS = {"250 2.0.0 stored": over_smtp, "HTTP/1.1 201": over_rest}
"""The acknowledgement of each surface, and the function that delivers to it."""


def traced(running: ServerUnderTest, trace: Path, answer: str) -> list[str]:
    """The system calls of a server between the arrival and the acknowledgement of each mail."""
    calls = "trace=fsync,fdatasync,sendto,write,writev"
    words = ["strace", "-f", "-y", "-s", "64", "-o", str(trace), "-p", str(running.pid), "-e"]
    strace = subprocess.Popen([*words, calls], stderr=subprocess.DEVNULL)
    try:
        until_traced(running.pid)
        assert all(DOORS[answer](running, new_mail(number)) for number in range(RUNS))
    finally:
        strace.terminate()
        strace.wait()
    return trace.read_text().splitlines()


def out_of_order(lines: list[str], answer: str) -> list[str]:
    """What was not yet on disk when each mail was acknowledged."""
    answered = [n for n, line in enumerate(lines) if answer in line]
    assert len(answered) == RUNS
    syncs, begun, missing = finished_syncs(lines), 0, []
    for end in answered:
        missing += unsynced([path for number, path in syncs if begun <= number < end])
        begun = end
    return missing


def unsynced(synced: list[str]) -> list[str]:
    """The files of a mail that were not synced."""
    wanted = {
        "the bytes": r"/blobs/.*/[^/]{20,}",
        "their folder": r"/blobs/[0-9a-f]{2}$",
        "the database": r"postroom\.db-wal$",
    }
    return [
        name
        for name, pattern in wanted.items()
        if not any(re.search(pattern, path) for path in synced)
    ]


@pytest.mark.parametrize("answer", DOORS)
@pytest.mark.parametrize(
    ("defect", "missing"),
    [
        ("none", []),
        ("never_sync", ["the bytes", "their folder", "the database"]),
    ],
)
def test_a_mail_is_acknowledged_after_its_files_are_synced(
    tmp_path: Path, answer: str, defect: str, missing: list[str]
) -> None:
    with server(defect) as running:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        lines = traced(running, tmp_path / "trace", answer)

    assert missing * RUNS == out_of_order(lines, answer)
