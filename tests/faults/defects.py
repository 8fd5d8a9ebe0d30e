"""Defects to plant in a server under test: a fault suite that stays green with one is worthless.

    python -m tests.faults.defects NAME COMMAND…

starts `postroom COMMAND…` with the defect in it. `none` plants nothing.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any


def plant(owner: Any, **replacements: Any) -> None:
    """Replace what exists: a defect that misses its place would plant nothing."""
    for name, value in replacements.items():
        getattr(owner, name)
        setattr(owner, name, value)


def ack_before_commit() -> None:
    """250 is said before the mail is stored."""
    from postroom.surfaces.smtp.connection import Delivery

    stored = Delivery._stored

    async def hasty(self: Delivery, mail: Any, content: Any) -> list[str]:
        async def later() -> None:
            await asyncio.sleep(0.2)
            await stored(self, mail, content)

        _tasks.append(asyncio.create_task(later()))
        return ["250 2.0.0 stored, honestly"]

    plant(Delivery, _stored=hasty)


def forget_the_handing_over() -> None:
    """Nothing is written down before the mail itself goes out."""
    from postroom.store.store import Store

    async def forgetful(self: Store, job: Any, accepted: Any) -> bool:
        return True

    plant(Store, begin_transmission=forgetful)


def send_what_is_held() -> None:
    """A mail that waits for approval is sent like any other."""
    from postroom.store.sql.outbox import sends

    plant(sends, pass_gate=lambda *args: None)


def keep_every_repeat() -> None:
    """A mail that comes again is stored again."""
    from postroom.store.sql.messages import message_insert

    plant(message_insert, _duplicate=lambda tx, message, inbox: (None, message.defects))


def send_what_is_unknown_again() -> None:
    """A lost answer is taken for a refusal that is not for ever."""
    from postroom.providers.smtp_relay import SmtpRelay

    transmit = SmtpRelay.transmit

    async def guessing(self: SmtpRelay, *args: Any) -> Any:
        outcomes = await transmit(self, *args)
        return {
            address: replace(outcome, result="deferred") if outcome.result == "unknown" else outcome
            for address, outcome in outcomes.items()
        }

    plant(SmtpRelay, transmit=guessing)


def forget_keys() -> None:
    """No send is known from before."""
    from postroom.store.sql.outbox import sends

    statement = sends.INSERT_SEND.replace(":key", "NULL")
    assert statement != sends.INSERT_SEND
    plant(sends, earlier_send=lambda *args, **kwargs: None, INSERT_SEND=statement)


def answer_anyone() -> None:
    """An automatic answer goes to machines too."""
    from postroom.operations.outgoing import sending
    from postroom.store.sql.outbox import sends

    async def never(*_: Any) -> None:
        """Everybody may be answered."""

    plant(sending, refuse_loop=never)
    plant(sends, refuse_second_answer=lambda *args: None)


def accept_when_full() -> None:
    """What could not be stored for want of room is acknowledged."""
    from postroom.surfaces.smtp.connection import Delivery

    deliver = Delivery.deliver

    async def polite(self: Delivery, mail: Any, spool: Any) -> list[str]:
        said = await deliver(self, mail, spool)
        return ["250 2.0.0 as you like" if words.startswith("452") else words for words in said]

    plant(Delivery, deliver=polite)


def never_sync() -> None:
    """Nothing is ever forced to the disk."""
    import os

    from postroom.blobs import files
    from postroom.store.sqlite import engine

    connect = engine.connect

    def careless(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        connection.pragma("synchronous", 0)
        return connection

    plant(engine, connect=careless)
    plant(os, fsync=lambda fd: None)
    plant(files, _syncfs=lambda: lambda descriptor: None)


def forget_a_failed_sync() -> None:
    """After a sync has failed, the next mail is tried as if nothing had been."""
    from postroom.blobs.files import FileBlobs

    FileBlobs._is_broken = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]


def store_bytes_last() -> None:
    """A message is committed before its bytes are written."""
    from postroom.blobs.files import FileBlobs
    from postroom.store.store import Store

    put, add = FileBlobs.put, Store.add_messages
    waiting: list[tuple[FileBlobs, list[bytes]]] = []

    async def later(self: FileBlobs, contents: Any) -> Any:
        import hashlib

        kept = list(contents)
        waiting.append((self, kept))
        return [hashlib.sha256(content).hexdigest() for content in kept]

    async def hasty(self: Store, messages: Any) -> Any:
        added = await add(self, messages)
        while waiting:
            blobs, contents = waiting.pop()
            await put(blobs, contents)
        return added

    plant(FileBlobs, put=later)
    plant(Store, add_messages=hasty)


def tell_afterwards() -> None:
    """A webhook is told once it is written down that it was."""
    from postroom.model.event import WebhookResponse
    from postroom.pipeline.webhooks import Webhooks

    deliver = Webhooks._deliver

    async def hasty(self: Webhooks, job: Any) -> None:
        now, told = self.services.clock(), WebhookResponse(200, "told, honestly")
        await self.services.store.settle_webhook(job, told, now=now, next_at=None)
        await asyncio.sleep(0.1)
        await deliver(self, job)

    plant(Webhooks, _deliver=hasty)


def never_wait() -> None:
    """Mail goes out whatever its time."""
    from postroom.store.sql.outbox import claims

    due = claims.DUE.replace("o.next_at <= :now OR", "1 = 1 OR")
    assert due != claims.DUE
    plant(claims, DUE=due)


def remember_the_place_first() -> None:
    """How far an account was read is written down before its mail is."""
    from postroom.pipeline.pull import Pull

    fetch = Pull._fetch

    async def hasty(self: Pull, *given: Any) -> Any:
        for part in reversed([part async for part in fetch(self, *given)]):
            yield part
            await asyncio.sleep(0.1)

    plant(Pull, _fetch=hasty)


def copy_the_file() -> None:
    """A backup takes the file of the database and not what is beside it."""
    import shutil

    from postroom.store.maintenance import database_files

    plant(database_files, copy_database=shutil.copyfile)


def confirm_early() -> None:
    """PostgreSQL confirms a commit before it is on disk."""
    from postroom.store.postgres import liveness

    connect = liveness.connect

    def careless(url: str) -> Any:
        connection = connect(url)
        connection.execute("SET synchronous_commit = off")
        return connection

    plant(liveness, connect=careless)


LEASE_S = 4

_tasks: list[asyncio.Task[None]] = []
DEFECTS = {
    "none": lambda: None,
    **{
        defect.__name__: defect
        for defect in (
            ack_before_commit, forget_the_handing_over, keep_every_repeat, send_what_is_held,
            send_what_is_unknown_again, forget_keys, answer_anyone, accept_when_full, never_sync,
            store_bytes_last, tell_afterwards, never_wait, forget_a_failed_sync, copy_the_file,
            confirm_early, remember_the_place_first,
        )
    },
}  # fmt: skip


def leave_quickly() -> None:
    """Let claims of the dead end soon, and lots be small: a drill meets more in less time."""
    from postroom.app import App
    from postroom.pipeline import outbox as pipeline
    from postroom.pipeline import pull, routing, sync, webhooks

    outbox = App.outbox

    def impatient(self: App) -> Any:
        return replace(outbox(self), lease=timedelta(seconds=LEASE_S))

    short, longer = timedelta(seconds=1), timedelta(seconds=2)
    plant(App, outbox=impatient)
    plant(pipeline, RENEW_S=1.0, CELL_FIRST_WAIT=short, CELL_LONGEST_WAIT=longer)
    plant(routing, PAUSE_S=0.5)
    plant(webhooks, LEASE=timedelta(seconds=LEASE_S), MAX_WAIT_S=1.0)
    plant(sync, LEASE=short, RENEW_S=0.3)
    plant(pull, BATCH_MAILS=3)


def run(defect: str, *words: str) -> None:
    """Be `postroom WORD…` with a defect in it."""
    from postroom.__main__ import main

    faulthandler.register(signal.SIGUSR1)
    leave_quickly()
    DEFECTS[defect]()
    sys.argv = ["postroom", *words]
    sys.exit(main())


if __name__ == "__main__":
    run(*sys.argv[1:])
