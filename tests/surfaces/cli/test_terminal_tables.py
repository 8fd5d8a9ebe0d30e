"""Tables on a terminal fit and are aligned, and their short ids can be typed."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from postroom.surfaces.cli.lists import COLUMNS, TERMINAL
from postroom.surfaces.cli.tables import (
    Screen,
    columns_of,
    lines_of,
    local_time,
    short_ids,
    wrapped,
)
from postroom.surfaces.to_json import public_fields
from tests.mails import mail
from tests.surfaces.cli.pseudo_terminal import lines_on_a_terminal

SUBJECTS = [
    "Short",
    "A subject that is much longer than any terminal of eighty columns, and goes on and on",
    "瓦の見本について、とても長い件名がここに続きます。まだまだ続きます。まだまだ続きます。",
    "🎉🎉 Party 🎈 with a lot of pictures 🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂🎂",
    "Control \x1b[31m red \u202e reversed \u200b",
]
LISTS = [
    "message list bo@postroom.localhost",
    "thread list",
    "inbox list",
    "attachment list --inbox-id bo@postroom.localhost",
    "mailbox list",
    "label list",
    "events list",
    "audit list",
    "key list",
    "draft list",
    "outbox list",
    "webhook list",
    "memory list",
    "identity list",
    "rule list",
]


@pytest.fixture
def mails(postroom, receive) -> list[str]:
    """The ids of mails with difficult subjects; other lists have rows as well."""
    files = [("a very long name of a file 瓦 " * 4 + ".pdf", "application/pdf", b"%PDF")]
    found = []
    for number, subject in enumerate(SUBJECTS):
        sender = f"{'佐藤 由紀' if number % 2 else 'Somebody With A Long Name'} <a@long.example>"
        raw = mail(subject, sender=sender, attachments=files if number else ())
        found.append(receive(raw)["message_id"])
    postroom("message", "label", "A label that is long 瓦", *found[:2])
    postroom(
        "key",
        "create",
        "a key with a long name",
        "--scope",
        "read",
        "--inbox",
        "bo@postroom.localhost",
    )
    later = ("--send-at", f"{datetime.now(UTC).year + 1}-01-01")
    words = ("--to", "someone.with.a.long.address@else.example", "--subject", SUBJECTS[2])
    postroom("draft", "create", *words, "--text", "x")
    postroom("send", *words, "--text", "x", *later)
    postroom("webhook", "create", "https://example.com/" + "x" * 90)
    postroom("memory", "add", "a/key/" + "y" * 60, "A text " * 30)
    rule = "version: 1\nname: A long name of a rule\nwhen: [{subject: {contains: x}}]\nthen: [stop]"
    postroom("rule", "create", rule, "--no-dry-run")
    return found


@pytest.mark.parametrize("columns", [80, 100, 40])
def test_every_list_fits_the_terminal(data, mails, columns):
    for words in LISTS:
        lines = lines_on_a_terminal(data, *words.split(), columns=columns)

        assert len(lines) > 1, words
        assert max(map(cell_len, lines)) <= columns, (words, lines)
        assert set() == set("".join(lines)) & set("\x1b\u202e\u200b"), words


@pytest.mark.parametrize("columns", [80, 100])
def test_columns_are_aligned_whatever_the_width_of_characters(data, mails, columns):
    title, *rows = lines_on_a_terminal(
        data, "message", "list", "bo@postroom.localhost", columns=columns
    )

    at = title.index("from")
    starts = {cell_len(row.partition("Somebody")[0].partition("佐藤")[0]) for row in rows[1:]}
    assert {at} == starts
    subject = next(row for row in rows if "A subject that" in row)
    assert cell_len(subject.partition("A subject")[0]) == title.index("subject")
    assert len(rows[-1].rstrip()) <= columns


def test_a_list_shows_names_symbols_and_the_local_time(data, inbox, receive):
    receive(mail("Hello", sender="Ana Lee <ana@example.com>", attachments=[("a", "a/b", b"x")]))

    [_, row] = lines_on_a_terminal(
        data, "message", "list", inbox["address"], columns=80, TZ="Etc/GMT-14"
    )

    assert re.fullmatch(r"[0-9a-z]{7}  Mar  1  N\+  Ana Lee  Hello", row)


def test_every_command_accepts_the_ids_of_a_table(data, postroom, mails):
    table = lines_on_a_terminal(data, "message", "list", "bo@postroom.localhost", columns=80)
    shown = [row.split()[0] for row in table[2:]]

    for short, whole in zip(shown, reversed(mails), strict=True):
        assert whole == postroom("message", "show", short, "-o", "json").json["id"]
        assert whole == postroom("message", "show", f"msg_{short}", "-o", "json").json["id"]
    assert 0 == postroom("message", "flag", shown[0], "seen").code
    assert 0 == postroom("message", "label", "Work", *shown).code
    assert ["Work"] == postroom("message", "show", mails[-1], "-o", "json").json["labels"]


@pytest.mark.parametrize(
    ("listing", "reading"),
    [
        ("thread list", "thread show"),
        ("inbox list", "inbox show"),
        ("attachment list --inbox-id bo@postroom.localhost", "attachment show"),
        ("draft list", "draft show"),
        ("rule list", "rule show"),
        ("webhook list", "webhook deliveries"),
        ("identity list", "identity update --name Bo"),
        ("outbox list", "message show"),
        ("key list", "key delete"),
    ],
)
def test_short_ids_of_every_kind_are_accepted(data, postroom, mails, listing, reading):
    table = lines_on_a_terminal(data, *listing.split(), columns=80)
    at = -1 if listing == "key list" else 1
    short = table[at].split()[0]

    assert len(short) == 7
    assert 0 == postroom(*reading.split(), short).code


def test_a_short_id_that_could_be_several_is_refused(postroom, receive, monkeypatch):
    numbers = iter(range(1, 1_000))
    alike = SimpleNamespace(token_bytes=lambda _: b"alike" + next(numbers).to_bytes(2) + b"-")
    monkeypatch.setattr("postroom.model.page.secrets", alike)
    first, second = (receive(mail())["message_id"] for _ in range(2))

    refused = postroom("message", "show", first[4:11])
    clear = postroom("message", "show", first[4:])

    assert (2, 0) == (refused.code, clear.code)
    assert f"{first[4:11]} is ambiguous: " in refused.err
    assert first in refused.err
    assert second in refused.err
    assert "type more characters" in refused.err


@pytest.mark.parametrize("unknown", ["zzzzzzz", "msg_zzzzzzz", "thr_zzzzzzz", "zz", "msg_"])
def test_an_unknown_short_id_is_reported_as_unknown(postroom, inbox, unknown):
    refused = postroom("message", "show", unknown)

    assert refused.code in (2, 3)
    assert unknown in refused.err


def test_wide_shows_everything(data, postroom, mails):
    title, *rows = lines_on_a_terminal(
        data, "message", "list", "bo@postroom.localhost", "--wide", columns=80
    )
    text = "\n".join(rows)

    for whole in mails:
        assert whole in text
    assert SUBJECTS[1] in text
    assert {"thread", "snippet", "mailboxes"} <= set(title.split())
    piped = postroom("search", "--wide", "--from", "long.example").out.splitlines()
    assert len(piped[0].split("\t")) > len(COLUMNS) / 2
    assert SUBJECTS[1] in "\n".join(piped)


def test_every_column_is_a_field_or_has_a_format():
    for kind, spec in TERMINAL.items():
        fields = {name for name, _ in public_fields(kind)}
        assert set(columns_of(spec)) - {"who", "marks"} <= fields, kind
        assert set(COLUMNS[kind].split()) <= fields, kind
        assert 1 == sum(column.is_rest for column in columns_of(spec).values()), kind


def test_optional_columns_are_dropped_first():
    columns = list(columns_of("id subject:* labels:14?").values())
    rows = [("1234567", "x" * 60, "y" * 14)]

    narrow = lines_of(columns, rows, Screen(is_terminal=True, width=40))
    broad = lines_of(columns, rows, Screen(is_terminal=True, width=90))

    assert "labels" not in narrow[0]
    assert "labels" in broad[0]
    assert 40 == cell_len(narrow[1])


def test_short_ids_of_a_page_differ():
    ids = ["msg_aaaaaaaa0000", "msg_aaaaaaab0000", "evt_aaaaaaaa0000", "Ana"]

    assert ["aaaaaaaa", "aaaaaaab", "evt_aaaaaaaa0000", "Ana"] == short_ids(ids)
    assert ["msg_aaaaaaa", "thr_bbbbbbb"] == short_ids(
        ["msg_aaaaaaaa0000", "thr_bbbbbbbb0000"], "target"
    )


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        ("2026-11-18T13:05:00Z", "14:05"),
        ("2026-11-17T23:30:00Z", "00:30"),
        ("2026-11-17T13:05:00Z", "Nov 17 14:05"),
        ("2026-01-05T13:05:00Z", "Jan  5 14:05"),
        ("2025-12-31T22:30:00Z", "2025-12-31"),
        ("2025-12-31T23:30:00Z", "Jan  1 00:30"),
        ("tomorrow", "tomorrow"),
    ],
)
def test_times_are_local_and_short(monkeypatch, then, shown):
    monkeypatch.setenv("TZ", "Etc/GMT-1")
    time.tzset()
    try:
        assert shown == local_time(then, datetime(2026, 11, 18, 20, tzinfo=UTC))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_long_lines_break_between_words():
    text = "> quoted line\n" + "word " * 30 + "\n" + "x" * 100

    lines = wrapped(text, 40)

    assert "> quoted line" == lines[0]
    assert "x" * 100 == lines[-1]
    assert all(cell_len(line) <= 40 for line in lines[:-1])
    assert text.split() == " ".join(lines).split()
