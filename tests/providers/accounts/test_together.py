"""One search over every kind of account and a local inbox: one order, one exact total."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations.accounts import get_capabilities, remove_account
from postroom.operations.messages import search_messages
from postroom.operations.operation import call
from tests.mails import deliver, mail, new_inbox
from tests.providers.accounts.conftest import needs_root, open_desk
from tests.providers.accounts.worlds import open_world

KINDS = ("imap", "fastmail", "gmail", "outlook")


@pytest.mark.may_skip("Cyrus starts only as root")
async def test_one_search_finds_all_mail_in_one_order_with_one_total(tmp_path: Path) -> None:
    needs_root()
    async with AsyncExitStack() as stack:
        worlds = [await stack.enter_async_context(open_world(kind)) for kind in KINDS]
        values = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_SECRETS": "file"}
        for world in worlds:
            values |= world.settings
        app = await stack.enter_async_context(open_app(read_settings(values).settings))
        begin = datetime.now(UTC) - timedelta(days=1)
        for number, (kind, world) in enumerate(zip(KINDS, worlds, strict=True)):
            world.arguments["address"] = f"{kind}@example.com"
            for turn in range(3):
                date = begin + timedelta(minutes=turn * 10 + number)
                world.deliver(mail(f"Report {turn} {kind}", to=f"{kind}@example.com", date=date))
            desk = await open_desk(app, world, kind)
            await desk.sync()
        local = await new_inbox(app.house)
        for turn in range(3):
            date = begin + timedelta(minutes=turn * 10 + 5)
            await deliver(app.house, local, mail(f"Report {turn} local", date=date))
        ctx = app.context(OWNER)

        first = await call(ctx, search_messages, {"q": "report", "limit": 8})
        rest = await call(ctx, search_messages, {"q": "report", "limit": 8, "offset": 8})
        told = await call(ctx, get_capabilities, {})

        subjects = [row.subject for row in (*first.results, *rest.results)]
        kinds = ("local", *reversed(KINDS))
        assert [f"Report {turn} {kind}" for turn in (2, 1, 0) for kind in kinds] == subjects
        assert (15, 15) == (first.total, rest.total)
        assert ("local", set(KINDS)) == (told.provider, {one.provider for one in told.accounts})
        await call(ctx, remove_account, {"account_id": "outlook"})
        assert 12 == (await call(ctx, search_messages, {"q": "report"})).total
