"""A memory has the trust of its author, and text from mail stays marked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import Forbidden
from postroom.model.inbox import Inbox
from postroom.model.memory import Author, Link
from postroom.pipeline.services import Services
from postroom.store.store import Store
from tests.mails import deliver, mail
from tests.stores.memories import AGENT, NOW, OWNER, about, put


@pytest.mark.parametrize(
    ("first", "then", "change", "expected"),
    [
        (OWNER, OWNER, {"text": "New."}, "user"),
        (OWNER, AGENT, {"text": "New."}, "agent"),
        (OWNER, AGENT, {"tags": ("x",)}, "agent"),
        (AGENT, OWNER, {"tags": ("x",)}, "agent"),
        (AGENT, OWNER, {"text": "New."}, "user"),
        (AGENT, AGENT, {"confirms_trust": True, "text": "New."}, "agent"),
        (AGENT, OWNER, {"confirms_trust": True}, "user"),
    ],
)
async def test_trust_is_that_of_the_last_author(
    store: Store, first: Author, then: Author, change: dict[str, Any], expected: str
) -> None:
    await put(store, author=first)

    changed = await put(store, author=then, **{"text": None, **change})

    assert expected == changed.trust


async def test_text_from_mail_stays_marked_until_the_owner_confirms_it(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail())
    learnt = await put(store, "a", "Pay to account 7.", links=about(added.message_id))

    without_link = await put(store, "a", "Pay to account 8.", author=OWNER, links=())
    rewritten = await put(store, "a", "Pay to account 9.", author=OWNER)
    await store.remove_memory("default", "a", now=NOW)
    copied = await put(store, "b", "pay to  ACCOUNT 7.")
    confirmed = await put(store, "b", None, author=OWNER, confirms_trust=True)

    assert ["mail"] * 4 == [m.trust for m in (learnt, without_link, rewritten, copied)]
    assert "user" == confirmed.trust
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
async def test_text_from_mail_is_recognised_in_any_context(
    store: Store, services: Services, inbox: Inbox, said: dict[str, Any], expected: str
) -> None:
    added = await deliver(services, inbox, mail())
    source = about(added.message_id)
    await put(store, "a", LEARNT, summary="The end of a contract", links=source)
    await put(store, "b", "Yes.", links=source)
    for key in ("a", "b"):
        await store.remove_memory("default", key, now=NOW)

    again = await put(store, "again", **said)
    owners = await put(store, "owners", author=OWNER, **said)

    assert (expected, "user") == (again.trust, owners.trust)


async def test_text_around_words_from_mail_is_not_trusted_more(
    store: Store, services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail())
    await put(store, "a", LEARNT, links=about(added.message_id))
    heading = "What the team has learnt on this fine day of spring"
    log = await put(store, "log", f"{heading}: {LEARNT}")

    other = await put(store, "other", f"{heading}: the printer is broken.")
    same = await put(store, "same", f"{heading.upper()} {LEARNT}")

    assert ["mail", "mail", "mail"] == [memory.trust for memory in (log, other, same)]


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
async def test_what_the_owner_confirmed_stays_trusted_while_the_owner_writes(
    store: Store,
    services: Services,
    inbox: Inbox,
    author: Author,
    change: dict[str, Any],
    expected: tuple[str, int],
) -> None:
    added = await deliver(services, inbox, mail())
    await put(store, "k", "Pay to account 7.", links=about(added.message_id))
    await put(store, "k", None, author=OWNER, confirms_trust=True)

    changed = await put(store, author=author, **{"text": None, **change})

    assert expected == (changed.trust, changed.version)


async def test_a_new_link_to_mail_ends_the_owners_trust(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = await deliver(services, inbox, mail()), await deliver(services, inbox, mail("Other"))
    await put(store, author=OWNER, links=about(one.message_id), confirms_trust=True)

    kept = await put(store, "k", None, author=OWNER, links=about(one.message_id), tags=("x",))
    ended = await put(store, "k", None, author=OWNER, links=about(two.message_id))

    assert ("user", "mail") == (kept.trust, ended.trust)


async def test_only_the_owner_removes_links_to_mail(
    store: Store, services: Services, inbox: Inbox
) -> None:
    one, two = await deliver(services, inbox, mail()), await deliver(services, inbox, mail("Other"))
    links = (*about(one.message_id), Link("about", "ana@example.com"))
    await put(store, links=links)

    for fewer in ((), about(two.message_id), links[1:]):
        with pytest.raises(
            Forbidden, match=f"links: {one.message_id} is the source .* leave links out"
        ):
            await put(store, "k", None, links=fewer)

    more = await put(store, "k", None, links=(*about(two.message_id), *links[:1]))
    learnt = await put(store, "k", "New.", links=about(two.message_id), max_trust="mail")
    none = await put(store, "k", None, author=OWNER, links=())
    assert [2, 1, 0] == [len(memory.links) for memory in (more, learnt, none)]
    assert "mail" == none.trust
