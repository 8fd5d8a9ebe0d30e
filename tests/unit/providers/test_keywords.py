"""Labels as keywords, and mailboxes by what they are for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroom.providers.imap.client import Listed
from postroom.providers.imap.framing import Frame
from postroom.providers.imap.mirroring import Vanished
from postroom.providers.imap.roles import boxes_of
from postroom.providers.keywords import flags_in, keyword_of, label_of, labels_in


@given(st.text(min_size=1, max_size=128))
def test_a_label_survives_as_a_keyword_but_for_its_case(label: str) -> None:
    keyword = keyword_of(label)

    assert keyword.isascii()
    assert not set(keyword) & set(' (){%*"\\]')
    found = label_of(keyword.lower())
    assert found is None or label.lower() == found.lower() or label == found


def test_flags_and_labels_are_told_apart_from_what_machines_set() -> None:
    words = (r"\Seen", r"\Recent", "$Forwarded", "NonJunk", "Work", keyword_of("To do"))

    assert ("seen",) == flags_in(words)
    assert ("Work", "To do") == labels_in(words)


def listed(name: bytes, *attributes: str, delimiter: str = "/") -> Listed:
    return Listed(frozenset(attributes), delimiter, name)


def test_mailboxes_are_known_by_their_use_and_else_by_their_names() -> None:
    boxes = boxes_of(
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


def test_four_billion_vanished_messages_take_no_room() -> None:
    vanished = Vanished()
    assert vanished.take(Frame(b"* VANISHED (EARLIER) 1:4294967295"))
    assert not vanished.take(Frame(b"* 3 EXISTS"))
    assert vanished.take(Frame(b"* VANISHED 5,7:9"))

    assert [3, 4_000_000_000] == vanished.among([3, 4_000_000_000, 4_294_967_296])
