"""Defects that are planted in a server under test: each drill must detect its defect.

    python -m tests.faults.defects NAME COMMAND…

starts `postroom COMMAND…` with the defect. `none` is no defect.
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
    """Replace existing attributes; fails if one does not exist."""
    for name, value in replacements.items():
        getattr(owner, name)
        setattr(owner, name, value)


def ack_before_commit() -> None:
    """Reply 250 before the mail is stored."""
    from postroom.surfaces.smtp.connection import Delivery

    stored = Delivery._stored

    async def defective(self: Delivery, mail: Any, content: Any) -> list[str]:
        async def later() -> None:
            await asyncio.sleep(0.2)
            await stored(self, mail, content)

        _tasks.append(asyncio.create_task(later()))
        return ["250 2.0.0 stored, honestly"]

    plant(Delivery, _stored=defective)


def skip_attempt_record() -> None:
    """Do not record the attempt before a mail is transmitted."""
    from postroom.store.store import Store

    async def defective(self: Store, job: Any, accepted: Any) -> bool:
        return True

    plant(Store, begin_transmission=defective)


def send_held_mail() -> None:
    """Send mail that waits for approval like any other."""
    from postroom.store.sql.outbox import sends

    plant(sends, pass_gate=lambda *args: None)


def skip_deduplication() -> None:
    """Store a mail again when it is delivered again."""
    from postroom.store.sql.messages import message_insert

    plant(message_insert, _duplicate=lambda tx, message, inbox: (None, message.defects))


def retry_unknown_outcomes() -> None:
    """Treat a lost reply as a temporary failure."""
    from postroom.providers.smtp_relay import SmtpRelay

    transmit = SmtpRelay.transmit

    async def defective(self: SmtpRelay, *args: Any) -> Any:
        outcomes = await transmit(self, *args)
        return {
            address: replace(outcome, result="deferred") if outcome.result == "unknown" else outcome
            for address, outcome in outcomes.items()
        }

    plant(SmtpRelay, transmit=defective)


def ignore_idempotency_keys() -> None:
    """Ignore idempotency keys."""
    from postroom.store.sql.outbox import sends

    statement = sends.INSERT_SEND.replace(":key", "NULL")
    assert statement != sends.INSERT_SEND
    plant(sends, earlier_send=lambda *args, **kwargs: None, INSERT_SEND=statement)


def reply_to_machines() -> None:
    """Reply automatically to machines too."""
    from postroom.operations.outgoing import sending
    from postroom.store.sql.outbox import sends

    async def never(*_: Any) -> None:
        """Every mail may be answered automatically."""

    plant(sending, refuse_loop=never)
    plant(sends, refuse_second_answer=lambda *args: None)


def accept_when_full() -> None:
    """Acknowledge mail that could not be stored because the disk is full."""
    from postroom.surfaces.smtp.connection import Delivery

    deliver = Delivery.deliver

    async def defective(self: Delivery, mail: Any, spool: Any) -> list[str]:
        said = await deliver(self, mail, spool)
        return ["250 2.0.0 as you like" if words.startswith("452") else words for words in said]

    plant(Delivery, deliver=defective)


def never_sync() -> None:
    """Never sync files to disk."""
    import os

    from postroom.blobs import files
    from postroom.store.sqlite import engine

    connect = engine.connect

    def defective(*args: Any, **kwargs: Any) -> Any:
        connection = connect(*args, **kwargs)
        connection.pragma("synchronous", 0)
        return connection

    plant(engine, connect=defective)
    plant(os, fsync=lambda fd: None)
    plant(files, _syncfs=lambda: lambda descriptor: None)


def continue_after_failed_sync() -> None:
    """After a failed sync, accept the next mail as if nothing had happened."""
    from postroom.blobs.files import FileBlobs

    FileBlobs._is_broken = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]


def commit_before_bytes() -> None:
    """Commit a message before its bytes are written."""
    from postroom.blobs.files import FileBlobs
    from postroom.store.store import Store

    put, add = FileBlobs.put, Store.add_messages
    waiting: list[tuple[FileBlobs, list[bytes]]] = []

    async def later(self: FileBlobs, contents: Any) -> Any:
        import hashlib

        kept = list(contents)
        waiting.append((self, kept))
        return [hashlib.sha256(content).hexdigest() for content in kept]

    async def defective(self: Store, messages: Any) -> Any:
        added = await add(self, messages)
        while waiting:
            blobs, contents = waiting.pop()
            await put(blobs, contents)
        return added

    plant(FileBlobs, put=later)
    plant(Store, add_messages=defective)


def mark_delivered_first() -> None:
    """Mark a webhook delivery as done before it is made."""
    from postroom.model.event import WebhookResponse
    from postroom.pipeline.webhooks import Webhooks

    deliver = Webhooks._deliver

    async def defective(self: Webhooks, job: Any) -> None:
        now, told = self.services.clock(), WebhookResponse(200, "told, honestly")
        await self.services.store.settle_webhook(job, told, now=now, next_at=None)
        await asyncio.sleep(0.1)
        await deliver(self, job)

    plant(Webhooks, _deliver=defective)


def ignore_send_at() -> None:
    """Send scheduled mail immediately."""
    from postroom.store.sql.outbox import claims

    due = claims.DUE.replace("o.next_at <= :now OR", "1 = 1 OR")
    assert due != claims.DUE
    plant(claims, DUE=due)


def store_checkpoint_first() -> None:
    """Store the checkpoint of an account before the mail that it covers."""
    from postroom.pipeline.pull import Pull

    fetch = Pull._fetch

    async def defective(self: Pull, *given: Any) -> Any:
        for part in reversed([part async for part in fetch(self, *given)]):
            yield part
            await asyncio.sleep(0.1)

    plant(Pull, _fetch=defective)


def copy_database_without_wal() -> None:
    """Back up the database file without its write-ahead log."""
    import shutil

    from postroom.store.maintenance import database_files

    plant(database_files, copy_database=shutil.copyfile)


def commit_asynchronously() -> None:
    """Let PostgreSQL confirm a commit before it is on disk."""
    from postroom.store.postgres import liveness

    connect = liveness.connect

    def defective(url: str) -> Any:
        connection = connect(url)
        connection.execute("SET synchronous_commit = off")
        return connection

    plant(liveness, connect=defective)


LEASE_S = 4

_tasks: list[asyncio.Task[None]] = []
DEFECTS = {
    "none": lambda: None,
    **{
        defect.__name__: defect
        for defect in (
            ack_before_commit, skip_attempt_record, skip_deduplication, send_held_mail,
            retry_unknown_outcomes, ignore_idempotency_keys, reply_to_machines,
            accept_when_full, never_sync, commit_before_bytes, mark_delivered_first,
            ignore_send_at, continue_after_failed_sync, copy_database_without_wal,
            commit_asynchronously, store_checkpoint_first,
        )
    },
}  # fmt: skip


def shorten_leases() -> None:
    """Shorten leases and batches, so that a drill covers more cases in less time."""
    from postroom.app import App
    from postroom.pipeline import outbox as pipeline
    from postroom.pipeline import pull, routing, sync, webhooks

    outbox = App.outbox

    def shortened(self: App) -> Any:
        return replace(outbox(self), lease=timedelta(seconds=LEASE_S))

    short, longer = timedelta(seconds=1), timedelta(seconds=2)
    plant(App, outbox=shortened)
    plant(pipeline, RENEW_S=1.0, CELL_FIRST_WAIT=short, CELL_LONGEST_WAIT=longer)
    plant(routing, PAUSE_S=0.5)
    plant(webhooks, LEASE=timedelta(seconds=LEASE_S), MAX_WAIT_S=1.0)
    plant(sync, LEASE=short, RENEW_S=0.3)
    plant(pull, BATCH_MAILS=3)


def run(defect: str, *words: str) -> None:
    """Run `postroom WORD…` with a defect."""
    from postroom.__main__ import main

    faulthandler.register(signal.SIGUSR1)
    shorten_leases()
    DEFECTS[defect]()
    sys.argv = ["postroom", *words]
    sys.exit(main())


if __name__ == "__main__":
    run(*sys.argv[1:])
