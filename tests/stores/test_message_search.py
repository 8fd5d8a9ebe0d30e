"""Searching messages: text, filters, order, pages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.errors import NotFound
from postroom.mail.text.fold import fold
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox


async def subjects(services: Services, **query: object) -> list[str]:
    found = await services.store.messages(MessageQuery(**{"visible": EVERYTHING, **query}))  # type: ignore[arg-type]
    assert found.total == len(found.rows)
    return [message.subject for message in found.rows]


@pytest.mark.parametrize(
    ("q", "finds"),
    [
        ("CAFÉ", True),
        ("cafe", False),
        ("STRASSE", True),
        ("straße", True),
        ("break in the", True),
        ("break  in", True),
        ("50%", True),
        ("5_%", False),
        ('a "quoted"', True),
        ("C:\\temp", True),
        ("*", True),
        ("(x)", True),
        ("é", True),
        ("你好", True),
        ("好", True),
        ("nvoice-2", True),
        ("invoice-2026.PDF", True),
        ("ana@exam", True),
        ("ana lee", True),
        ("noon café", False),
    ],
)
async def test_q_is_any_substring_of_one_field_without_wildcards(
    services: Services, inbox: Inbox, q: str, *, finds: bool
) -> None:
    text = 'Straße, at noon\nbreak\n  in the line: 50% of a "quoted" * (x) C:\\temp 你好吗'
    await deliver(
        services,
        inbox,
        mail("Café", text, attachments=[("Invoice-2026.pdf", "application/pdf", b"%PDF")]),
    )

    assert (["Café"] if finds else []) == await subjects(services, q=fold(q))


async def test_html_only_mail_is_found_by_its_text(services: Services, inbox: Inbox) -> None:
    await deliver(services, inbox, mail("Letter", None, html="<p>Dear <b>friend</b></p>"))

    assert ["Letter"] == await subjects(services, q="dear friend")
    assert [] == await subjects(services, q="<b>")


async def test_sender_and_recipient_filters(services: Services, inbox: Inbox) -> None:
    await deliver(services, inbox, mail("One", sender="Ana Lee <ana@example.com>", cc="cy@b.org"))
    await deliver(services, inbox, mail("Two", sender="Bo <bo@sub.example.com>", to="x@y.org"))

    assert ["One"] == await subjects(services, sender="ana@example.com")
    assert ["One"] == await subjects(services, sender="@example.com")
    assert ["Two"] == await subjects(services, sender="@sub.example.com")
    assert [] == await subjects(services, sender="na@example.com")
    assert ["One"] == await subjects(services, sender="a lee")
    assert ["Two", "One"] == await subjects(services, sender="example")
    assert ["One"] == await subjects(services, recipient="cy@b.org")
    assert ["Two"] == await subjects(services, recipient="@y.org")


async def test_labels_match_whole_names_without_case_and_all_must_hold(
    services: Services, inbox: Inbox
) -> None:
    one = await deliver(services, inbox, mail("One"))
    two = await deliver(services, inbox, mail("Two"))
    await services.store.change_messages(
        [one.message_id], Change(add_labels=("Homework",)), EVERYTHING
    )
    await services.store.change_messages(
        [two.message_id], Change(add_labels=("Work", "Big")), EVERYTHING
    )

    assert ["Two"] == await subjects(services, labels=("work",))
    assert ["Two"] == await subjects(services, labels=("WORK", "big"))
    assert [] == await subjects(services, labels=("Work", "Homework"))


async def test_trash_and_junk_are_left_out_unless_named(services: Services, inbox: Inbox) -> None:
    await deliver(services, inbox, mail("Kept"))
    gone = await deliver(services, inbox, mail("Gone"))
    await deliver(services, inbox, mail("Junk"), mailbox="Junk")
    await services.store.change_messages([gone.message_id], Change(move_to="Trash"), EVERYTHING)

    assert ["Kept"] == await subjects(services, inbox_id=inbox.id)
    assert ["Gone"] == await subjects(services, mailbox="trash")
    assert ["Junk"] == await subjects(services, mailbox="Junk")
    assert ["Junk", "Gone", "Kept"] == await subjects(services, mailbox="*")
    assert [] == await subjects(services, mailbox="Nowhere")
    assert await services.store.message(gone.message_id, EVERYTHING) is not None


async def test_dates_bound_from_inclusive_to_exclusive(services: Services, inbox: Inbox) -> None:
    for day in (1, 2, 3):
        await deliver(services, inbox, mail(f"Day {day}", date=datetime(2026, 1, day, tzinfo=UTC)))

    second, third = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
    assert ["Day 2"] == await subjects(services, after=second, before=third)
    assert ["Day 3", "Day 2"] == await subjects(services, after=second)


async def test_has_attachment_ignores_inline_images(services: Services, inbox: Inbox) -> None:
    await deliver(services, inbox, mail("File", attachments=[("a.txt", "text/plain", b"a")]))
    await deliver(services, inbox, mail("None"))

    assert ["File"] == await subjects(services, has_attachment=True)
    assert ["None"] == await subjects(services, has_attachment=False)


async def test_unknown_and_invisible_scopes_are_not_found(services: Services, inbox: Inbox) -> None:
    other = await new_inbox(services, "other")
    added = await deliver(services, inbox, mail())
    visible = only(other.id)

    for query in (
        MessageQuery(visible=EVERYTHING, inbox_id="inb_no"),
        MessageQuery(visible=EVERYTHING, thread_id="thr_no"),
        MessageQuery(visible=visible, inbox_id=inbox.id),
        MessageQuery(visible=visible, thread_id=added.thread_id),
    ):
        with pytest.raises(NotFound):
            await services.store.messages(query)
    assert [] == await subjects(services, visible=visible)
    assert [] == await subjects(services, inbox_id=other.id, thread_id=added.thread_id)


async def test_newest_first_and_ties_by_later_arrival(services: Services, inbox: Inbox) -> None:
    same = datetime(2026, 1, 1, tzinfo=UTC)
    await deliver(services, inbox, mail("First", date=same))
    await deliver(services, inbox, mail("Second", date=same))
    await deliver(services, inbox, mail("Older", date=datetime(2025, 1, 1, tzinfo=UTC)))

    assert ["Second", "First", "Older"] == await subjects(services, inbox_id=inbox.id)


async def test_an_excerpt_shows_the_match_as_it_was_written(
    services: Services, inbox: Inbox
) -> None:
    text = "word " * 100 + "The Needle\nis here " + "more " * 100
    await deliver(services, inbox, mail("Long", text))

    found = await services.store.messages(MessageQuery(visible=EVERYTHING, q="needle is"))

    excerpt = found.rows[0].excerpt or ""
    assert "The Needle is here" in excerpt
    assert len(excerpt) <= 160


@pytest.mark.parametrize(
    ("text", "q", "shown"),
    [
        ("Die Straße am Fluß", "STRASSE", "Die Straße am Fluß"),
        ("ﬁne ﬁsh ﬂoat by", "float", "ﬁne ﬁsh ﬂoat by"),
        ("zero\u200bwidth İstanbul", "istanbul", None),
        ("Am Ende der Straße", "trasse", "Am Ende der Straße"),
    ],
)
async def test_an_excerpt_never_alters_the_words_of_a_mail(
    services: Services, inbox: Inbox, text: str, q: str, shown: str | None
) -> None:
    await deliver(services, inbox, mail("Words", text))

    found = await services.store.messages(MessageQuery(visible=EVERYTHING, q=fold(q)))

    assert [shown] == [row.excerpt for row in found.rows] or shown is None


async def test_an_excerpt_of_mail_without_a_sender_shows_the_file_that_matched(
    services: Services, inbox: Inbox
) -> None:
    raw = mail("Words", "text", attachments=[("Report Ä.pdf", "application/pdf", b"%PDF")])
    lines = [line for line in raw.splitlines(keepends=True) if not line.startswith(b"From:")]
    await deliver(services, inbox, b"".join(lines))

    found = await services.store.messages(MessageQuery(visible=EVERYTHING, q=fold("report ä")))

    assert ["Report Ä.pdf"] == [row.excerpt for row in found.rows]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    days=st.lists(st.integers(1, 5), min_size=1, max_size=14),
    limit=st.integers(1, 5),
    late=st.integers(0, 3),
)
async def test_pages_by_cursor_neither_skip_nor_repeat_while_mail_arrives(
    services: Services, days: list[int], limit: int, late: int
) -> None:
    inbox = await new_inbox(services, f"box{services.new_id('x')[2:12]}")
    for number, day in enumerate(days):
        await deliver(services, inbox, mail(f"{number}", date=datetime(2026, 1, day, tzinfo=UTC)))
    expected = [row.id for row in (await services.store.messages(_all(inbox))).rows]

    seen: list[str] = []
    page = await services.store.messages(_all(inbox, limit))
    while True:
        seen += [row.id for row in page.rows]
        if page.next is None:
            break
        for _ in range(late):
            await deliver(services, inbox, mail("late", date=datetime(2026, 2, 1, tzinfo=UTC)))
        page = await services.store.messages(_all(inbox, limit, page.next))

    assert expected == seen


def _all(
    inbox: Inbox, limit: int = 100, after: tuple[int | str, ...] | None = None
) -> MessageQuery:
    return MessageQuery(visible=EVERYTHING, inbox_id=inbox.id, page=Slice(limit=limit, after=after))


async def test_an_offset_past_the_end_is_an_empty_page_with_the_true_total(
    services: Services, inbox: Inbox
) -> None:
    await deliver(services, inbox, mail())

    found = await services.store.messages(
        MessageQuery(visible=EVERYTHING, page=Slice(limit=10, offset=99))
    )

    assert ((), 1, 99, None) == (found.rows, found.total, found.offset, found.next)
