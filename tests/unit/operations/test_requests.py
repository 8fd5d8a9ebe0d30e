"""Parsing of arguments, on any surface."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.calls.context import parse_request
from postroom.calls.request import Paged, Request
from postroom.errors import InvalidInput
from postroom.operations.mail.message_changes import ApplyLabel
from postroom.operations.mail.messages import ListMessages
from postroom.operations.outgoing.approvals import SetPolicy
from postroom.operations.outgoing.sending import SendMessage


def after(written):
    return parse_request(ListMessages, {"inbox_id": "inb_1", "after_date": written}).after_date


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T09:30:00Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31t09:30:00z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31T09:30", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31T09:30:00+02:00", datetime(2026, 1, 31, 7, 30, tzinfo=UTC)),
        ("2026-01-31T09:30:00-0230", datetime(2026, 1, 31, 12, 0, tzinfo=UTC)),
        ("2026-01-31T09:30:00.000Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31T09:30:00.0000000001Z", datetime(2026, 1, 31, 9, 30, 1, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        ("0000-06-01T00:00:00Z", datetime(1, 6, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00+23:59", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59-23:59", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("", None),
        (None, None),
    ],
)
def test_a_timestamp_is_parsed_in_any_supported_form(written, meant):
    assert meant == after(written)


@pytest.mark.parametrize(
    "written",
    ["2026-02-30", "2026-1-1", "2026-01-31T24:00:00Z", "2026-01-31T09:30:61Z", "now", 5, True, []],
)
def test_an_invalid_timestamp_is_refused_with_an_example(written):
    with pytest.raises(InvalidInput, match="after_date: write it as 2026-01-31 or"):
        after(written)


@given(st.datetimes(timezones=st.timezones()).filter(lambda d: 2 < d.year < 9998))
def test_every_timestamp_of_rfc_3339_is_parsed(moment):
    offset = moment.utcoffset()
    if offset is None or offset.total_seconds() % 60:
        return

    read = after(moment.isoformat())

    assert 0 <= (read - moment).total_seconds() < 1


@pytest.mark.parametrize(("written", "meant"), [(7, 7), ("7", 7), (7.0, 7)])
def test_a_number_may_be_written_as_text(written, meant):
    assert meant == parse_request(Paged, {"limit": written}).limit


@pytest.mark.parametrize("written", ["07", "+7", " 7", "7.0", "1_0", "٧", "", "x", True, 7.5, None])
def test_a_number_is_written_in_one_way_only(written):
    with pytest.raises(InvalidInput, match=r"^limit: must be"):
        parse_request(Paged, {"limit": written})


@pytest.mark.parametrize(
    ("written", "meant"), [(True, True), ("true", True), ("False", False), ("FALSE", False)]
)
def test_a_boolean_may_be_written_as_text(written, meant):
    given = {"message_ids": ["msg_1"], "label": "Work", "remove": written}

    assert meant is parse_request(ApplyLabel, given).remove


@pytest.mark.parametrize("written", ["yes", "1", "on", "t", "", 1, 0, 1.0, []])
def test_a_boolean_is_written_in_one_way_only(written):
    given = {"message_ids": ["msg_1"], "label": "Work", "remove": written}

    with pytest.raises(InvalidInput, match=r"^remove: must be true or false$"):
        parse_request(ApplyLabel, given)


@pytest.mark.parametrize(
    "given",
    [
        {"message_ids": ["msg_1"], "label": "a\0b"},
        {"message_ids": ["a\0"], "label": "Work"},
        {"message_ids": [{"a\0": 1}], "label": "Work"},
    ],
)
def test_nul_is_refused_wherever_it_hides(given):
    with pytest.raises(InvalidInput, match="must not contain the character NUL"):
        parse_request(ApplyLabel, given)


def test_every_problem_is_reported_at_once():
    with pytest.raises(InvalidInput) as caught:
        parse_request(Paged, {"limit": 0, "offset": -1, "curser": "x"})

    fields = [problem["field"] for problem in caught.value.details["problems"]]
    assert ["limit", "offset", "curser"] == fields


@pytest.mark.parametrize(
    ("model", "arguments", "expected"),
    [
        (SetPolicy, {"inbox_id": "inb_1", "senders": {"blok": []}}, "senders.blok|block"),
        (SetPolicy, {"inbox_id": "inb_1", "recipients": {"alow": []}}, "recipients.alow|allow"),
        (SetPolicy, {"inbox_id": "inb_1", "sender": {}}, "sender|senders"),
        (
            SendMessage,
            {"to": ["a@b.example"], "body_text": "x", "attachments": [{"filenam": "x"}]},
            "attachments[0].filenam|filename",
        ),
    ],
)
def test_an_unknown_name_is_compared_with_those_of_its_object(
    model: type[Request], arguments: dict[str, Any], expected: str
) -> None:
    field, meant = expected.split("|")

    with pytest.raises(InvalidInput) as caught:
        parse_request(model, arguments)

    assert f"{field}: unknown argument; did you mean {meant}?" in str(caught.value)
