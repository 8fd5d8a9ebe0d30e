"""Labels as IMAP keywords, and mailboxes by their special use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.providers.imap.client import ListedMailbox
from postroom.providers.imap.mailboxes import Vanished, remote_mailboxes
from postroom.providers.imap.syntax import Frame, is_flag
from postroom.providers.server_text import Labels, flags_in, keyword_of


def read_back(label: str) -> str:
    """The label that is read from the keyword stored on a server."""
    labels = Labels()
    labels.add([label])
    (found,) = labels.labels_in([keyword_of(label).lower()])
    return found


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=128))
def test_a_label_survives_as_a_keyword_except_for_its_case(label: str) -> None:
    keyword = keyword_of(label)

    assert is_flag(keyword)
    assert len(keyword) <= 50
    found = read_back(label)
    assert label.lower() == found.lower() or label == found


@pytest.mark.parametrize(
    "label", ["x" * 128, "x" * 62, "ü" * 30, "名" * 128, "𝄞" * 128, "A plan for " + "all " * 29]
)
def test_a_long_label_is_shortened_and_recognised(label: str) -> None:
    assert is_flag(keyword_of(label))
    assert len(keyword_of(label)) <= 50
    assert label == read_back(label)


def test_two_long_labels_with_one_prefix_are_distinct() -> None:
    assert keyword_of("x" * 127 + "a") != keyword_of("x" * 127 + "b")


def test_an_unknown_shortened_label_can_be_removed() -> None:
    keyword = keyword_of("Invoices " + "x" * 100)
    (found,) = Labels().labels_in([keyword])

    assert keyword == found == keyword_of(found)
    assert keyword.startswith("label-invoices-")


@pytest.mark.parametrize(
    "label",
    ["Junk", "NonJunk", "NotJunk", "Forwarded", "Submitted", "Redirected", "MDNSent", "label.x"],
)
def test_a_label_named_like_a_system_keyword_is_kept(label: str) -> None:
    assert label == read_back(label)
    assert () == Labels().labels_in(["NonJunk", "$MDNSent"])


def test_flags_and_labels_are_distinguished_from_system_keywords() -> None:
    words = (r"\Seen", r"\Recent", "$Forwarded", "NonJunk", "Work", keyword_of("To do"))

    assert ("seen",) == flags_in(words)
    assert ("Work", "To do") == Labels().labels_in(words)


def listed(name: bytes, *attributes: str, delimiter: str = "/") -> ListedMailbox:
    return ListedMailbox(frozenset(attributes), delimiter, name)


def test_mailboxes_are_recognised_by_special_use_or_name() -> None:
    boxes = remote_mailboxes(
        [
            listed(b"Sent", r"\hasnochildren"),
            listed(b"Gesendet", r"\sent"),
            listed(b"INBOX"),
            listed(b"INBOX.Trash", delimiter="."),
            listed(b"INBOX.Work.2026", delimiter="."),
            listed(b"[Gmail]", r"\noselect"),
            listed(b"[Gmail]/All Mail", r"\all"),
            listed(b"Entw&APw-rfe", r"\drafts"),
        ]
    )

    names = {box.wire: box.name for box in boxes}
    assert "Inbox" == boxes[0].name
    assert {
        b"INBOX": "Inbox",
        b"Gesendet": "Sent",
        b"Sent": "Sent (Sent)",
        b"INBOX.Trash": "Trash",
        b"INBOX.Work.2026": "Work/2026",
        b"Entw&APw-rfe": "Drafts",
    } == names


def test_four_billion_vanished_messages_take_little_memory() -> None:
    vanished = Vanished()
    assert vanished.take(Frame(b"* VANISHED (EARLIER) 1:4294967295"))
    assert not vanished.take(Frame(b"* 3 EXISTS"))
    assert vanished.take(Frame(b"* VANISHED 5,7:9"))

    assert [3, 4_000_000_000] == vanished.among([3, 4_000_000_000, 4_294_967_296])
