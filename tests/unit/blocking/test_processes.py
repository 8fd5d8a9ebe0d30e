"""Work on untrusted data in a process that can be killed and has few rights."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.blocking import Bounds, WorkFailed, in_process
from tests.servers import misbehaving_work as work

MB = 1024 * 1024
LONG = Bounds(wall_s=120, cpu_s=120)
"""A generous limit for work that ends by itself."""


async def test_what_the_work_returns_comes_back():
    assert "ÄHMÄHM" == await in_process(work.uppercase, "ähm".encode(), 2, LONG)


async def test_large_data_gets_through():
    assert 5 * MB == len(await in_process(work.uppercase, b"x" * (5 * MB), 1, _answers(6 * MB)))


def _answers(size: int) -> Bounds:
    return Bounds(wall_s=120, cpu_s=120, output_bytes=size)


@pytest.mark.parametrize(
    ("bad", "argument", "bounds", "said"),
    [
        (work.raise_error, 0, LONG, "I would rather not"),
        (work.loop_forever, 0, Bounds(wall_s=0.5), r"not finished within 0\.5 seconds"),
        (work.loop_forever, 0, Bounds(wall_s=120, cpu_s=1), "crashed"),
        (work.allocate, 10 * MB, LONG, "MemoryError"),
        (work.print_garbage, 2 * MB, LONG, "more than 1048576 bytes"),
        (work.crash, 0, LONG, "crashed"),
    ],
)
async def test_failed_work_is_reported_and_leaves_nothing_behind(bad, argument, bounds, said):
    with pytest.raises(WorkFailed, match=said):
        await in_process(bad, b"data", argument, bounds)

    assert [] == children()


async def test_cancelled_work_is_killed():
    waiting = asyncio.ensure_future(in_process(work.loop_forever, b"", 0, LONG))
    async with asyncio.timeout(60):
        while not children():
            await asyncio.wait([waiting], timeout=0.01)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert [] == children()


def children() -> list[int]:
    """The running workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if (
                int(parent) == os.getpid()
                and b"blocking import child_main" in (folder / "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
    return found


async def test_the_work_can_write_no_file(tmp_path: Path):
    target = tmp_path / "file"

    with pytest.raises(WorkFailed):
        await in_process(work.write_file, str(target).encode(), 0, LONG)

    assert not target.exists()


async def test_the_work_sees_none_of_our_secrets(monkeypatch):
    monkeypatch.setenv("MAIL_IMAP_DEFAULT_PASS", "secret")

    names = (await in_process(work.environment, b"", 0, LONG)).split()

    assert not [name for name in names if "MAIL" in name]


async def test_the_work_can_read_no_file():
    with pytest.raises(WorkFailed, match="Too many open files"):
        await in_process(work.read_file, __file__.encode(), 0, LONG)


async def test_the_work_has_no_network():
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(WorkFailed):
        await in_process(work.connect, b"", listening.getsockname()[1], LONG)


async def test_imports_are_loaded_before_rights_are_dropped():
    assert "found" == await in_process(work.find_module, b"tabnanny", 0, LONG, imports=["tabnanny"])
