"""The text of a mail is what a browser displays, as recorded from Chromium for each snippet."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.html.html import html_to_text
from tests.unit.mail.visibility_snippets import SNIPPETS, STRICTER, TEXT

TRUTH = Path(__file__).parents[2] / "golden" / "visibility.json"


def read_recorded_visibility() -> dict[str, bool]:
    found = json.loads(TRUTH.read_text("utf-8"))
    return dict.fromkeys(found["shown"], True) | dict.fromkeys(found["hidden"], False)


def write_recorded_visibility(shown: dict[str, bool]) -> None:
    names = {key: [name for name, is_shown in shown.items() if is_shown is value]
             for key, value in (("shown", True), ("hidden", False))}  # fmt: skip
    TRUTH.write_text(json.dumps(names, indent=1, ensure_ascii=False) + "\n", "utf-8")


def shows(html: str) -> bool:
    return TEXT in html_to_text(html.replace("{}", TEXT)).text


def test_the_visibility_of_hundreds_of_snippets_is_recorded() -> None:
    truth = read_recorded_visibility()

    assert set(SNIPPETS) == set(truth)
    assert sum(truth.values()) >= 150
    assert len(truth) - sum(truth.values()) >= 300


def test_text_that_a_browser_does_not_show_is_omitted() -> None:
    hidden = [name for name, is_shown in read_recorded_visibility().items() if not is_shown]

    assert [] == [name for name in hidden if shows(SNIPPETS[name])]


def test_text_that_a_browser_shows_is_kept() -> None:
    shown = [name for name, is_shown in read_recorded_visibility().items() if is_shown]

    assert set(STRICTER) == {name for name in shown if not shows(SNIPPETS[name])}


def test_hidden_text_is_reported_and_shown_text_is_not() -> None:
    for name, is_shown in read_recorded_visibility().items():
        found = html_to_text(SNIPPETS[name].replace("{}", TEXT))
        is_reported = any(hidden.chars == len(TEXT) for hidden in found.hidden)

        assert is_reported is (not is_shown or name in STRICTER) or "<!--" in name, name


@pytest.mark.parametrize(
    "cover", ["position:fixed;inset:0", "position:fixed;left:0;top:0;width:100%;height:100%"]
)
def test_a_box_over_the_whole_window_covers_what_is_not_in_it(cover: str) -> None:
    html = f"<p>{TEXT}</p><div style='{cover};background:#fff'>Good morning</div>"

    found = html_to_text(html)

    assert "Good morning" == found.text
    assert ["covered"] == [hidden.reason for hidden in found.hidden]


@given(st.sampled_from(sorted(SNIPPETS)), st.randoms(use_true_random=False))
def test_damaged_styles_are_read(name: str, random: Random) -> None:
    html = list(SNIPPETS[name])
    for _ in range(5):
        at, source = random.randrange(len(html)), random.randrange(len(html))
        html[at : at + random.randrange(4)] = html[source : source + random.randrange(8)] or ["("]

    assert html_to_text("".join(html)).text is not None
