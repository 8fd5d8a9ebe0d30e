"""No answer reveals words of hidden mail or of a hidden namespace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.model.inbox import Inbox
from postroom.model.memory import Author, MemoryQuery
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from postroom.store.store import Store
from postroom.store.transaction import Row
from tests.mails import deliver, mail, new_inbox
from tests.stores.memories import AGENT, NOW, OWNER, about, put

PIN = "The PIN of the safe in the cellar is 4711."
GUESSES = (
    PIN,
    "pin of the SAFE in the cellar: is 4711",
    f"Somebody said: {PIN} Is it so?",
    "the pin of the safe in the cellar",
)
TABLES = ("mail_memories", "mail_memory_digests", "mail_memory_sources")


def agent(namespace: str, *inboxes: str, key_id: str = "key_b") -> Author:
    return Author(False, only(*inboxes), only(namespace), key_id)


async def noted(store: Store) -> list[int]:
    """The number of rows about text from mail."""
    engine = store.engine  # type: ignore[attr-defined]
    counted: list[Row] = [
        await engine.read(lambda tx, table=table: tx.one(f"SELECT count(*) FROM {table}"))
        for table in TABLES
    ]
    return [row[0] for row in counted]


@pytest.mark.parametrize("guess", GUESSES)
async def test_text_from_mail_is_recognised_in_its_namespace_only(
    store: Store, services: Services, inbox: Inbox, guess: str
) -> None:
    added = await deliver(services, inbox, mail(text=PIN))
    await put(store, "pin", PIN, links=about(added.message_id), namespace="hr")
    await put(store, "copy", PIN, author=agent("hr", inbox.id), namespace="hr")

    for author in (agent("sales"), agent("sales", inbox.id), agent("sales", key_id="owner")):
        told = await put(store, "k", guess, author=author, namespace="sales")
        assert ("agent", None) == (told.trust, told.expires_at)
        again = await put(store, "k", "Other.", author=author, namespace="sales", summary=guess)
        assert "agent" == again.trust
        await store.remove_memory("sales", "k", now=NOW, by=author.key_id)

    own = await put(store, "guess", guess, author=agent("hr", inbox.id), namespace="hr")
    both = replace(agent("sales", inbox.id), namespaces=only("hr", "sales"))
    carried = await put(store, "guess", guess, author=both, namespace="sales")
    unlimited = await put(store, "guess", guess, namespace="third")
    assert ["mail"] * 3 == [memory.trust for memory in (own, carried, unlimited)]


async def removed(store: Store, by: str | None) -> None:
    if by is None:
        await store.remove_expired(now=NOW + timedelta(days=400), limit=10)
    else:
        await store.remove_memory("default", "pin", now=NOW, by=by)


@pytest.mark.parametrize(
    ("sees_mail", "by", "expected"),
    [
        (True, "key_a", "mail"),
        (True, None, "mail"),
        (False, "key_b", "mail"),
        (False, "key_a", "agent"),
        (False, None, "agent"),
        (False, "", "agent"),
    ],
)
async def test_a_deleted_memory_is_reported_only_to_callers_who_saw_it(
    store: Store, services: Services, inbox: Inbox, sees_mail: bool, by: str | None, expected: str
) -> None:
    added = await deliver(services, inbox, mail(text=PIN))
    await put(store, "pin", PIN, links=about(added.message_id))
    author = agent("default", *([inbox.id] if sees_mail else []))
    there = await put(store, "there", PIN, author=author)
    await store.remove_memory("default", "there", now=NOW, by="key_c")

    await removed(store, by)

    assert "mail" == there.trust
    assert expected == (await put(store, "again", PIN, author=author)).trust


async def test_an_expired_memory_is_hidden_before_it_is_removed(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail(text=PIN))
    await put(store, "pin", PIN, links=about(added.message_id), expires_at=NOW)
    later = NOW + timedelta(seconds=1)

    blind = await put(store, "a", PIN, author=agent("default"), now=later)
    seeing = await put(store, "b", PIN, author=agent("default", inbox.id), now=later)

    assert ("agent", "mail") == (blind.trust, seeing.trust)


Remove = Callable[[Store, str, str], Awaitable[object]]
WAYS: dict[str, Remove] = {
    "message": lambda store, message_id, inbox_id: store.remove_message(message_id, EVERYTHING),
    "inbox": lambda store, message_id, inbox_id: store.remove_inbox(
        inbox_id, EVERYTHING, force=True
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("is_forgotten_first", [True, False])
@pytest.mark.parametrize("is_thread", [True, False])
async def test_recorded_texts_are_deleted_with_their_mail(
    store: Store,
    services: Services,
    inbox: Inbox,
    way: Remove,
    is_forgotten_first: bool,
    is_thread: bool,
) -> None:
    added = await deliver(services, inbox, mail(text=PIN))
    source = added.thread_id if is_thread else added.message_id
    await put(store, "pin", PIN, links=about(source))
    await put(store, "copy", PIN)
    if is_forgotten_first:
        for key in ("pin", "copy"):
            await store.remove_memory("default", key, now=NOW, by="key_a")
        assert 0 not in await noted(store)

    await way(store, added.message_id, inbox.id)

    if not is_forgotten_first:
        assert "mail" == (await put(store, "a third", PIN)).trust  # the copy is still there
        for row in (await store.memories(MemoryQuery("default", NOW))).rows:
            await store.remove_memory("default", row.key, now=NOW)
    assert [0, 0, 0] == await noted(store)
    assert "agent" == (await put(store, "again", PIN)).trust
    assert () == await store.problems()


async def test_recorded_texts_stay_while_other_mail_contains_them(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = await deliver(services, inbox, mail()), await deliver(services, inbox, mail("Other"))
    await put(store, "pin", PIN, links=(*about(one.message_id), *about(two.thread_id)))
    await store.remove_memory("default", "pin", now=NOW)

    told = []
    for added in (one, two):
        await store.remove_message(added.message_id, EVERYTHING)
        told.append((await put(store, f"after {added.message_id}", PIN)).trust)
        await store.remove_memory("default", f"after {added.message_id}", now=NOW)

    assert ["mail", "agent"] == told


async def test_recorded_texts_follow_a_merged_thread(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = (
        await deliver(services, inbox, mail("One")),
        await deliver(services, inbox, mail("Two")),
    )
    await put(store, "pin", PIN, links=(*about(one.thread_id), *about(two.thread_id)))
    await store.remove_memory("default", "pin", now=NOW)

    await store.merge_threads([one.thread_id, two.thread_id], EVERYTHING)

    assert [1, 1] == (await noted(store))[::2]
    assert "mail" == (await put(store, "again", PIN, author=agent("default", inbox.id))).trust


async def test_participants_of_hidden_mail_are_not_revealed(
    store: Store, services: Services, inbox: Inbox
) -> None:
    other = await new_inbox(services, "other")
    hidden = await deliver(services, other, mail(sender="Ana <ana@x.org>"))
    await put(store, "pin", PIN, links=about(hidden.message_id))
    recall = {"now": NOW, "limit": 9}

    for visible, is_told in ((None, True), ({other.id}, True), ({inbox.id}, False), ((), False)):
        seen = EVERYTHING if visible is None else only(*visible)
        told = await store.tied_memories(PIN, ["bo@x.org"], EVERYTHING, visible=seen, now=NOW)
        recalled = await store.memories_about(["ana@x.org"], [], EVERYTHING, visible=seen, **recall)  # type: ignore[arg-type]

        assert ([((), (hidden.message_id,))] if is_told else []) == [
            (tied.about, tied.sources) for tied in told
        ]
        assert (["pin"] if is_told else []) == [memory.key for memory in recalled]


async def test_hidden_namespaces_displace_no_warning(store: Store) -> None:
    for number in range(510):
        await put(store, f"{number}", PIN, links=about("a@x.org"), namespace="x", author=OWNER)
    await put(store, "own", PIN, links=about("ana@x.org"), author=OWNER)

    told = await store.tied_memories(
        PIN, ["bo@x.org"], only("default"), visible=EVERYTHING, now=NOW
    )

    assert ["own"] == [tied.key for tied in told]


async def test_expired_memories_cause_no_warning(store: Store) -> None:
    await put(store, text=PIN, links=about("ana@x.org"), expires_at=NOW)

    assert [] == await store.tied_memories(
        PIN, ["bo@x.org"], EVERYTHING, visible=EVERYTHING, now=NOW
    )


async def test_text_of_an_agent_stays_marked_in_a_shared_namespace(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail(text=PIN))
    await put(store, "pin", PIN, author=agent("default", inbox.id), links=about(added.message_id))
    for author in (agent("default"), agent("default", inbox.id, key_id="key_a"), AGENT):
        copied = await put(store, "copy", f"So: {PIN}", author=author)
        await store.remove_memory("default", "copy", now=NOW, by=author.key_id)
        again = await put(store, "again", f"so {PIN}", author=author)
        await store.remove_memory("default", "again", now=NOW, by=author.key_id)

        assert ("mail", "mail") == (copied.trust, again.trust)


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_copies_of_copies_never_raise_the_trust_of_a_text(
    store: Store, services: Services, inbox: Inbox, steps: int
) -> None:
    added = await deliver(services, inbox, mail(text=PIN))
    await put(store, "pin", PIN, links=about(added.message_id))
    blind = agent("default")
    for step in range(steps):
        await put(store, f"copy{step}", f"{PIN} Said {'again ' * step}today.", author=blind)
        before = "pin" if step == 0 else f"copy{step - 1}"
        await store.remove_memory("default", before, now=NOW, by="key_c")

    assert "mail" == (await put(store, "last", PIN, author=blind)).trust
