"""Contract 002: searching a live mailbox."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.live_imap import Agent, agent_over_stdio, id_of
from tests.contract.requirements import requirement
from tests.mails import mail
from tests.servers.dovecot import Dovecot
from tests.servers.imaplib_client import ImaplibMailbox

ROW = {"message_id", "mailbox", "uidvalidity", "uid", "date", "from", "subject", "flags"}
DATA = {
    *("status", "issues", "next_action", "account_id", "mailbox", "total", "attempted"),
    *("returned", "failed", "messages", "has_more"),
}


def subjects(data: dict[str, Any]) -> list[str]:
    return [row["subject"] for row in data["messages"]]


@requirement("imap:search")
async def test_a_page_is_newest_first_with_its_counts(agent: Agent, box: ImaplibMailbox) -> None:
    uids = [box.append(mail(f"Mail {n}"), [r"\Seen"] if n else []) for n in range(3)]

    body = await agent.call("imap_search_messages", mailbox=box.name)

    data = body["data"]
    assert body["untrusted"]
    assert f"3 of 3 matches in {box.name}" == body["summary"]
    assert DATA == data.keys()
    assert ("ok", [], "default", box.name) == (
        data["status"],
        data["issues"],
        data["account_id"],
        data["mailbox"],
    )
    assert [3, 3, 3, 0] == [data[n] for n in ("total", "attempted", "returned", "failed")]
    assert not data["has_more"]
    assert ["Mail 2", "Mail 1", "Mail 0"] == subjects(data)
    newest = data["messages"][0]
    assert ROW == newest.keys()
    assert (id_of(box, uids[2]), box.name, box.uidvalidity, uids[2]) == (
        newest["message_id"],
        newest["mailbox"],
        newest["uidvalidity"],
        newest["uid"],
    )
    assert ("2026-03-01T09:00:00Z", "Ana Lee <ana@example.com>") == (newest["date"], newest["from"])
    assert r"\Seen" in newest["flags"]
    assert ("imap_get_message", newest["message_id"]) == (
        data["next_action"]["tool"],
        data["next_action"]["arguments"]["message_id"],
    )


@requirement("imap:search-criteria")
@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ({"query": "deep inside"}, {"Eins"}),
        ({"query": "ÜBERALL"}, {"Zwei"}),
        ({"from": "Ana"}, {"Eins", "Drei"}),
        ({"to": "cleo@"}, {"Drei"}),
        ({"subject": "zwei"}, {"Zwei"}),
        ({"subject": "ei", "from": "ana"}, {"Eins", "Drei"}),
        ({"unread_only": True}, {"Zwei", "Drei"}),
        ({"unread_only": "true"}, {"Zwei", "Drei"}),
        ({"unread_only": False}, {"Eins", "Zwei", "Drei"}),
        ({"start_date": "2026-02-02"}, {"Zwei", "Drei"}),
        ({"end_date": "2026-02-02"}, {"Eins", "Zwei"}),
        ({"start_date": "2026-02-02", "end_date": "2026-02-02"}, {"Zwei"}),
        ({"subject": '" OR ALL "'}, set()),
    ],
)
async def test_each_criterion_narrows_the_search(
    agent: Agent, box: ImaplibMailbox, criteria: dict[str, Any], expected: set[str]
) -> None:
    day = datetime(2026, 2, 1, 12, tzinfo=UTC)
    box.append(mail("Eins", "Hidden deep inside.", sender="Ana <a@x.org>"), [r"\Seen"], day)
    box.append(mail("Zwei", "Es ist überall.", sender="b@x.org"), at=day + timedelta(days=1))
    box.append(mail("Drei", sender="ana@x.org", to="cleo@x.org"), at=day + timedelta(days=2))

    data = await agent.data("imap_search_messages", mailbox=box.name, **criteria)

    assert expected == set(subjects(data))
    assert len(expected) == data["total"]


@requirement("imap:search-days")
async def test_last_days_counts_back_from_today(agent: Agent, box: ImaplibMailbox) -> None:
    now = datetime.now(UTC)
    box.append(mail("Old"), at=now - timedelta(days=10))
    box.append(mail("New"), at=now - timedelta(days=2))

    data = await agent.data("imap_search_messages", mailbox=box.name, last_days=5)

    assert ["New"] == subjects(data)


@requirement("imap:search-cursor")
@requirement("imap:limit")
async def test_a_cursor_continues_and_can_be_used_twice(agent: Agent, box: ImaplibMailbox) -> None:
    for number in range(25):
        box.append(mail(f"Mail {number}", "word"))

    first = await agent.data("imap_search_messages", mailbox=box.name, query="word")
    box.append(mail("Newer", "word"))
    second = await agent.data("imap_search_messages", mailbox=box.name, cursor=first["next_cursor"])
    again = await agent.data("imap_search_messages", mailbox=box.name, cursor=first["next_cursor"])
    third = await agent.data(
        "imap_search_messages", mailbox=box.name, cursor=second["next_cursor"], limit=50
    )

    assert (10, 25, True) == (first["returned"], first["total"], first["has_more"])
    step = first["next_action"]
    assert ("imap_search_messages", first["next_cursor"]) == (
        step["tool"],
        step["arguments"]["cursor"],
    )
    assert second == again
    assert (5, 25, False) == (third["returned"], third["total"], third["has_more"])
    assert "next_cursor" not in third
    shown = subjects(first) + subjects(second) + subjects(third)
    assert [f"Mail {number}" for number in range(24, -1, -1)] == shown


@requirement("imap:search-cursor")
async def test_a_cursor_survives_a_restart_of_the_server(
    tmp_path: Path, variables: dict[str, str], box: ImaplibMailbox
) -> None:
    for number in range(3):
        box.append(mail(f"Größe {number}"))
    async with agent_over_stdio(tmp_path, variables) as one:
        first = await one.data(
            "imap_search_messages", mailbox=box.name, limit=2, subject="größe", last_days=3
        )
    async with agent_over_stdio(tmp_path, variables) as two:
        rest = await two.data("imap_search_messages", mailbox=box.name, cursor=first["next_cursor"])

    assert ["Größe 2", "Größe 1"] == subjects(first)
    assert ["Größe 0"] == subjects(rest)


@requirement("imap:search-cursor")
async def test_a_cursor_of_a_recreated_mailbox_is_a_conflict(
    agent: Agent, box: ImaplibMailbox
) -> None:
    for number in range(3):
        box.append(mail(f"Mail {number}"))
    first = await agent.data("imap_search_messages", mailbox=box.name, limit=1)
    box.recreate()
    box.append(mail("New"))

    error = await agent.error("imap_search_messages", mailbox=box.name, cursor=first["next_cursor"])

    assert "conflict" == error["code"]
    assert "search again" in error["message"]


@requirement("imap:search-cursor")
@pytest.mark.parametrize(
    "criterion",
    [
        {"query": "x"},
        {"from": "x"},
        {"to": "x"},
        {"subject": "x"},
        {"unread_only": False},
        {"last_days": 1},
        {"start_date": "2026-01-01"},
        {"end_date": "2026-01-01"},
    ],
    ids=lambda criterion: next(iter(criterion)),
)
async def test_a_cursor_excludes_every_criterion(
    agent: Agent, box: ImaplibMailbox, criterion: dict[str, Any]
) -> None:
    for number in range(2):
        box.append(mail(f"Mail {number}"))
    first = await agent.data("imap_search_messages", mailbox=box.name, limit=1)

    error = await agent.error(
        "imap_search_messages", mailbox=box.name, cursor=first["next_cursor"], **criterion
    )

    assert "invalid_input" == error["code"]
    assert f"cursor cannot be combined with {next(iter(criterion))}" in error["message"]


@requirement("imap:search-cursor")
async def test_a_forged_or_foreign_cursor_is_refused(
    agent: Agent, box: ImaplibMailbox, other_box: ImaplibMailbox
) -> None:
    for number in range(2):
        box.append(mail(f"Mail {number}"))
    cursor = (await agent.data("imap_search_messages", mailbox=box.name, limit=1))["next_cursor"]
    forged = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")

    for wrong in (forged, "nonsense", cursor[:20]):
        error = await agent.error("imap_search_messages", mailbox=box.name, cursor=wrong)
        assert "invalid_input" == error["code"]
    foreign = await agent.error("imap_search_messages", mailbox=other_box.name, cursor=cursor)
    other = await agent.error(
        "imap_search_messages", mailbox=box.name, account_id="work", cursor=cursor
    )

    assert ["invalid_input"] * 2 == [foreign["code"], other["code"]]
    assert box.name in foreign["message"]


@requirement("imap:search-snippet")
async def test_snippets_come_from_the_text_and_are_as_long_as_asked(
    agent: Agent, box: ImaplibMailbox
) -> None:
    box.append(mail("Plain", "The quick brown fox.\n" + "jumps over " * 100))
    box.append(mail("Only HTML", None, html="<style>p{}</style><p>Seen <b>text</b></p>"))

    without = await agent.data("imap_search_messages", mailbox=box.name)
    default = await agent.data("imap_search_messages", mailbox=box.name, include_snippet=True)
    short, long = [
        await agent.data(
            "imap_search_messages", mailbox=box.name, include_snippet=True, snippet_max_chars=chars
        )
        for chars in (50, 500)
    ]

    assert not any("snippet" in row for row in without["messages"])
    html, plain = (row["snippet"] for row in default["messages"])
    assert plain.startswith("The quick brown fox. jumps over")
    assert len(plain) <= 200
    assert "Seen text" == html
    assert len(short["messages"][1]["snippet"]) <= 50
    assert 400 < len(long["messages"][1]["snippet"]) <= 500


REFUSED = [
    ("imap:mailbox", {"mailbox": ""}, "mailbox"),
    ("imap:mailbox", {"mailbox": "x" * 257}, "mailbox"),
    ("imap:mailbox", {"mailbox": "a\r\nb"}, "control characters"),
    ("imap:mailbox", {"mailbox": None}, "mailbox"),
    ("imap:search-text", {"query": ""}, "query"),
    ("imap:search-text", {"query": "x" * 257}, "query"),
    ("imap:search-text", {"from": "x" * 257}, "from"),
    ("imap:search-text", {"to": "a\x00b"}, "to"),
    ("imap:search-text", {"subject": "a\tb"}, "control characters"),
    ("imap:search-text", {"subject": "a\x7fb"}, "control characters"),
    ("imap:search-days", {"last_days": 0}, "last_days"),
    ("imap:search-days", {"last_days": 366}, "last_days"),
    ("imap:search-days", {"last_days": 3, "start_date": "2026-01-01"}, "last_days cannot"),
    ("imap:search-days", {"last_days": 3, "end_date": "2026-01-01"}, "last_days cannot"),
    ("imap:search-dates", {"start_date": "2026-1-1"}, "2026-01-31"),
    ("imap:search-dates", {"start_date": "2026-02-30"}, "2026-01-31"),
    ("imap:search-dates", {"end_date": "01.02.2026"}, "2026-01-31"),
    ("imap:search-dates", {"end_date": "2026-01-01T00:00:00Z"}, "2026-01-31"),
    ("imap:search-dates", {"start_date": "2026-02-02", "end_date": "2026-02-01"}, "not be after"),
    ("imap:limit", {"limit": 0}, "limit"),
    ("imap:limit", {"limit": 51}, "limit"),
    ("imap:limit", {"limit": "many"}, "limit"),
    ("imap:search-snippet", {"snippet_max_chars": 100}, "needs include_snippet"),
    (
        "imap:search-snippet",
        {"snippet_max_chars": 100, "include_snippet": False},
        "needs include_snippet",
    ),
    ("imap:search-snippet", {"snippet_max_chars": 49, "include_snippet": True}, "snippet_max"),
    ("imap:search-snippet", {"snippet_max_chars": 501, "include_snippet": True}, "snippet_max"),
    ("imap:search-cursor", {"cursor": ""}, "cursor"),
    ("imap:tools", {"mailboxes": "x"}, "did you mean mailbox?"),
]


@requirement("imap:mailbox")
@requirement("imap:search-text")
@requirement("imap:search-dates")
@pytest.mark.parametrize(("rule", "arguments", "said"), REFUSED)
async def test_invalid_criteria_are_refused_before_anything_is_sent(
    agent: Agent, rule: str, arguments: dict[str, Any], said: str
) -> None:
    error = await agent.error("imap_search_messages", **{"mailbox": "INBOX", **arguments})

    assert "invalid_input" == error["code"]
    assert said in error["message"]


@requirement("imap:mailbox")
@requirement("imap:search-text")
async def test_lengths_are_counted_in_characters(agent: Agent, box: ImaplibMailbox) -> None:
    box.append(mail("x", "ü" * 256))

    data = await agent.data("imap_search_messages", mailbox=box.name, query="ü" * 256)
    missing = await agent.data("imap_search_messages", mailbox="日" * 256)

    assert 1 == data["total"]
    assert ("failed", "not_found") == (missing["status"], missing["issues"][0]["code"])


@requirement("imap:soft")
async def test_a_missing_mailbox_is_reported_in_data(agent: Agent) -> None:
    body = await agent.call("imap_search_messages", mailbox="No Such Mailbox")

    data = body["data"]
    assert DATA == data.keys()
    assert "failed" == data["status"]
    assert ["not_found"] == [issue["code"] for issue in data["issues"]]
    assert "imap_list_mailboxes" == data["next_action"]["tool"]
    assert body["summary"].startswith("The search in No Such Mailbox failed")


@pytest.fixture(scope="session")
def many(dovecot: Dovecot) -> str:
    """A mailbox of 20,001 messages."""
    raw = mail("One of many", "Some words.").replace(b"\n", b"\r\n")
    dovecot.fill("alice", "Many", 20_001, raw)
    return "Many"


@requirement("imap:search-many")
async def test_more_than_twenty_thousand_matches_are_refused(agent: Agent, many: str) -> None:
    error = await agent.error("imap_search_messages", mailbox=many)
    narrow = await agent.data("imap_search_messages", mailbox=many, subject="none of them")

    assert "invalid_input" == error["code"]
    assert "20001 messages match" in error["message"]
    assert {"kind": "invalid_input", "total": 20_001, "most": 20_000} == error["details"]
    assert ("ok", 0) == (narrow["status"], narrow["total"])
