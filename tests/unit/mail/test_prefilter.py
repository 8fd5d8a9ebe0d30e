"""Prefilters before expensive checks have false positives, but no false negatives."""

from __future__ import annotations

import random
import re

import pytest

from postroom.mail import reports
from postroom.mail.data import load
from postroom.mail.quoting import (
    attributions,
    signatures,
    split_reply,
    splitting,
)
from postroom.mail.text import prefilter as quoting
from postroom.mail.text.prefilter import prefilter
from tests.unit.mail.attributions import SENTENCES, wrapped
from tests.unit.mail.attributions import attributions as all_attributions

_SEED = 26
_PIECES = (
    "4", "12", "2021", "08:15", "3/4/21", "10h30", "8 am", "8時15分", "2021年10月4日", "GMT+2",
    "+0200", "EST", "a@b.example", "<m@x.example>", "mailto:m@x.example", "<", ">", ":", "：",
    "-", "*", "_",
    "\u200e", "\xa0", "(", ")", '"', ".", "!", "Mara Holm", "İ", "Σ", "\n", "\n\n", "\n> ", "\n| ",
    "\nMH> ", "Sent from my phone", "Regards,", "please reply above this line", "-----", "---",
)  # fmt: skip


def words() -> list[str]:
    """All words of quotations, as they are and in other cases."""
    languages = load("quotations")["languages"].values()
    found = [word for language in languages for kind in language.values() for word in kind]
    return [*found, *map(str.title, found), *map(str.upper, found)]


def texts() -> list[str]:
    """Attributions with own words above and old ones below, and pieces in any order."""
    dice = random.Random(_SEED)
    pieces = [*_PIECES * 20, *words()]
    found = [
        f"{dice.choice(SENTENCES)}{dice.choice(' ¶¶')}{one}{dice.choice('¶ ')}¶{mark}Old words¶"
        for _, attribution in all_attributions()
        for one in wrapped(attribution)
        for mark in ("", "> ")
    ]
    found = [text.replace("¶", "\n") for text in found]
    for _ in range(3_000):
        chosen = dice.choices(pieces, k=dice.randint(1, 30))
        found.append("".join(piece + dice.choice(("", " ", " ", "\n")) for piece in chosen))
    return found


@pytest.mark.one_python
def test_prefilters_do_not_change_what_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    given = texts()
    quick = [split_reply(text) for text in given]
    for name in ("may_have_verb", "may_be_dated", "may_have_zone", "may_have_date"):
        monkeypatch.setattr(attributions, name, lambda _: True)
    monkeypatch.setattr(attributions, "may_have_address", lambda text: "@" in text)
    for name in ("may_have_marks", "may_have_reply_mark"):
        monkeypatch.setattr(splitting, name, lambda _: True)
    for name in ("lines_with_headings", "lines_with_verbs"):
        monkeypatch.setattr(splitting, name, lambda text: range(text.count("\n") + 1))
    monkeypatch.setattr(attributions, "_is_usual", lambda _: False)
    for name in ("_may_close", "_may_be_sent_from", "_may_name_device", "_may_be_contact"):
        monkeypatch.setattr(signatures, name, lambda _: True)

    slow = [split_reply(text) for text in given]

    assert slow == quick


@pytest.mark.parametrize("around", ["{}", "x GMT{}:", "({})", "_{}_", "2021{} ", "\n{}\n"])
def test_a_verb_is_found_in_any_case_and_place(around: str) -> None:
    for verb in sorted(quoting.words_of("verbs")):
        for said in (verb, verb.title(), verb.upper()):
            if said.lower() == verb:
                assert quoting.may_have_verb(around.format(said)), said


def test_the_lines_with_verbs_are_those_in_which_each_verb_stands() -> None:
    given = [text for text in texts() if not text.endswith("\r")]
    for text in given:
        lines = text.split("\n")
        wanted = [at for at, line in enumerate(lines) if quoting.may_have_verb(line)]

        assert wanted == quoting.lines_with_verbs(text)


def test_after_too_many_lines_with_verbs_the_prefilter_accepts_all() -> None:
    text = "she wrote\n\n" * 1_000

    found = quoting.lines_with_verbs(text)

    assert set(range(0, 2_000, 2)) <= set(found)
    assert found == sorted(set(found))
    assert 2_000 == found[-1]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\bécrit\b", "a écrit :"),
        (r"a\w{1,3}b", "aüßb"),
        (r"x[\s*]{1,9}y", "x\u3000\xa0*y"),
        (r"n\d{2,4}", "n٣٤"),
        (r"gesendet von", "GESENDET VON"),
        (r"bilgi", "BİLGI"),
        (r"yazıldı", "YAZILDI"),
        (r"^first", "second\nfirst"),
        (r"last$", "at last\nno"),
    ],
)
def test_a_prefilter_finds_what_its_pattern_finds(source: str, text: str) -> None:
    assert re.search(source, text, re.IGNORECASE | re.MULTILINE) is not None

    assert prefilter(source)(text)


def test_a_prefilter_is_false_where_no_part_of_the_pattern_is() -> None:
    assert not prefilter(r"sent (?:from|via) my \w{1,9}")("I have sent it to you")


@pytest.mark.parametrize(
    "sender", ["MAILER-DAEMON@x.example", "Post-Master <a@x.example>", "<>", "Mail System <a@x>"]
)
def test_the_prefilter_for_mail_systems_misses_none(sender: str) -> None:
    assert reports._DAEMONS.search(sender)

    assert reports._may_be_daemon(sender)


def test_a_text_of_a_megabyte_is_tested_in_one_pass() -> None:
    assert not quoting.may_have_marks("word " * 200_000)
