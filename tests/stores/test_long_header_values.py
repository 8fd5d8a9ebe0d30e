"""Header values of any length are stored, searched and used for threads."""

from __future__ import annotations

import random

import pytest

from postroom.mail.text.fold import MAX_KEY_BYTES, as_key
from postroom.model.inbox import Inbox
from postroom.pipeline.services import Services
from tests.mails import deliver

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WIDE = "".join(map(chr, range(0x4E00, 0x9000)))


def noise(size: int, characters: str = CHARACTERS) -> str:
    """Incompressible text."""
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
async def test_a_long_value_is_stored_and_recognised(
    services: Services, inbox: Inbox, headers: dict[str, str]
) -> None:
    first = await deliver(services, inbox, raw(**headers))
    again = await deliver(services, inbox, b"Received: by another route\r\n" + raw(**headers))
    others = [
        await deliver(
            services, inbox, raw(**{"Message-ID": f"<{n}@b>", **headers}, X_Number=f"{n}")
        )
        for n in range(3)
    ]

    assert first.message_id == again.message_id
    assert 3 == len(others)


async def test_a_reply_finds_its_thread_by_a_long_id(services: Services, inbox: Inbox) -> None:
    long_id = f"<{noise(4_000)}@b>"
    first = await deliver(services, inbox, raw(**{"Message-ID": long_id}))

    reply = await deliver(services, inbox, raw(**{"Message-ID": "<r@b>", "In-Reply-To": long_id}))
    other = await deliver(
        services, inbox, raw(**{"Message-ID": "<o@b>", "In-Reply-To": f"{long_id[:-5]}@c>"})
    )

    assert first.thread_id == reply.thread_id != other.thread_id


def test_index_keys_are_short_and_distinct() -> None:
    texts = [noise(998), noise(999), noise(999) + "a", noise(999, WIDE), "x" * 10_000]
    keys = [as_key(text) for text in texts]

    assert texts[0] == keys[0]
    assert len(set(keys)) == len(texts)
    assert all(len(key.encode()) <= MAX_KEY_BYTES for key in keys)
    assert keys == [as_key(key) for key in keys]
