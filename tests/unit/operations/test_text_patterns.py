"""Patterns that say the same as the code they describe."""

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

CHARACTERS = [chr(c) for c in range(1, sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]


def test_space_is_what_python_calls_space():
    space = re.compile(f"[{request.SPACE}]")

    assert [c for c in CHARACTERS if c.isspace()] == [c for c in CHARACTERS if space.match(c)]


def test_a_character_can_be_sought_if_folding_leaves_something_of_it():
    sought = re.compile(request.SEARCH_TEXT)

    assert [] == [c for c in CHARACTERS if bool(fold(c)) != bool(sought.fullmatch(c))]


@pytest.mark.parametrize("pattern", [request.LINE, request.NAME, request.SEARCH_TEXT])
def test_a_validator_of_json_schema_reads_a_pattern_as_we_do(pattern):
    ours, theirs = re.compile(pattern), jsonschema_rs.validator_for({"pattern": pattern})

    assert [] == [c for c in CHARACTERS if bool(ours.fullmatch(c)) != theirs.is_valid(c)]


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
def test_a_label_is_one_line_that_can_be_seen(name):
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
        (RemoveAccount, {"account_id": "my work"}, "account_id: must be letters, digits, _ and -"),
        (MemoryAdd, {"key": "a\tb", "text": "x"}, "key: must be on one line, without control"),
        (MemoryAdd, {"key": "ana", "text": " "}, "text: must not be blank"),
    ],
)
def test_what_a_text_must_be_is_told_in_words(request_type, arguments, told):
    with pytest.raises(InvalidInput, match=told):
        parse_request(request_type, arguments)
