"""Any answer can be truncated to fit, and says what is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.surfaces.mcp.call_tool import MAX_CHARS, as_text, fit

GO_ON = "request less"


def row(number: int, subject: str) -> dict[str, Any]:
    return {"id": f"msg_{number:026}", "subject": subject, "labels": ["Work"]}


def test_an_answer_that_fits_is_unchanged():
    body = {"text": "x" * 90_000}

    assert fit(body, GO_ON) is body


def test_a_long_text_is_cut_with_the_offset_to_continue():
    short = fit({"id": "msg_1", "text": "x" * 200_000}, GO_ON)

    assert short["truncated"]
    assert GO_ON == short["go_on"]
    assert len(short["text"]) == short["next_offset"] > 90_000
    assert 200_000 == short["total_chars"]
    assert [f"text: {len(short['text'])} characters of 200000"] == short["cut"]


def test_continuing_from_an_offset_is_correct():
    body = {"text": "x" * 100_000, "html": "y" * 100_000, "total_chars": 500_000}

    short = fit({**body, "next_offset": 300_000}, GO_ON)

    assert 200_000 + len(short["text"]) == short["next_offset"]
    assert 500_000 == short["total_chars"]


def test_small_parts_are_kept_beside_a_large_one():
    body = {"subject": "s" * 300, "references": ["r" * 900] * 400, "to_addresses": ["a@b.c"] * 100}

    short = fit(body, GO_ON)

    assert body["subject"] == short["subject"]
    assert body["to_addresses"] == short["to_addresses"]
    assert [f"references: {len(short['references'])} of 400"] == short["cut"]
    assert len(short["references"]) > 90


@pytest.mark.parametrize("at", range(60, 75))
def test_an_excerpt_is_cut_between_its_marks(at: int):
    """The remaining text is valid HTML wherever it is cut."""
    part = "x" * at + "<mark>Bo</mark> &amp; <mark>a long needle</mark>" + "y" * 400
    body = {"results": [{"id": f"m{n}", "excerpt": part} for n in range(800)], "count": 800}

    short = fit(body, GO_ON)

    for hit in short["results"]:
        excerpt = hit["excerpt"]
        assert excerpt.count("<mark>") == excerpt.count("</mark>")
        bare = excerpt.replace("<mark>", "").replace("</mark>", "").replace("&amp;", "")
        assert set() == set("<>&") & set(bare)


def test_long_words_in_many_rows_are_cut_before_any_row_is_lost():
    body = {"results": [row(n, "s" * 60_000) for n in range(100)], "count": 100, "next_cursor": "c"}

    short = fit(body, GO_ON)

    assert 100 == len(short["results"]) == short["count"]
    assert "c" == short["next_cursor"]
    assert len(short["results"][0]["subject"]) > 500
    assert [r["id"] for r in body["results"]] == [r["id"] for r in short["results"]]


def test_rows_that_are_too_many_are_left_out_from_the_end_of_a_page():
    body = {
        "results": [row(n, "\x01" * 60_000) for n in range(400)],
        "count": 400,
        "total": 500,
        "offset": 0,
        "has_more": True,
        "next_cursor": "would pass over what was left out",
    }

    short = fit(body, GO_ON)

    assert 0 < short["count"] == len(short["results"]) < 400
    assert body["results"][0]["id"] == short["results"][0]["id"]
    assert short["has_more"]
    assert "next_cursor" not in short
    assert f"results: {short['count']} of 400" in short["cut"]


def test_the_oldest_messages_of_a_thread_are_left_out_first():
    messages = [{"id": f"msg_{n}", "new_text": "\x01" * 99} for n in range(900)]

    short = fit({"messages": messages, "has_more": False}, GO_ON)

    assert "msg_899" == short["messages"][-1]["id"]
    assert 0 < len(short["messages"]) < 900
    assert short["has_more"]


def test_an_incomplete_file_is_omitted():
    files = [{"id": "att_1", "content": "A" * 150_000}, {"id": "att_2", "content": "QQ=="}]

    short = fit({"attachments": files}, GO_ON)

    assert {"id": "att_1", "content_omitted": True} == short["attachments"][0]
    assert {"id": "att_2", "content": "QQ=="} == short["attachments"][1]


words = st.text(max_size=40).flatmap(
    lambda text: st.sampled_from([text, text * 50, text * 3_000, "\x00" * 20_000])
)
rows = st.fixed_dictionaries({"id": st.just("msg_1"), "subject": words, "labels": st.lists(words)})


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, max_size=100), words, st.lists(words, max_size=100))
def test_every_answer_fits(results, text, labels):
    short = fit({"results": results, "text": text, "labels": labels}, GO_ON)

    assert len(as_text(short)) <= MAX_CHARS
    assert all("msg_1" == row["id"] for row in short["results"])
