"""Store and read memories."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from postroom.model.memory import Author, Link, Memory, MemoryChange
from postroom.model.view import EVERYTHING
from postroom.store.store import Store

NOW = datetime(2026, 5, 1, tzinfo=UTC)
OWNER, AGENT = (
    Author(visible=EVERYTHING, namespaces=EVERYTHING, is_owner=True),
    Author(visible=EVERYTHING, namespaces=EVERYTHING, is_owner=False),
)


async def put(
    store: Store,
    key: str = "k",
    text: str | None = "Ana likes tea.",
    author: Author = AGENT,
    now: datetime = NOW,
    namespace: str = "default",
    **fields: Any,
) -> Memory:
    change = MemoryChange(namespace, key, text=text, **fields)
    memory = await store.save_memory(change, author, now=now, is_new_allowed=True)
    assert memory is not None
    return memory


async def get(store: Store, key: str = "k", now: datetime = NOW, history: int = 0) -> Memory | None:
    return await store.memory("default", key, now=now, history=history)


def about(to: str) -> tuple[Link, ...]:
    return (Link("source", to),)
