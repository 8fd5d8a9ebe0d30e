"""Filters, modes and orders of lists and searches; inboxes named by address."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postroom.calls.context import RequestContext, parse_request
from postroom.calls.operation import call
from postroom.errors import InvalidInput, NotFound
from postroom.mail.text.fold import words_of
from postroom.model.inbox import Inbox
from postroom.model.key import Caller, Scope
from postroom.model.view import NOTHING, only
from postroom.operations.agent.finding import FindMail
from postroom.operations.inboxes import get_inbox
from postroom.operations.keys import create_key
from postroom.operations.mail.attachments import list_attachments
from postroom.operations.mail.bulk_changes import update_messages
from postroom.operations.mail.message_changes import (
    apply_label,
    delete_label,
    list_labels,
    list_mailboxes,
    move_message,
    rename_label,
    update_message,
)
from postroom.operations.mail.message_selection import find_page
from postroom.operations.mail.messages import get_message, list_messages, search_messages
from postroom.operations.mail.threads import list_threads
from postroom.operations.outgoing.identities import list_identities
from postroom.operations.outgoing.sending import reply_to_message
from postroom.operations.rules import create_rule
from postroom.operations.webhooks import list_events
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import compact
from tests.mails import deliver, mail, new_inbox

START = datetime(2026, 3, 1, tzinfo=UTC)
MAILS = (
    ("Invoice March", "The total is 42 euros.", "Ana Lee <ana@example.com>"),
    ("Lunch", "Bring the invoice of March, please.", "Bo <bo@example.org>"),
    ("Report", "Quarterly numbers.", "Ana Ng <ng@example.com>"),
    ("Invoice April", "The office paid.", "Cy Lee <lee.cy@example.net>"),
)


@pytest.fixture
async def filled(ctx: RequestContext, inbox: Inbox) -> dict[str, str]:
    """The ids of some mails by subject, oldest first."""
    found = {}
    for day, (subject, text, sender) in enumerate(MAILS):
        raw = mail(subject, text, sender=sender, date=START + timedelta(days=day))
        found[subject] = (await deliver(ctx, inbox, raw)).message_id
    return found


async def subjects(ctx: RequestContext, **arguments: Any) -> list[str]:
    """The results of a search; a list of the inbox must have the same."""
    searched = await call(ctx, search_messages, arguments)
    if "inbox_id" in arguments:
        listed = await call(ctx, list_messages, arguments)
        assert [row.id for row in searched.results] == [row.id for row in listed.results]
        assert searched.hint == listed.hint
    return [row.subject for row in searched.results]


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("march invoice", ["Lunch", "Invoice March"]),
        ("invoice of march", ["Lunch"]),
        ('"of march" invoice', ["Lunch"]),
        ('"march of" invoice', []),
        ("ana 42", ["Invoice March"]),
        ("lee INVOICE", ["Invoice April", "Invoice March"]),
        ("quart num", ["Report"]),
        ('"lunch', ["Lunch"]),
        ("invoice nowhere", []),
    ],
)
async def test_words_match_in_any_order_and_field(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str], q: str, expected: list[str]
) -> None:
    assert expected == await subjects(ctx, inbox_id=inbox.id, q=q, mode="words")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("in invoice", ("invoice",)),
        ('"a b" a b', ("a b",)),
        ('"', ('"',)),
        ('""', ('""',)),
        ('say "yes', ("say", "yes")),
        ('5" disk', ("5", "disk")),
    ],
)
def test_the_words_of_a_text(text: str, words: tuple[str, ...]) -> None:
    assert words == words_of(text)


async def test_more_than_32_words_are_refused(ctx: RequestContext, inbox: Inbox) -> None:
    words = [f"{chr(97 + n // 10)}{n % 10}" for n in range(33)]

    await call(ctx, search_messages, {"q": " ".join(words[:32]), "mode": "words"})
    with pytest.raises(InvalidInput, match="33 words; the limit is 32"):
        await call(ctx, search_messages, {"q": " ".join(words), "mode": "words"})


@pytest.mark.parametrize("mode", ["exact", "words"])
async def test_an_empty_page_for_several_words_has_a_hint(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str], mode: str
) -> None:
    async def hint(q: str) -> str | None:
        page = await call(ctx, search_messages, {"q": q, "mode": mode})
        return page.hint

    assert "mode=hybrid" in (await hint("april lunch") or "")
    assert await hint("nothing") is None
    assert await hint("invoice") is None


async def test_unread_flags_and_subject_filter(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    for subject, flags in (("Lunch", ["seen"]), ("Report", ["seen", "flagged"])):
        await call(ctx, update_message, {"message_id": filled[subject], "flags": flags})

    here = {"inbox_id": inbox.id}
    assert ["Invoice April", "Invoice March"] == await subjects(ctx, **here, unread=True)
    assert ["Report", "Lunch"] == await subjects(ctx, **here, unread=False)
    assert ["Report"] == await subjects(ctx, **here, flags=["flagged"])
    assert ["Report"] == await subjects(ctx, **here, flags=["seen", "flagged"])
    assert [] == await subjects(ctx, **here, flags=["flagged"], unread=True)
    assert ["Invoice April", "Invoice March"] == await subjects(ctx, subject="INVOICE")
    assert ["Invoice April"] == await subjects(ctx, subject="invoice", after_date="2026-03-02")


async def test_flags_in_segments_change_with_the_message(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    while await compact(ctx.store.engine, MergePolicy(buffer_docs=1)):
        pass
    await call(ctx, update_message, {"message_id": filled["Lunch"], "flags": ["seen"]})
    await call(ctx, reply_to_message, {"message_id": filled["Report"], "body_text": "Thanks."})

    assert ["Report"] == await subjects(ctx, inbox_id=inbox.id, flags=["answered"])
    assert () == await ctx.store.problems()


async def test_the_oldest_come_first_and_a_cursor_reads_on(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    arguments = {"inbox_id": inbox.id, "sort": "oldest", "limit": 3}
    first = await call(ctx, list_messages, arguments)
    early = mail("Before all", date=START - timedelta(days=9))
    await deliver(ctx, inbox, early)
    second = await call(ctx, list_messages, {**arguments, "cursor": first.next_cursor})

    assert [subject for subject, *_ in MAILS[:3]] == [row.subject for row in first.results]
    assert ["Invoice April"] == [row.subject for row in second.results]
    assert 4 == second.offset
    with pytest.raises(InvalidInput, match="cursor"):
        await call(ctx, list_messages, {**arguments, "sort": "newest", "cursor": first.next_cursor})


async def test_a_ranked_list_has_no_other_order(ctx: RequestContext, inbox: Inbox) -> None:
    with pytest.raises(InvalidInput, match="hybrid sorts by relevance"):
        await call(ctx, search_messages, {"q": "x", "mode": "hybrid", "sort": "oldest"})


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        ("lee ana", ["Invoice March"]),
        ("cy lee", ["Invoice April"]),
        ("lee @example.net", ["Invoice April"]),
        ("ana@example.com", ["Invoice March"]),
        ("ana", ["Report", "Invoice March"]),
    ],
)
async def test_the_words_of_a_sender_are_in_name_or_address(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str], sender: str, expected: list[str]
) -> None:
    request = parse_request(FindMail, {"from": sender})

    page = await find_page(ctx, request)

    assert expected == [row.subject for row in page.results]


READS: list[Any] = [
    *(get_inbox, list_messages, search_messages, list_threads, list_attachments),
    *(list_mailboxes, list_identities, list_events),
]


@pytest.mark.parametrize("operation", READS, ids=lambda operation: operation.name)
async def test_an_inbox_is_known_by_its_address(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str], operation: Any
) -> None:
    by_id = await call(ctx, operation, {"inbox_id": inbox.id})

    assert by_id == await call(ctx, operation, {"inbox_id": inbox.address})
    assert by_id == await call(ctx, operation, {"inbox_id": inbox.address.upper()})


@pytest.mark.parametrize("operation", READS, ids=lambda operation: operation.name)
async def test_an_address_that_a_key_may_not_see_is_unknown(
    ctx: RequestContext, inbox: Inbox, operation: Any
) -> None:
    other = await new_inbox(ctx, "other")
    limited = _limited(ctx, inbox, Scope.READ)

    async def refusal(name: str) -> str:
        try:
            return repr(await call(limited, operation, {"inbox_id": name}))
        except NotFound as error:
            return str(error).replace(name, "…")

    assert await refusal("nobody@example.com") == await refusal(other.address)
    assert await refusal("inb_unknown") == await refusal(other.address)


def _limited(ctx: RequestContext, inbox: Inbox, *scopes: Scope) -> RequestContext:
    """The context of a key that sees one inbox."""
    view = only(inbox.id)
    caller = Caller("key_x", frozenset(scopes), inboxes=view, accounts=NOTHING, namespaces=NOTHING)
    return replace(ctx, caller=caller)


async def test_keys_and_rules_name_an_inbox_by_its_address(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    key = await call(ctx, create_key, {"name": "crm", "inboxes": [inbox.address]})
    yaml = f"inbox: {inbox.address}\nwhen: {{subject: Lunch}}\nthen: [mark_read]"
    plan = await call(ctx, create_rule, {"rule_yaml": yaml})

    assert only(inbox.id) == key.inboxes
    assert [filled["Lunch"]] == [row["message_id"] for row in plan.matched_messages]


async def test_mailboxes_are_counted(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    for subject, destination in (("Lunch", "Trash"), ("Report", "Projects")):
        await call(ctx, move_message, {"message_id": filled[subject], "destination": destination})
    await call(ctx, update_message, {"message_id": filled["Report"], "flags": ["seen"]})

    page = await call(ctx, list_mailboxes, {"inbox_id": inbox.id})

    counts = {row.name: (row.total, row.unread) for row in page.results}
    assert (2, 2) == counts["Inbox"]
    assert (1, 1) == counts["Trash"]
    assert (1, 0) == counts["Projects"]
    assert (0, 0) == counts["Outbox"]
    assert page.total == len(page.results) == 8


@pytest.mark.parametrize(
    ("name", "standard"),
    [
        *(("Deleted Items", "Trash"), ("deleted messages", "Trash"), ("Bin", "Trash")),
        *(("SPAM", "Junk"), ("Junk E-mail", "Junk"), ("Sent Items", "Sent")),
        *(("Sent Messages", "Sent"), ("All Mail", "Archive"), ("[Gmail]/All Mail", "Archive")),
        *(("[Gmail]/Trash", "Trash"), ("[Google Mail]/Bin", "Trash"), (" trash ", "Trash")),
        *(("Projects", "Projects"), ("Binders", "Binders")),
    ],
)
async def test_well_known_names_mean_the_standard_mailboxes(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str], name: str, standard: str
) -> None:
    message_id, other_id = filled["Lunch"], filled["Report"]
    await call(ctx, move_message, {"message_id": message_id, "destination": name})
    await call(ctx, update_messages, {"message_ids": [other_id], "mailbox": name})
    message = await call(ctx, get_message, {"message_id": message_id})
    other = await call(ctx, get_message, {"message_id": other_id})

    assert (standard,) == message.mailboxes == other.mailboxes
    assert {"Lunch", "Report"} == set(await subjects(ctx, inbox_id=inbox.id, mailbox=name))


async def test_a_label_is_renamed_into_another_and_removed(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    ids = list(filled.values())
    await call(ctx, apply_label, {"message_ids": ids[:3], "label": "Work"})
    await call(ctx, apply_label, {"message_ids": ids[2:], "label": "Projects"})
    renamed = await call(ctx, rename_label, {"label": "WORK", "name": "projects"})
    labels = await call(ctx, list_labels, {})
    await call(ctx, delete_label, {"label": "Projects"})

    assert 4 == renamed.message_count
    assert [("Projects", 4)] == [(row.name, row.message_count) for row in labels.results]
    assert 0 == (await call(ctx, list_labels, {})).total


async def test_labels_of_others_are_unknown(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    other = await new_inbox(ctx, "other")
    await call(ctx, apply_label, {"message_ids": [filled["Lunch"]], "label": "Work"})
    limited = _limited(ctx, other, Scope.READ, Scope.WRITE)

    for operation, more in ((delete_label, {}), (rename_label, {"name": "New"})):
        with pytest.raises(NotFound, match="no label Work"):
            await call(limited, operation, {"label": "Work", **more})
    assert ["Lunch"] == await subjects(ctx, labels=["Work"])


async def test_a_label_cannot_be_renamed_to_itself(
    ctx: RequestContext, inbox: Inbox, filled: dict[str, str]
) -> None:
    await call(ctx, apply_label, {"message_ids": [filled["Lunch"]], "label": "Work"})

    with pytest.raises(InvalidInput, match="without case"):
        await call(ctx, rename_label, {"label": "Work", "name": "work"})
