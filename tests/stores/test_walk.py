"""Several processes on one installation behave like a simple model.

`WALK_STEPS=5000 WALK_SEEDS=20` is a full run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.config import read_settings
from postroom.store.sql.messages import message_insert
from tests.stores.walk import RandomWalk

STEPS = int(os.environ.get("WALK_STEPS", "150"))
SEEDS = int(os.environ.get("WALK_SEEDS", "1"))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_several_processes_behave_like_the_model(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, seed: int
) -> None:
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    if database == "postgres":
        given["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    async with RandomWalk(read_settings(given).settings, seed) as walk:
        await walk.run(STEPS)

    assert [] == walk.different


async def test_a_missing_deduplication_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        message_insert, "_duplicate", lambda tx, message, inbox: (None, message.defects)
    )
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data")}
    async with RandomWalk(read_settings(given).settings, 1) as walk:
        await walk.run(STEPS)

    assert [] != walk.different
