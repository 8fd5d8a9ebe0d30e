"""The bell between processes on one SQLite file."""

from __future__ import annotations

import os
from pathlib import Path

from postroom.store.sqlite.bell import PipeBell


async def test_the_pipe_of_a_process_that_is_gone_is_removed(tmp_path: Path) -> None:
    bell = PipeBell(tmp_path / "bells")
    bell.rung("events")
    abandoned = tmp_path / "bells" / "1-gone"
    os.mkfifo(abandoned)

    bell.ring({"events"})

    assert not abandoned.exists()
    assert 1 == len(list(abandoned.parent.iterdir()))
    bell.close()
