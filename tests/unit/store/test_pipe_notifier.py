"""The notifier between processes on one SQLite file."""

from __future__ import annotations

import os
from pathlib import Path

from postroom.store.sqlite.connection import PipeNotifier


async def test_the_pipe_of_a_process_that_is_gone_is_removed(tmp_path: Path) -> None:
    notifier = PipeNotifier(tmp_path / "notifier")
    notifier.position("events")
    abandoned = tmp_path / "notifier" / "1-gone"
    os.mkfifo(abandoned)

    notifier.publish({"events"})

    assert not abandoned.exists()
    assert 1 == len(list(abandoned.parent.iterdir()))
    notifier.close()
