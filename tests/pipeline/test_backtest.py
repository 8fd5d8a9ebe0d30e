"""A dry run of rules on old mail covers every mail, however many there are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.model.limits import Limits
from postroom.pipeline.parse_worker import Parser
from postroom.pipeline.transfer.import_export import back_test
from postroom.pipeline.transfer.mail_files import SourceMail, Unreadable, open_source
from postroom.rules.backtest import BackTest
from postroom.rules.parser import parse_rules

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RULES = "name: All\nwhen: [{subject: {contains: number}}]\nthen: [flag]\n"


def small(number: int) -> bytes:
    return f"From: a@example.com\nSubject: number {number}\n\nx\n".encode()


async def tried(mails) -> tuple[BackTest, list[Unreadable]]:
    test, parser = BackTest(parse_rules(RULES, field="rules")), Parser(Limits())
    try:
        return test, await back_test(test, mails, parser, NOW)
    finally:
        await parser.close()


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 202, 203, 399, 400, 401, 402, 603])
async def test_every_mail_of_an_mbox_is_covered(tmp_path, count):
    path = tmp_path / "old.mbox"
    line = b"From x@y Thu Jan  1 00:00:00 2026\n"
    path.write_bytes(b"".join(line + small(n) + b"\n" for n in range(count)))
    source = open_source(path, kind="mbox", mailbox="Inbox", max_bytes=9999, quoting="mboxrd")

    test, refused = await tried(source)

    assert (count, []) == (test.mails, refused)
    assert [f"number {n}" for n in range(count)] == [o.subject for o in test.outcomes]


async def test_an_unreadable_mail_is_reported_at_any_position():
    mails = [
        Unreadable(f"mail {n}", "no") if n in (199, 200, 201) else SourceMail(f"mail {n}", small(n))
        for n in range(405)
    ]

    test, refused = await tried(mails)

    assert (402, ["mail 199", "mail 200", "mail 201"]) == (test.mails, [r.place for r in refused])
