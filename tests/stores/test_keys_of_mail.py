"""What a mail says of itself may have any length: it is stored, found and threaded all the same."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import apsw
import psycopg
import pytest

from postroom.mail.keying import MOST_KEY_BYTES, as_key
from postroom.model.inbox import Inbox
from postroom.pipeline.house import House
from postroom.store import sqlite
from postroom.store.postgres.schema import translate
from postroom.store.sqlite import engine
from postroom.store.sqlite.migrations import STEPS, migrate
from tests.mails import deliver

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
BEFORE = next(n for n, step in enumerate(STEPS) if any("as_key(" in said for said in step))
WIDE = "".join(map(chr, range(0x4E00, 0x9000)))


def noise(size: int, characters: str = CHARACTERS) -> str:
    """What no database can compress."""
    return "".join(random.Random(size).choices(characters, k=size))


def raw(**headers: str) -> bytes:
    given = {"From": "x@y.example", "Message-ID": "<a@b>", "Subject": "s"} | headers
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items()]
    return "".join([*lines, "\r\nhi\r\n"]).encode()


@pytest.mark.parametrize(
    "headers",
    [
        {"Message-ID": f"<{noise(1_500, WIDE)}@b>"},
        {"Message-ID": f"<{noise(2_800)}@b>"},
        {"Message-ID": noise(9_000, WIDE)},
        {"References": f"<{noise(4_000)}@b> <{noise(3_000)}@b>"},
        {"In-Reply-To": f"<{noise(4_000)}@b>"},
        {"From": f"{noise(3_000)}@y.example"},
        {"From": f"x@{noise(3_000)}.example"},
        {"From": f"x@y.{noise(3_000)}"},
        {"Subject": f"Re: {noise(4_000, WIDE)}"},
    ],
    ids=lambda headers: "-".join(f"{k}{len(v)}" for k, v in headers.items()),
)
async def test_a_long_one_is_stored_and_recognised(
    house: House, inbox: Inbox, headers: dict[str, str]
) -> None:
    first = await deliver(house, inbox, raw(**headers))
    again = await deliver(house, inbox, b"Received: by another route\r\n" + raw(**headers))
    others = [
        await deliver(house, inbox, raw(**{"Message-ID": f"<{n}@b>", **headers}, X_Number=f"{n}"))
        for n in range(3)
    ]

    assert first.message_id == again.message_id
    assert 3 == len(others)


async def test_a_reply_finds_its_thread_by_a_long_id(house: House, inbox: Inbox) -> None:
    long_id = f"<{noise(4_000)}@b>"
    first = await deliver(house, inbox, raw(**{"Message-ID": long_id}))

    reply = await deliver(house, inbox, raw(**{"Message-ID": "<r@b>", "In-Reply-To": long_id}))
    other = await deliver(
        house, inbox, raw(**{"Message-ID": "<o@b>", "In-Reply-To": f"{long_id[:-5]}@c>"})
    )

    assert first.thread_id == reply.thread_id != other.thread_id


def test_a_key_fits_and_differs_where_its_text_does() -> None:
    texts = [noise(998), noise(999), noise(999) + "a", noise(999, WIDE), "x" * 10_000]
    keys = [as_key(text) for text in texts]

    assert texts[0] == keys[0]
    assert len(set(keys)) == len(texts)
    assert all(len(key.encode()) <= MOST_KEY_BYTES for key in keys)
    assert keys == [as_key(key) for key in keys]


async def test_long_ones_of_before_are_keys_after_an_upgrade(tmp_path: Path) -> None:
    path, long_id = tmp_path / "postroom.db", noise(4_000, WIDE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "migrate", partial(migrate, steps=STEPS[:BEFORE]))
        await (await sqlite.open_store(path)).close()
    before = apsw.Connection(str(path))
    before.execute("INSERT INTO thread_ids VALUES (1, ?, 1), (1, 'short@b', 1)", (long_id,))
    before.execute("INSERT INTO contacts VALUES (1, ?, 1, 1)", (f"{long_id}@b",))
    before.close()

    await (await sqlite.open_store(path)).close()

    after = apsw.Connection(str(path))
    ids = after.execute("SELECT internet_id FROM thread_ids ORDER BY 1").fetchall()
    assert sorted([(as_key(long_id),), ("short@b",)]) == ids
    assert [(as_key(f"{long_id}@b"),)] == after.execute("SELECT address FROM contacts").fetchall()


def test_both_databases_make_the_same_key(database_url: str) -> None:
    texts = [noise(999), noise(4_000, WIDE)]
    [said] = translate("SELECT as_key(t) FROM (SELECT CAST($1 AS VARCHAR) AS t) x", 1)
    with psycopg.connect(database_url, cursor_factory=psycopg.RawCursor) as connection:
        made = [connection.execute(said.encode(), [text]).fetchone() for text in texts]
    assert [(as_key(text),) for text in texts] == made
