"""Names from providers are kept if valid, and never cause an error."""

from __future__ import annotations

import pytest

from postroom.model.account import RemoteIdentity, RemoteMessage, RemoteRef
from postroom.pipeline.pull import is_valid_identity, storable_messages


def message(key: str = "1", **names: tuple[str, ...]) -> RemoteMessage:
    return RemoteMessage(RemoteRef("1/INBOX", key), flags=(), **{"mailboxes": ("Inbox",), **names})


@pytest.mark.parametrize(
    "name", ["Work", " Two words ", "日本\u3000語", "👩‍👩‍👧", "a\u00a0b", "x" * 128]
)
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    given = message(mailboxes=(name,), labels=(name,))

    assert (given,) == storable_messages([given])


def test_invalid_names_are_adapted() -> None:
    given = message(mailboxes=("\ud800a\x00", " "), labels=("B\nc", "b\x00C", "y" * 500, ""))

    (kept,) = storable_messages([given])

    assert (("?a",), ("Bc", "y" * 128)) == (kept.mailboxes, kept.labels)
    assert ("Archive",) == storable_messages([message(mailboxes=("\x00",))])[0].mailboxes


@pytest.mark.parametrize("key", ["\ud800", "a\x00", "k" * 3_000])
def test_a_mailbox_without_a_name_is_skipped(key: str) -> None:
    assert () == storable_messages([message(key)])


@pytest.mark.parametrize("email", ["", "x", "*@example.com\n", "Ana <ana@example.com>", "a@\ud800"])
def test_an_invalid_address_is_no_identity(email: str) -> None:
    assert not is_valid_identity(RemoteIdentity(email))
    assert is_valid_identity(RemoteIdentity("ana@example.com", "Ana", "<b>Ana</b>"))
