"""Defects to plant in a server under test: a fault suite that stays green with one is worthless.

    python -m tests.faults.defects NAME COMMAND…

starts `postroom COMMAND…` with the defect in it. `none` plants nothing.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any


def ack_before_commit() -> None:
    """250 is said before the mail is stored."""
    from postroom.surfaces.smtp.session import Session

    stored = Session._stored

    async def hasty(self: Session, mail: Any, content: Any) -> str:
        async def later() -> None:
            await asyncio.sleep(0.2)
            await stored(self, mail, content)

        _tasks.append(asyncio.create_task(later()))
        return "250 2.0.0 stored, honestly"

    Session._stored = hasty  # type: ignore[method-assign]


def forget_the_handing_over() -> None:
    """Nothing is written down before the mail itself goes out."""
    from postroom.store.store import SqlStore

    async def forgetful(self: SqlStore, job: Any, accepted: Any) -> bool:
        return True

    SqlStore.begin_handing_over = forgetful  # type: ignore[method-assign]


def keep_every_repeat() -> None:
    """A mail that comes again is stored again."""
    from postroom.store.sql import adding

    adding._known = lambda tx, message, inbox: (None, message.defects)  # type: ignore[assignment]


LEASE_S = 4

_tasks: list[asyncio.Task[None]] = []
DEFECTS = {
    "none": lambda: None,
    "ack_before_commit": ack_before_commit,
    "forget_the_handing_over": forget_the_handing_over,
    "keep_every_repeat": keep_every_repeat,
}


def leave_quickly() -> None:
    """Let claims of the dead end soon, so that a drill need not wait for them."""
    from postroom.app import App
    from postroom.pipeline import outbox as pipeline

    outbox = App.outbox

    def impatient(self: App) -> Any:
        return replace(outbox(self), lease=timedelta(seconds=LEASE_S))

    App.outbox = impatient  # type: ignore[method-assign]
    pipeline.RENEW_S = 1.0


if __name__ == "__main__":
    from postroom.__main__ import main

    leave_quickly()
    DEFECTS[sys.argv[1]]()
    sys.argv = ["postroom", *sys.argv[2:]]
    sys.exit(main())
