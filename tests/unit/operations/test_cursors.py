"""A cursor reveals nothing, and is valid for one caller and one query."""

from __future__ import annotations

import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.calls.context import Cursors
from postroom.calls.request import Paged
from postroom.errors import InvalidInput
from postroom.model.imap import ImapCriteria
from postroom.model.page import Found, SortKey
from postroom.operations.imap.search import SearchPosition as LivePosition
from postroom.operations.imap.search import open_position, seal_position
from postroom.operations.mail.messages import ListMessages, SearchMessages
from postroom.operations.webhooks import ListEvents

OURS = Cursors(b"s" * 32, "key_ana")
NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLACES = st.lists(NUMBERS | st.text(max_size=50), min_size=1, max_size=20).map(tuple)
ASKED = SearchMessages(q="invoice")
LIVE = LivePosition("work", "INBOX", ImapCriteria(query="word"), 7, 12, 40)


def sealed(place: SortKey, request: Paged = ASKED, cursors: Cursors = OURS) -> str:
    cursor = cursors.page(request, Found((), 9, 0, place)).next_cursor
    assert cursor is not None
    return cursor


def opened(cursor: str, request: Paged = ASKED, cursors: Cursors = OURS) -> SortKey | None:
    return cursors.slice(request.model_copy(update={"cursor": cursor})).after


@given(PLACES)
def test_a_position_survives_encoding_and_decoding(place):
    assert place == opened(sealed(place))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=2, unique=True))
def test_neither_length_nor_bytes_reveal_the_position(places):
    first, second = (sealed(place) for place in places)

    assert len(first) == len(second)
    assert first[:16] != second[:16]
    for number in places[0]:
        assert str(number).encode() not in decoded(first) or abs(number) < 10


def decoded(cursor: str) -> bytes:
    return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def test_the_same_position_has_the_same_cursor():
    assert sealed((5, 7)) == sealed((5, 7))


@pytest.mark.parametrize(
    "request_",
    [
        SearchMessages(q="Invoice"),
        SearchMessages(q="invoice", mode="hybrid"),
        SearchMessages(q="invoice", inbox_id="inb_1"),
        SearchMessages(q="invoice", labels=["Work"]),
        ListMessages(q="invoice", inbox_id="inb_1"),
        ListEvents(),
    ],
)
def test_a_cursor_of_another_query_is_refused(request_):
    with pytest.raises(InvalidInput, match="with the same filters"):
        opened(sealed((5, 7)), request_)


@pytest.mark.parametrize(
    "others", [OURS.of("key_bob"), OURS.of("owner"), OURS.of(""), Cursors(b"t" * 32, "key_ana")]
)
def test_a_cursor_of_another_key_or_installation_is_refused(others):
    with pytest.raises(InvalidInput, match="not valid for this list"):
        opened(sealed((5, 7)), cursors=others)
    with pytest.raises(InvalidInput, match="not valid for this list"):
        open_position(others, seal_position(OURS, LIVE), account_id="work", mailbox="INBOX")


@given(st.data())
def test_a_modified_or_truncated_cursor_is_refused(data):
    cursor = sealed((5, 7))
    place = data.draw(st.integers(0, len(cursor) - 1))
    outgoing_mail = data.draw(st.sampled_from("AZaz09-_=+/ é"))
    changed = data.draw(
        st.sampled_from([cursor[:place], cursor[:place] + outgoing_mail + cursor[place + 1 :]])
    )

    if changed and changed != cursor:
        with pytest.raises(InvalidInput, match="not valid for this list"):
            opened(changed)


@pytest.mark.parametrize("size", [1, 12, 28, 59, 60, 61, 300])
def test_bytes_of_any_length_are_refused(size):
    with pytest.raises(InvalidInput, match="not valid for this list"):
        opened(urlsafe_b64encode(bytes(size)).rstrip(b"=").decode())


def test_limit_may_change():
    cursor = sealed((5, 7))

    assert (5, 7) == opened(cursor, ASKED.model_copy(update={"limit": 3}))


def test_the_length_of_a_live_cursor_does_not_reveal_the_position():
    places = [(1, 1, 2), (2**32 - 1, 2**32 - 1, 2**31), (7, 900_000, 19_999)]
    cursors = [
        seal_position(OURS, LivePosition("work", "INBOX", ImapCriteria(query="word"), *place))
        for place in places
    ]

    assert 1 == len({len(cursor) for cursor in cursors})
    for cursor, (uidvalidity, below, total) in zip(cursors, places, strict=True):
        found = open_position(OURS, cursor, account_id="work", mailbox="INBOX")
        assert (uidvalidity, below, total) == (found.uidvalidity, found.below, found.total)
        assert b"word" not in decoded(cursor)


def test_the_cipher_is_loaded_only_for_cursors():
    """Loading it takes longer than reading a short list at the terminal."""
    program = (
        "import sys, postroom.app, postroom.operations.mail.messages, postroom.surfaces.cli.output;"
        "print([name for name in sys.modules if name.startswith('cryptography')])"
    )

    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
