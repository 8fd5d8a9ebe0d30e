"""A mail is acknowledged after its bytes, their folder and the database are on disk."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from tests.faults.drilled import Server, send_all, server, until_traced
from tests.mails import mail

CALL = re.compile(r"(\d+) +(?:(fsync|fdatasync)\(\d+<([^>]*)>|<\.\.\. (?:fsync|fdatasync) resumed)")
RAW = mail("In order", attachments=[("a.pdf", "application/pdf", b"x" * 9_000)])


def finished_syncs(lines: list[str]) -> list[tuple[int, str]]:
    """The line at which each sync ended, and what was synced."""
    begun: dict[str, str] = {}
    ended = []
    for number, line in enumerate(lines):
        if match := CALL.match(line):
            thread, kind, path = match.groups()
            begun[thread] = path if kind else begun[thread]
            if "<unfinished" not in line:
                ended.append((number, begun[thread]))
    return ended


def over_smtp(running: Server) -> bool:
    [reply] = asyncio.run(send_all(running.smtp, [RAW.replace(b"\n", b"\r\n")]))
    return reply.startswith(b"250 2.0.0 stored")


def over_rest(running: Server) -> bool:
    return 201 == running.status("POST", "/v1/inbound?recipient=bo@postroom.localhost", RAW)


DOORS = {"250 2.0.0 stored": over_smtp, "HTTP/1.1 201": over_rest}
"""What each door says once a mail is kept, and how one is brought to it."""


def traced(running: Server, trace: Path, answer: str) -> list[str]:
    """What a server does on the way from a mail to its acknowledgement."""
    calls = "trace=fsync,fdatasync,sendto,write,writev"
    words = ["strace", "-f", "-y", "-s", "64", "-o", str(trace), "-p", str(running.pid), "-e"]
    strace = subprocess.Popen([*words, calls], stderr=subprocess.DEVNULL)
    try:
        until_traced(running.pid)
        assert DOORS[answer](running)
    finally:
        strace.terminate()
        strace.wait()
    return trace.read_text().splitlines()


def out_of_order(lines: list[str], answer: str) -> list[str]:
    """What was not on disk yet when the mail was acknowledged."""
    answered = next(n for n, line in enumerate(lines) if answer in line)
    synced = [path for number, path in finished_syncs(lines) if number < answered]
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
def test_an_acknowledgement_comes_after_the_disk_has_it(
    tmp_path: Path, answer: str, defect: str, missing: list[str]
) -> None:
    with server(defect) as running:
        running.ask("POST", "/v1/inboxes", {"username": "bo"})
        lines = traced(running, tmp_path / "trace", answer)

    assert missing == out_of_order(lines, answer)
