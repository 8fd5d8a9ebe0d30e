"""Ranked search covers the caller's mail, however much others have."""

from __future__ import annotations

import pytest

from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import EmbeddedQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from postroom.store.ranking import index
from tests.mails import deliver, mail, new_inbox


async def found(services: Services, *inboxes: Inbox, limit: int = 100) -> list[str]:
    visible = only(*(inbox.id for inbox in inboxes)) if inboxes else EVERYTHING
    query = MessageQuery(visible=visible, page=Slice(limit=limit))
    page = await services.store.rank_mail(query, EmbeddedQuery(["tea"]))
    return [row.id for row in page.rows]


async def index_for_ranking(services: Services, *inboxes: Inbox, limit: int = 2_000) -> int:
    visible = only(*(inbox.id for inbox in inboxes))
    numbers = await services.store.unindexed_mail(MessageQuery(visible=visible), limit=limit)
    await services.store.index_messages(numbers)
    return len(numbers)


async def test_a_search_indexes_the_mail_of_the_caller_first(
    services: Services, inbox: Inbox
) -> None:
    other = await new_inbox(services, "other")
    own = [(await deliver(services, inbox, mail("tea"))).message_id for _ in range(3)]
    for _ in range(9):
        await deliver(services, other, mail("tea"))

    shelved = [
        await index_for_ranking(services, inbox, limit=2),
        await index_for_ranking(services, inbox, limit=2),
    ]

    assert [2, 1] == shelved
    assert 0 == await index_for_ranking(services, inbox)
    assert own[::-1] == await found(services, inbox)
    assert own[::-1] == await found(services)


async def test_all_other_mail_is_indexed_in_the_background(
    services: Services, inbox: Inbox
) -> None:
    other = await new_inbox(services, "other")
    for place in (other, inbox, other, inbox, other):
        await deliver(services, place, mail("tea"))
    await index_for_ranking(services, inbox)
    await deliver(services, other, mail("tea"))

    steps = []
    while put := await services.store.index_mail(limit=2, starts=False):
        steps.append(put)

    assert [2, 2, 2] == steps
    assert 4 == len(await found(services, other))
    assert 6 == len(await found(services))
    assert () == await services.store.problems()


async def test_mail_is_displaced_only_by_mail_of_its_inbox(
    services: Services, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_MAIL", 3)
    monkeypatch.setattr(index, "CHECK_EVERY", 1)
    other = await new_inbox(services, "other")
    own = [(await deliver(services, inbox, mail("tea"))).message_id for _ in range(3)]
    await index_for_ranking(services, inbox)
    theirs = [(await deliver(services, other, mail("tea"))).message_id for _ in range(8)]

    await index_for_ranking(services, other)

    assert own[::-1] == await found(services, inbox)
    assert theirs[:-4:-1] == await found(services, other)


async def test_statistics_cover_only_what_the_caller_sees(services: Services, inbox: Inbox) -> None:
    other = await new_inbox(services, "other")
    await deliver(services, inbox, mail("tea", "tea of the morning"))
    await deliver(services, inbox, mail("coffee", "no leaves"))
    await index_for_ranking(services, inbox)

    async def relevance() -> list[float | None]:
        query = MessageQuery(visible=only(inbox.id))
        terms = ["tea", "leav"]
        page = await services.store.rank_mail(query, EmbeddedQuery(terms))
        return [row.relevance for row in page.rows]

    alone = await relevance()
    for number in range(20):
        await deliver(services, other, mail("tea", "tea " * 30 * number))
    await index_for_ranking(services, other)

    assert alone == await relevance()
    assert 2 == len(alone)
