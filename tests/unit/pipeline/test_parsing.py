"""Large mail is parsed in a worker process that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from postroom.mail.parse import parse_message
from postroom.model.limits import Limits
from postroom.pipeline.parse_worker import Parser
from tests.mails import mail

BIG = mail("Big", attachments=[("a.bin", "application/x-bin", b"x" * 300_000)])


async def test_small_and_large_mails_are_read_alike_and_in_order() -> None:
    parser = Parser(Limits())
    raws = [mail("One"), BIG, mail("Two")]

    parsed = await parser.parse(raws)
    again = await parser.parse([BIG])
    await parser.close()

    assert [parse_message(raw) for raw in raws] == parsed
    assert [parsed[1]] == again


async def test_a_mail_that_takes_too_long_keeps_its_headers_and_the_next_is_read() -> None:
    parser = Parser(Limits(), timeout_s=0.001)

    (late,) = await parser.parse([BIG])
    parser.timeout_s = 30
    (read,) = await parser.parse([BIG])
    await parser.close()

    assert ("Big", len(BIG)) == (late.subject, late.size_bytes)
    assert any(defect.startswith("parse_failed") for defect in late.defects)
    assert ["a.bin"] == [attachment.filename for attachment in read.attachments]


async def test_a_worker_that_died_is_replaced() -> None:
    parser = Parser(Limits())
    await parser.parse([BIG])
    worker = parser._worker
    assert worker is not None
    worker.kill()
    await worker.wait()

    (read,) = await parser.parse([BIG])
    await parser.close()

    assert ("Big", ()) == (read.subject, read.defects)


class KillsOnUnpickle(bytes):
    """Bytes that kill the process that unpickles them."""

    def __reduce__(self):
        return os._exit, (1,)


async def test_a_mail_that_kills_the_worker_is_kept_and_the_others_are_read() -> None:
    parser = Parser(Limits())

    dead, read = await parser.parse([KillsOnUnpickle(BIG), BIG])
    await parser.close()

    assert ("Big", len(BIG), ()) == (dead.subject, dead.size_bytes, dead.attachments)
    assert any(defect.startswith("parse_failed") for defect in dead.defects)
    assert ("Big", ()) == (read.subject, read.defects)


@pytest.mark.one_python
@pytest.mark.parametrize(
    ("work", "end"), [("while True: pass", -signal.SIGXCPU), ("bytearray(600 * 2**20)", 1)]
)
def test_a_worker_has_resource_limits(work: str, end: int) -> None:
    code = f"from postroom.pipeline.parse_worker import set_limits\nset_limits(cpu_s=1)\n{work}"

    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, timeout=300)

    assert end == done.returncode
    assert (b"MemoryError" in done.stderr) == (end == 1)


@pytest.mark.one_python
async def test_the_largest_mail_is_read_within_the_bounds() -> None:
    """Of memory and processor time; how long that takes depends on the machine."""
    parser, limits = Parser(Limits(), timeout_s=600), Limits()
    most = (limits.message_bytes - 20_000) // 4 * 3 * 76 // 78
    raw = mail(attachments=[("a.bin", "application/x-bin", os.urandom(1024) * (most // 1024))])

    (parsed,) = await parser.parse([raw])
    await parser.close()

    assert (35 * 2**20 < len(raw) <= limits.message_bytes, ()) == (True, parsed.defects)


async def test_a_cancelled_parse_leaves_no_answer_for_the_next() -> None:
    parser = Parser(Limits())
    other = mail("Other", attachments=[("b.bin", "application/x-bin", b"y" * 300_000)])

    task = asyncio.create_task(parser.parse([BIG]))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (read,) = await parser.parse([other])
    await parser.close()

    assert "Other" == read.subject
