"""Parsing apart: large mail is read in a worker that can be killed."""

from __future__ import annotations

import asyncio

from postroom.mail.parse import parse_message
from postroom.model.limits import Limits
from postroom.pipeline.parsing import Parser
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
    parser = Parser(Limits(), patience_s=0.001)

    (late,) = await parser.parse([BIG])
    parser.patience_s = 30
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
