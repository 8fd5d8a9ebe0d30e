"""Names of mailboxes and labels."""

from __future__ import annotations

import pytest

from postroom.providers.imap.client import ListedMailbox
from postroom.providers.imap.mailboxes import remote_mailboxes
from postroom.providers.server_text import plain_name
from postroom.providers.web.history_reader import path_of


@pytest.mark.parametrize("char", [*map(chr, range(32)), *map(chr, range(127, 160)), "\ud800"])
def test_a_name_has_no_control_characters(char: str) -> None:
    assert "a\ufffdb" == plain_name(f"a{char}b")
    row = {"name": f"a{char}b", "parent": "1"}
    rows = {"1": {"name": f"c{char}", "parent": None}}
    assert "c\ufffd/a\ufffdb" == path_of(row, rows, name="name", parent="parent")


@pytest.mark.parametrize("name", ["Work", "Été/日本", "a b", "emoji 🎉"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert name == plain_name(name)


def test_a_mailbox_that_is_listed_twice_is_one_mailbox() -> None:
    names = (b"", b"INBOX", b"Work", b"work", b"Work", b"INBOX")
    listed = [ListedMailbox(frozenset(), "/", name) for name in names]

    assert ["Inbox", "Work", "work (work)"] == [m.name for m in remote_mailboxes(listed)]
