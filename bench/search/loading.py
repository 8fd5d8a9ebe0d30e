"""Loads the corpus into a store."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.search.corpus import INBOXES, Corpus, Mail
from postroom.blocking import in_thread
from postroom.mail.text.fold import fold
from postroom.model.inbox import Inbox
from postroom.model.mail.message import AddressLine
from postroom.model.mail.storage import FIELD_BORDER, NewAttachment, NewMessage
from postroom.store.audited_store import AuditHmac
from postroom.store.search.index import compact
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import Store
from postroom.store.transaction import Engine, Transaction

BATCH = 250
BIG_INBOX = "inb_0"
FLAGS = (("seen",), ("seen",), ("seen", "answered"), ("seen", "flagged"), ())
"""The flags of one message after the other: one in five is unread."""


@dataclass
class Loaded:
    """A store with the corpus, and the cost of loading it."""

    engine: Engine
    store: Store
    messages: int
    added: int = 0
    adding_s: float = 0.0
    merging_s: float = 0.0
    settling_s: float = 0.0


def searchable(mail: Mail) -> str:
    fields = (mail.subject, mail.text, mail.from_address, mail.from_name, *mail.filenames)
    return FIELD_BORDER.join(fold(field) for field in fields)


def new_message(mail: Mail) -> NewMessage:
    """A message as the parser returns it."""
    moment = datetime.fromtimestamp(mail.date, UTC)
    files = tuple(
        NewAttachment(
            f"att_{mail.number}_{at}", name, "application/pdf", 1, False, f"f{mail.number}"
        )
        for at, name in enumerate(mail.filenames)
    )
    return NewMessage(
        id=f"msg_{mail.number}",
        inbox_id=f"inb_{mail.inbox}",
        direction="inbound",
        subject=mail.subject,
        addresses=(
            AddressLine("from", mail.from_name, mail.from_address),
            AddressLine("to", "", mail.to_address),
        ),
        date=moment,
        received_at=datetime.now(UTC),
        internet_message_id=f"{mail.number}@corpus.example",
        in_reply_to=None,
        references=(f"thread-{mail.inbox}-{mail.thread}@corpus.example",),
        base_subject=fold(mail.subject),
        text=mail.text,
        new_text=None,
        snippet=mail.text[:120],
        searchable=searchable(mail),
        size_bytes=len(mail.text),
        raw=f"r{mail.number}",
        fingerprint=b"",
        parser_version=1,
        attachments=files,
        flags=FLAGS[mail.number % len(FLAGS)],
    )


def _open(folder: Path) -> SqliteEngine:
    folder.mkdir(parents=True, exist_ok=True)
    return SqliteEngine.open(folder / "postroom.db")


async def load(folder: Path, messages: int) -> Loaded:
    """Open the store in a folder and fill it up to *count* messages."""
    return await fill(await in_thread(_open, folder), messages)


async def fill(engine: Engine, messages: int) -> Loaded:
    """Fill a store up to *count* messages."""
    loaded = Loaded(engine, Store(engine, AuditHmac(b"key")), messages)
    present = (await engine.read(lambda tx: tx.one("SELECT count(*) FROM messages")))[0]
    if present > messages:
        sys.exit(f"there are {present} messages, not {messages}: take another folder or database")
    if not present:
        await _add_inboxes(loaded.store)
    corpus = Corpus()
    while present < messages:
        stop = min(present + BATCH, messages)
        new = [new_message(mail) for mail in corpus.mails(present, stop)]
        started = time.process_time()
        await loaded.store.add_messages(new)
        loaded.adding_s += time.process_time() - started
        loaded.added += len(new)
        present = stop
        await _merge(loaded)
        if present % 10_000 == 0:
            rate = loaded.added / (loaded.adding_s + loaded.merging_s)
            print(f"  {present} messages, {rate:.0f}/s of CPU", file=sys.stderr, flush=True)
    started = time.process_time()
    await _merge(loaded, quiet_s=3_600)
    loaded.settling_s = time.process_time() - started
    return loaded


async def _merge(loaded: Loaded, quiet_s: int = 0) -> None:
    """Compact until there is nothing to do, as if idle."""
    started = time.process_time()
    while await compact(loaded.engine, now=lambda: time.time() + quiet_s):
        pass
    loaded.merging_s += time.process_time() - started


async def _add_inboxes(store: Store) -> None:
    now = datetime.fromtimestamp(0, UTC)
    for number in range(INBOXES):
        address = f"agent{number}@postroom.localhost"
        inbox = Inbox(f"inb_{number}", address, "", None, now)
        await store.add_inbox(inbox, client_id=None, payload=b"")


def write_something(tx: Transaction) -> None:
    """A write that ends all read caches."""
    tx.run("DELETE FROM metadata WHERE name = 'bench'")
    tx.run("INSERT INTO metadata (name, value) VALUES ('bench', :value)", value=b"x")
