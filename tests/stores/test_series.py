"""Numbered series: parts without references are added to their thread, in any order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FORMS = ("[BOATS v2 {}/3] words {}", "Words {1} ({0}/3)", "Part {} of 3: words {}")
ORPHAN, REPLY = "<two@example.com>", "<re@example.com>"


def part(form: str, number: int, **more: object) -> bytes:
    headers: dict[str, object] = {"date": NOON + timedelta(minutes=number), **more}
    return mail(form.format(number, number), **headers)  # type: ignore[arg-type]


def series(form: str) -> list[bytes]:
    """A first part, an orphan with a reply, and a sibling that references the first part."""
    return [
        part(form, 1, message_id="<one@example.com>"),
        part(form, 2, message_id=ORPHAN),
        part(form, 3, in_reply_to="<one@example.com>"),
        mail("Fine", message_id=REPLY, in_reply_to=ORPHAN, sender="Bo <bo@example.com>"),
    ]


async def threads(services: Services, inbox: Inbox) -> set[str]:
    query = MessageQuery(visible=EVERYTHING, inbox_id=inbox.id)
    return {message.thread_id for message in (await services.store.messages(query)).rows}


@pytest.mark.parametrize("form", FORMS)
async def test_an_orphan_of_a_series_joins_its_thread_in_any_order(
    services: Services, form: str
) -> None:
    for number, order in enumerate(permutations(series(form))):
        inbox = await new_inbox(services, f"series{number}-{FORMS.index(form)}")
        for raw in order:
            await deliver(services, inbox, raw)

        assert 1 == len(await threads(services, inbox)), order
    assert () == await services.store.problems()


@pytest.mark.parametrize(
    "other",
    [
        part(FORMS[0], 2, sender="Bo <bo@example.com>"),
        part("[CARS v2 {}/3] words {}", 2),
        part("[BOATS v3 {}/3] words {}", 2),
        part("[BOATS v2 {}/4] words {}", 2),
        part(FORMS[0], 2, date=NOON + timedelta(hours=7)),
        part(FORMS[0], 3),
        part(FORMS[0], 0),
        part(FORMS[0], 2, in_reply_to="<elsewhere@example.com>"),
        mail("words 2", date=NOON),
    ],
)
async def test_a_mail_that_is_not_a_missing_part_stays_separate(
    services: Services, inbox: Inbox, other: bytes
) -> None:
    first, _, sibling, _ = series(FORMS[0])
    for raw in (first, sibling, other):
        await deliver(services, inbox, raw)

    assert 2 == len(await threads(services, inbox))


async def test_a_series_without_references_stays_separate(services: Services, inbox: Inbox) -> None:
    for number in (1, 2, 3):
        await deliver(services, inbox, part(FORMS[0], number))

    assert 3 == len(await threads(services, inbox))


async def test_a_new_title_answers_the_title_that_it_names(
    services: Services, inbox: Inbox
) -> None:
    first = await deliver(services, inbox, mail("Boats"))
    renamed = await deliver(services, inbox, mail("Ships (was: Re: Boats)"))

    assert first.thread_id == renamed.thread_id
