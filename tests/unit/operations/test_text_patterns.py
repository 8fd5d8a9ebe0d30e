"""Published patterns are equivalent to the code that validates."""

from __future__ import annotations

import re
import sys

import jsonschema_rs
import pytest

from postroom.calls import request
from postroom.calls.context import parse_request
from postroom.errors import InvalidInput
from postroom.mail.text.fold import fold
from postroom.operations.accounts import RemoveAccount
from postroom.operations.inboxes import CreateInbox
from postroom.operations.mail.message_changes import ApplyLabel
from postroom.operations.memories import MemoryAdd


@pytest.fixture(scope="module")
def characters() -> list[str]:
    return [chr(c) for c in range(1, sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]


def test_white_space_is_that_of_python(characters):
    space = re.compile(f"[{request.SPACE}]")

    assert [c for c in characters if c.isspace()] == [c for c in characters if space.match(c)]


def test_a_character_can_be_searched_unless_folding_removes_it(characters):
    sought = re.compile(request.SEARCH_TEXT)

    assert [] == [c for c in characters if bool(fold(c)) != bool(sought.fullmatch(c))]


@pytest.mark.one_python
@pytest.mark.parametrize("pattern", [request.LINE, request.NAME, request.SEARCH_TEXT])
def test_a_json_schema_validator_agrees_with_our_patterns(pattern, characters):
    ours, theirs = re.compile(pattern), jsonschema_rs.validator_for({"pattern": pattern})

    assert [] == [c for c in characters if bool(ours.fullmatch(c)) != theirs.is_valid(c)]


@pytest.mark.parametrize(
    "name",
    [
        "Work\n",
        "\nWork",
        "a\x85b",
        " ",
        "\u3000",
        "",
        "x" * 129,
        "\u200b",
        "\u2060 \ufe0f",
        "\u3164",
    ],
)
def test_a_label_is_one_visible_line(name):
    with pytest.raises(InvalidInput):
        parse_request(ApplyLabel, {"message_ids": ["msg_1"], "label": name})


@pytest.mark.parametrize("name", ["Work", "Zu erledigen", "仕事", "\U0001fae8", "x" * 128])
def test_a_label_may_be_in_any_script(name):
    assert name == parse_request(ApplyLabel, {"message_ids": ["msg_1"], "label": name}).label


@pytest.mark.parametrize(
    ("request_type", "arguments", "told"),
    [
        (CreateInbox, {"username": "bob smith"}, "username: must be letters and digits, with"),
        (CreateInbox, {"name": "a\nb"}, "name: must be on one line"),
        (CreateInbox, {"name": "a" * 300}, "name: must have at most 256 characters"),
        (
            ApplyLabel,
            {"message_ids": [], "label": "x"},
            "message_ids: must have at least 1 item, not",
        ),
        (RemoveAccount, {"account_id": "my work"}, "account_id: must be letters, digits, _ and -"),
        (MemoryAdd, {"key": "a\tb", "text": "x"}, "key: must be on one line, without control"),
        (MemoryAdd, {"key": "ana", "text": " "}, "text: must not be blank"),
    ],
)
def test_the_rules_for_a_text_are_described(request_type, arguments, told):
    with pytest.raises(InvalidInput, match=told):
        parse_request(request_type, arguments)
