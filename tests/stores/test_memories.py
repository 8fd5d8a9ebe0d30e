"""Memories: versions, trust, links, and what becomes of them when mail goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroom.errors import Forbidden, InvalidInput, NotFound
from postroom.model.inbox import Inbox
from postroom.model.memory import Author, Link, Memory, MemoryChange, MemoryQuery
from postroom.model.page import Slice
from postroom.pipeline.house import House
from postroom.ports.store import Store
from tests.mails import deliver, mail, new_inbox

NOW = datetime(2026, 5, 1, tzinfo=UTC)
OWNER, AGENT = Author(is_owner=True), Author(is_owner=False)


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
    memory = await store.put_memory(change, author, now=now, is_new_allowed=True)
    assert memory is not None
    return memory


async def get(store: Store, key: str = "k", now: datetime = NOW, history: int = 0) -> Memory | None:
    return await store.memory("default", key, now=now, history=history)


def about(to: str) -> tuple[Link, ...]:
    return (Link("source", to),)


async def test_what_is_not_given_stays_and_every_version_is_kept(store: Store) -> None:
    first = await put(store, summary="Drinks", tags=("people",), links=about("ana@x.org"))

    second = await put(store, text="Ana likes coffee.", now=NOW + timedelta(hours=1))

    assert (True, 1, False, 2) == (first.created, first.version, second.created, second.version)
    assert ("Drinks", ("people",), about("ana@x.org")) == (
        second.summary,
        second.tags,
        second.links,
    )
    read = await get(store, history=9)
    assert read is not None
    assert read.history is not None
    assert [(1, "Ana likes tea.")] == [(old.version, old.text) for old in read.history]
    assert (NOW, NOW + timedelta(hours=1)) == (read.created_at, read.updated_at)


async def test_the_same_again_changes_nothing(store: Store) -> None:
    await put(store, tags=("people",))

    again = await put(store, now=NOW + timedelta(hours=1))

    assert (False, 1, NOW) == (again.created, again.version, again.updated_at)
    assert () == await store.problems()


@pytest.mark.parametrize("again", [OWNER, AGENT])
@pytest.mark.parametrize("first", [OWNER, AGENT])
async def test_nobody_changes_a_memory_by_saying_it_again(
    store: Store, first: Author, again: Author
) -> None:
    said: dict[str, Any] = {"summary": "Drinks", "tags": ("people",), "links": about("ana@x.org")}
    before = await put(store, author=first, **said)

    for repeated in ({}, said):
        after = await put(store, author=again, now=NOW + timedelta(hours=1), **repeated)
        assert replace(before, created=False) == after


async def test_only_so_many_versions_are_kept(store: Store) -> None:
    for number in range(60):
        await put(store, text=f"Ana has {number} cats.")

    read = await get(store, history=100)

    assert read is not None
    assert read.history is not None
    assert (60, 50) == (read.version, len(read.history))


async def test_a_summary_that_nobody_gave_follows_the_text(store: Store) -> None:
    await put(store, text="Ana likes tea. " * 30)

    changed = await put(store, text="Ana likes coffee.")

    assert "Ana likes coffee." == changed.summary


async def test_a_new_memory_needs_a_text(store: Store) -> None:
    with pytest.raises(InvalidInput, match="text: is required"):
        await put(store, text=None)

    change = MemoryChange("default", "k", tags=("x",))
    assert await store.put_memory(change, AGENT, now=NOW, is_new_allowed=False) is None


async def test_memories_are_listed_as_they_changed_and_filtered(store: Store) -> None:
    for number in range(5):
        await put(
            store,
            f"k{number}",
            now=NOW + timedelta(minutes=number),
            tags=("all", f"t{number}"),
            links=about("Ana@X.org") if number % 2 else (),
        )
    await put(store, "other", namespace="elsewhere")
    await put(store, "k0", "Changed.", now=NOW + timedelta(hours=1))

    async def keys(**filters: Any) -> list[str]:
        return [row.key for row in (await store.memories(query(**filters))).rows]

    def query(**filters: Any) -> MemoryQuery:
        return MemoryQuery("default", NOW, **filters)

    assert ["k0", "k4", "k3", "k2", "k1"] == await keys()
    assert ["k3", "k1"] == await keys(linked_to="ana@x.ORG")
    assert ["k2"] == await keys(tags=("all", "t2"))
    assert ["k0", "k4"] == await keys(since=NOW + timedelta(minutes=4))
    first = await store.memories(query(page=Slice(limit=2)))
    rest = await store.memories(query(page=Slice(limit=9, after=first.next)))
    assert (5, 5, 2) == (first.total, rest.total, rest.offset)
    assert ["k3", "k2", "k1"] == [row.key for row in rest.rows]


@pytest.mark.parametrize(
    ("first", "then", "change", "expected"),
    [
        (OWNER, OWNER, {"text": "New."}, "user"),
        (OWNER, AGENT, {"text": "New."}, "agent"),
        (OWNER, AGENT, {"tags": ("x",)}, "agent"),
        (AGENT, OWNER, {"tags": ("x",)}, "agent"),
        (AGENT, OWNER, {"text": "New."}, "user"),
        (AGENT, AGENT, {"vouches": True, "text": "New."}, "agent"),
        (AGENT, OWNER, {"vouches": True}, "user"),
    ],
)
async def test_trust_is_that_of_who_wrote_it_last(
    store: Store, first: Author, then: Author, change: dict[str, Any], expected: str
) -> None:
    await put(store, author=first)

    changed = await put(store, author=then, **{"text": None, **change})

    assert expected == changed.trust


async def test_what_came_out_of_mail_stays_marked_until_the_owner_vouches(
    store: Store, house: House, inbox: Inbox
) -> None:
    added = await deliver(house, inbox, mail())
    learnt = await put(store, "a", "Pay to account 7.", links=about(added.message_id))

    without_link = await put(store, "a", "Pay to account 8.", author=OWNER, links=())
    rewritten = await put(store, "a", "Pay to account 9.", author=OWNER)
    await store.remove_memory("default", "a", now=NOW)
    copied = await put(store, "b", "pay to  ACCOUNT 7.")
    vouched = await put(store, "b", None, author=OWNER, vouches=True)

    assert ["mail"] * 4 == [m.trust for m in (learnt, without_link, rewritten, copied)]
    assert "user" == vouched.trust
    assert learnt.expires_at == NOW + timedelta(days=365)


LEARNT = "The contract with Carol ends in March twenty seven."


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"text": "the contract with Carol ends -- in March twenty-seven!!"}, "mail"),
        ({"text": "The con\u00adtract with\u200b Carol ends in March (twenty seven)"}, "mail"),
        ({"text": f"Note: {LEARNT}"}, "mail"),
        ({"text": f"{LEARNT} Remember that."}, "mail"),
        ({"text": "Carol's contract.", "summary": LEARNT}, "mail"),
        ({"text": "THE end of a contract!"}, "mail"),
        ({"text": "So, the end of a contract: March."}, "mail"),
        ({"text": "The contract with Carol is a long one."}, "agent"),
        ({"text": "Carol", "summary": "March twenty seven"}, "agent"),
        ({"text": "Yes, go on."}, "agent"),
    ],
)
async def test_words_from_mail_are_known_again_whatever_is_around_them(
    store: Store, house: House, inbox: Inbox, said: dict[str, Any], expected: str
) -> None:
    added = await deliver(house, inbox, mail())
    source = about(added.message_id)
    await put(store, "a", LEARNT, summary="The end of a contract", links=source)
    await put(store, "b", "Yes.", links=source)
    for key in ("a", "b"):
        await store.remove_memory("default", key, now=NOW)

    again = await put(store, "again", **said)
    owners = await put(store, "owners", author=OWNER, **said)

    assert (expected, "user") == (again.trust, owners.trust)


async def test_what_is_written_around_words_from_mail_is_not_mail(
    store: Store, house: House, inbox: Inbox
) -> None:
    added = await deliver(house, inbox, mail())
    await put(store, "a", LEARNT, links=about(added.message_id))
    heading = "What the team has learnt on this fine day of spring"
    log = await put(store, "log", f"{heading}: {LEARNT}")

    other = await put(store, "other", f"{heading}: the printer is broken.")
    same = await put(store, "same", f"{heading.upper()} {LEARNT}")

    assert ["mail", "agent", "mail"] == [memory.trust for memory in (log, other, same)]


async def test_a_memory_ends_when_it_is_said_to(store: Store) -> None:
    soon = NOW + timedelta(hours=1)
    await put(store, expires_at=soon)
    await put(store, "kept", expires_at=soon)
    await put(store, "kept", None, clears_expiry=True)

    assert await get(store, now=soon) is None
    assert 1 == (await store.memories(MemoryQuery("default", soon))).total
    assert await store.has_recall_work(now=soon, learns=False)
    assert 1 == await store.remove_expired(now=soon, limit=9)
    assert not await store.has_recall_work(now=soon, learns=False)
    anew = await put(store, "k", "Again.", now=soon)
    assert (True, 1) == (anew.created, anew.version)
    assert () == await store.problems()


async def test_a_link_to_mail_must_lead_somewhere_the_author_can_see(
    store: Store, house: House, inbox: Inbox
) -> None:
    added = await deliver(house, inbox, mail())
    stranger = replace(AGENT, visible=frozenset({"inb_other"}))

    nowhere = "0" * 26
    for author, to in (
        (AGENT, f"msg_{nowhere}"),
        (AGENT, f"thr_{nowhere}"),
        (stranger, added.message_id),
    ):
        with pytest.raises(NotFound, match=rf"links\[0\].to: no .* {to}"):
            await put(store, author=author, links=about(to))

    assert await get(store) is None


@pytest.mark.parametrize(
    ("to", "same", "is_address"),
    [
        ("Ana@Example.com", "ana@example.COM", True),
        ("msg_Support@example.com", "msg_support@example.com", True),
        ("thr_all@example.com", "THR_all@example.com", True),
        ("jürgen@exämple.de", "Jürgen@exämple.de", True),
        ("ana@localhost", "ana@LOCALHOST", True),
        ("msg_templates", "msg_templates", False),
        ("thr_" + "x" * 25, "thr_" + "x" * 25, False),
        ("ana@example.com/prefs", "ana@example.com/prefs", False),
        ("ana@example..com", "ana@example..com", False),
        ("@ana", "@ana", False),
        ("mail ana@example.com", "mail ana@example.com", False),
    ],
)
async def test_what_a_link_leads_to_is_told_by_its_exact_form(
    store: Store, to: str, same: str, is_address: bool
) -> None:
    memory = await put(store, links=about(to))

    listed = await store.memories(MemoryQuery("default", NOW, linked_to=same))
    recalled = await store.recall_about([to], [], None, now=NOW, limit=9)

    assert ("agent", 1, is_address) == (memory.trust, listed.total, len(recalled) == 1)


async def test_a_key_is_compared_with_its_case(store: Store) -> None:
    await put(store, links=about("ana@example.com/Prefs"))

    query = MemoryQuery("default", NOW, linked_to="ana@example.com/prefs")
    assert 0 == (await store.memories(query)).total


async def test_when_mail_goes_what_was_learnt_from_it_goes_or_is_stale(
    store: Store, house: House, inbox: Inbox
) -> None:
    one, two = await deliver(house, inbox, mail()), await deliver(house, inbox, mail("Other"))
    await put(store, "agents", "A.", links=about(one.message_id))
    await put(store, "owners", "B.", author=OWNER, links=about(one.message_id))
    await put(store, "thread", "C.", links=about(one.thread_id))
    both = (*about(one.message_id), *about(two.message_id))
    await put(store, "both", "D.", links=both)
    await put(store, "unrelated", "E.", links=about("ana@example.com"))

    await store.remove_message(one.message_id, None)

    left = {row.key: row.stale for row in (await store.memories(MemoryQuery("default", NOW))).rows}
    assert {"owners": True, "both": True, "unrelated": None} == left
    assert () == await store.problems()


@pytest.mark.parametrize(
    "since", [{"text": None, "tags": ("x",)}, {"text": "Learnt.", "at_most": "mail"}]
)
async def test_what_the_owner_ever_wrote_outlives_its_mail(
    store: Store, house: House, inbox: Inbox, since: dict[str, Any]
) -> None:
    one, two = await deliver(house, inbox, mail()), await deliver(house, inbox, mail("Other"))
    await put(store, author=OWNER, links=about(one.message_id))
    links = about(two.message_id) if since["text"] else None
    await put(store, links=links, **since)

    for added in (one, two):
        await store.remove_message(added.message_id, None)

    read = await get(store)
    assert read is not None
    assert read.stale
    assert () == await store.problems()


async def test_a_memory_is_stale_until_its_links_name_nothing_that_is_gone(
    store: Store, house: House, inbox: Inbox
) -> None:
    gone, there = await deliver(house, inbox, mail()), await deliver(house, inbox, mail("Other"))
    await put(store, author=OWNER, links=(*about(gone.message_id), *about(there.message_id)))
    await store.remove_message(gone.message_id, None)

    edited = await put(store, "k", "New.", tags=("x",), author=OWNER)
    exported = [memory async for memory in store.every_memory(None, now=NOW)]
    await store.remove_memory("default", "k", now=NOW)
    assert (1, 0) == await store.put_memories(exported, OWNER, now=NOW)
    assert (0, 0) == await store.put_memories(exported, OWNER, now=NOW)
    imported = await get(store)
    assert imported is not None
    relinked = await put(store, "k", None, author=OWNER, links=about(there.message_id))

    assert [True, True, None] == [m.stale for m in (edited, imported, relinked)]


@pytest.mark.parametrize(
    ("author", "change", "expected"),
    [
        (OWNER, {"tags": ("x",)}, ("user", 3)),
        (OWNER, {"text": "Pay to account 8."}, ("user", 3)),
        (OWNER, {"text": "Pay to account 7."}, ("user", 2)),
        (AGENT, {"text": "Pay to account 7."}, ("user", 2)),
        (AGENT, {"tags": ("x",)}, ("mail", 3)),
    ],
)
async def test_what_the_owner_vouched_for_stays_theirs_as_long_as_they_write(
    store: Store,
    house: House,
    inbox: Inbox,
    author: Author,
    change: dict[str, Any],
    expected: tuple[str, int],
) -> None:
    added = await deliver(house, inbox, mail())
    await put(store, "k", "Pay to account 7.", links=about(added.message_id))
    await put(store, "k", None, author=OWNER, vouches=True)

    changed = await put(store, author=author, **{"text": None, **change})

    assert expected == (changed.trust, changed.version)


async def test_a_new_link_to_mail_ends_what_the_owner_vouched_for(
    store: Store, house: House, inbox: Inbox
) -> None:
    one, two = await deliver(house, inbox, mail()), await deliver(house, inbox, mail("Other"))
    await put(store, author=OWNER, links=about(one.message_id), vouches=True)

    kept = await put(store, "k", None, author=OWNER, links=about(one.message_id), tags=("x",))
    ended = await put(store, "k", None, author=OWNER, links=about(two.message_id))

    assert ("user", "mail") == (kept.trust, ended.trust)


async def test_only_the_owner_takes_away_where_a_memory_comes_from(
    store: Store, house: House, inbox: Inbox
) -> None:
    one, two = await deliver(house, inbox, mail()), await deliver(house, inbox, mail("Other"))
    links = (*about(one.message_id), Link("about", "ana@example.com"))
    await put(store, links=links)

    for fewer in ((), about(two.message_id), links[1:]):
        with pytest.raises(Forbidden, match=f"links: {one.message_id} is where .* leave links out"):
            await put(store, "k", None, links=fewer)

    more = await put(store, "k", None, links=(*about(two.message_id), *links[:1]))
    learnt = await put(store, "k", "New.", links=about(two.message_id), at_most="mail")
    none = await put(store, "k", None, author=OWNER, links=())
    assert [2, 1, 0] == [len(memory.links) for memory in (more, learnt, none)]
    assert "mail" == none.trust


async def test_when_an_inbox_goes_its_memories_go_too(
    store: Store, house: House, inbox: Inbox
) -> None:
    other = await new_inbox(house, "other")
    gone, kept = await deliver(house, inbox, mail()), await deliver(house, other, mail())
    await put(store, "gone", "A.", links=about(gone.message_id))
    await put(store, "kept", "B.", links=about(kept.message_id))

    await store.remove_inbox(inbox.id, None, force=True)

    rows = (await store.memories(MemoryQuery("default", NOW))).rows
    assert ["kept"] == [row.key for row in rows]
    assert () == await store.problems()


async def test_a_link_follows_a_thread_into_another(
    store: Store, house: House, inbox: Inbox
) -> None:
    one, two = await deliver(house, inbox, mail("One")), await deliver(house, inbox, mail("Two"))
    await put(store, links=about(two.thread_id))

    await store.merge_threads([one.thread_id, two.thread_id], None)

    read = await get(store)
    assert read is not None
    assert about(one.thread_id) == read.links


async def test_a_thread_is_known_by_the_name_it_had_before(
    store: Store, house: House, inbox: Inbox
) -> None:
    one, two = await deliver(house, inbox, mail("One")), await deliver(house, inbox, mail("Two"))
    await store.merge_threads([one.thread_id, two.thread_id], None)

    await put(store, links=about(two.thread_id))

    for name in (one.thread_id, two.thread_id):
        assert 1 == (await store.memories(MemoryQuery("default", NOW, linked_to=name))).total
    await store.remove_message(one.message_id, None)
    await store.remove_message(two.message_id, None)
    assert await get(store) is None


async def test_memories_about_people_are_recalled_beside_their_mail(
    store: Store, house: House, inbox: Inbox
) -> None:
    added = await deliver(house, inbox, mail(sender="Ana <ANA@example.com>"))
    await put(store, "direct", "A.", links=about("ana@EXAMPLE.com"))
    await put(store, "by-mail", "B.", links=about(added.message_id), now=NOW + timedelta(hours=1))
    await put(store, "bo", "C.", links=about("bo@example.com"))
    await put(store, "hidden", "D.", links=about("ana@example.com"), namespace="secret")

    recalled = await store.recall_about(
        ["Ana@example.com"], [], frozenset({"default"}), now=NOW, limit=10
    )
    everything = await store.recall_about(
        ["ana@example.com"], [added.message_id], None, now=NOW, limit=2
    )

    assert [("by-mail", "mail"), ("direct", "agent")] == [(m.key, m.trust) for m in recalled]
    assert all(memory.recalled for memory in recalled)
    assert 2 == len(everything)


SECRET = "Ana's budget for the kitchen is forty thousand euros, and she will go to fifty."


@pytest.mark.parametrize(
    ("text", "recipients", "is_warned"),
    [
        (f"Hi Bo,\n{SECRET}\nBest", ["bo@x.org"], True),
        ("She will go to FIFTY for the kitchen: forty thousand euros, and she", ["bo@x.org"], True),
        (SECRET, ["ana@x.org"], False),
        (SECRET, ["ana@x.org", "bo@x.org"], True),
        ("Ana has a budget.", ["bo@x.org"], False),
        ("", ["bo@x.org"], False),
    ],
)
async def test_a_memory_about_one_is_noticed_on_its_way_to_another(
    store: Store, text: str, recipients: list[str], is_warned: bool
) -> None:
    await put(store, text=SECRET, links=about("Ana@x.org"))

    found = await store.tied_memories(text, recipients, None)

    assert ([("k", ("ana@x.org",), ("bo@x.org",))] if is_warned else []) == [
        (tied.key, tied.about, tied.others) for tied in found
    ]
    assert [] == await store.tied_memories(text, recipients, frozenset({"elsewhere"}))


@pytest.mark.parametrize(
    ("memory", "sent", "is_warned"),
    [
        ("Door code 4471", "Hi Bo, the door code: 4471. Best", True),
        ("Door code 4471", "Hi Bo, the door code is 4471", False),
        ("Code 4471", "It is code 4471!", True),
        ("4471", "4471", False),
        (
            "filler " * 9_000 + "She will go to fifty thousand",
            "she will go to FIFTY thousand",
            True,
        ),
        ("She will go to fifty thousand", "word " * 15_000 + "she will go to fifty thousand", True),
    ],
)
async def test_short_and_long_memories_are_noticed_too(
    store: Store, memory: str, sent: str, is_warned: bool
) -> None:
    await put(store, text=memory, links=about("ana@x.org"))

    found = await store.tied_memories(sent, ["bob@x.org"], None)

    assert (["k"] if is_warned else []) == [tied.key for tied in found]


async def test_much_that_the_recipient_may_know_hides_nothing(store: Store) -> None:
    known = [f"Bob knows of the house by lake {number} in the north." for number in range(30)]
    for number, text in enumerate(known):
        await put(store, f"bob/{number}", text, links=about("bob@x.org"))
    await put(store, text="Door code 4471", links=about("ana@x.org"))

    found = await store.tied_memories(
        " ".join([*known, "Door code 4471"]), ["bob@x.org"], frozenset({"default"})
    )

    assert ["k"] == [tied.key for tied in found]


async def test_an_export_is_taken_in_as_it_was(store: Store, house: House, inbox: Inbox) -> None:
    added = await deliver(house, inbox, mail())
    await put(store, "a", "One.", author=OWNER, tags=("x",), expires_at=NOW + timedelta(days=1))
    await put(store, "b", "Two.", links=about(added.message_id), namespace="other")
    exported = [memory async for memory in store.every_memory(None, now=NOW)]
    await store.remove_memory("default", "a", now=NOW)
    await store.remove_message(added.message_id, None)

    assert (2, 0) == await store.put_memories(exported, OWNER, now=NOW)
    assert (0, 0) == await store.put_memories(exported, OWNER, now=NOW)

    assert exported == [memory async for memory in store.every_memory(None, now=NOW)]
    only = [memory async for memory in store.every_memory(["other"], now=NOW)]
    assert ["b"] == [memory.key for memory in only]
