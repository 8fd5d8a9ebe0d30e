"""Whatever several processes do to one installation, it answers as a plain model does.

`WALK_STEPS=5000 WALK_SEEDS=20` is the full run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.config import read_settings
from postroom.store.sql.messages import message_insert
from tests.stores.walk import Walk

STEPS = int(os.environ.get("WALK_STEPS", "150"))
SEEDS = int(os.environ.get("WALK_SEEDS", "1"))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_several_processes_answer_as_their_model(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, seed: int
) -> None:
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    if database == "postgres":
        given["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    async with Walk(read_settings(given).settings, seed) as walk:
        await walk.go(STEPS)

    assert [] == walk.different


async def test_an_installation_that_keeps_every_repeat_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        message_insert, "_duplicate", lambda tx, message, inbox: (None, message.defects)
    )
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    async with Walk(read_settings(given).settings, 1) as walk:
        await walk.go(STEPS)

    assert [] != walk.different
