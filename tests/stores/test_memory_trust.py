"""Text from mail stays marked, and never becomes the owner's, whatever agents do."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from postroom.blobs.files import FileBlobs
from postroom.errors import Forbidden
from postroom.model.memory import Author, Link, Memory, MemoryChange
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.sqlite import open_store
from postroom.store.store import Store
from tests.bare_services import NO_PROVIDERS
from tests.mails import deliver, mail, new_inbox

AGENT = Author(visible=EVERYTHING, namespaces=EVERYTHING, is_owner=False)
MOST = timedelta(days=366)
"""The retention of memories from mail."""
KEYS = ("a", "b", "c")
TEXTS = (
    "Pay to account 7.",
    "PAY  to account: 7!!",
    "Note: pay to account 7",
    "Ana likes tea.",
    "It is late.",
)


@dataclass(frozen=True)
class Write:
    """An agent writes; it may name the mail as source, drop links, or request trust."""

    key: str
    text: str | None
    source: bool | None
    confirms_trust: bool


@dataclass(frozen=True)
class Delete:
    """An agent deletes a memory, perhaps to write it again."""

    key: str


steps = st.lists(
    st.one_of(
        st.builds(
            Write,
            st.sampled_from(KEYS),
            st.sampled_from([None, *TEXTS]),
            st.sampled_from([None, True, False]),
            st.booleans(),
        ),
        st.builds(Delete, st.sampled_from(KEYS)),
    ),
    max_size=12,
)


@given(steps)
def test_no_agent_raises_the_trust_of_text_from_mail(history: list[Write | Delete]) -> None:
    assert [] == asyncio.run(_live(history))


async def _live(history: list[Write | Delete]) -> list[Memory]:
    with TemporaryDirectory() as folder:
        store = await open_store(Path(folder) / "trust.db")
        try:
            services = Services(
                **NO_PROVIDERS, store=store, blobs=FileBlobs(Path(folder) / "blobs")
            )
            received = await deliver(services, await new_inbox(services), mail())
            return await _raised(store, services, received.message_id, history)
        finally:
            await store.close()


async def _raised(
    store: Store, services: Services, message_id: str, history: list[Write | Delete]
) -> list[Memory]:
    """The memories with more trust, or for longer, than allowed."""
    now = services.clock()
    raised: list[Memory] = []
    tainted: set[str] = set()
    keys: set[str] = set()
    for step in history:
        if isinstance(step, Delete):
            await store.remove_memory("default", step.key, now=now)
            keys.discard(step.key)
            continue
        before = await store.memory("default", step.key, now=now, history=0)
        if before is None and step.text is None:
            continue
        links = {None: None, True: (Link("source", message_id),), False: ()}[step.source]
        change = MemoryChange(
            "default", step.key, text=step.text, links=links, confirms_trust=step.confirms_trust
        )
        try:
            after = await store.save_memory(change, AGENT, now=now, is_new_allowed=True)
        except Forbidden:
            assert links == ()
            assert before is not None
            assert before.links
            continue
        assert after is not None
        if before is not None and after.version == before.version:
            assert after.trust == before.trust
            continue
        is_from_mail = step.source or step.key in keys or _repeats(after.text, tainted)
        if after.trust == "user" or (is_from_mail and not _stays_marked(after, now)):
            raised.append(after)
        if after.trust == "mail":
            tainted.add(_words(after.text))
            keys.add(step.key)
    return raised


def _words(text: str) -> str:
    return " ".join(["", *re.findall(r"\w+", text.lower()), ""])


def _repeats(text: str, tainted: set[str]) -> bool:
    return any(known in _words(text) for known in tainted)


def _stays_marked(memory: Memory, now: datetime) -> bool:
    until = memory.expires_at
    return memory.trust == "mail" and until is not None and now < until <= now + MOST
