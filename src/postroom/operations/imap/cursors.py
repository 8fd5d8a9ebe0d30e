"""Where a live search goes on: everything it needs, signed, so that it outlives a restart."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from datetime import date

from postroom.errors import InvalidInput
from postroom.model.imap import ImapCriteria
from postroom.operations.cursors import Cursors

_QUESTION = b"live search 1"
MOST_CHARS = 8_192


@dataclass(frozen=True, slots=True)
class Place:
    """The search itself, the mailbox as it was, the last UID shown, and the number of matches."""

    account_id: str
    mailbox: str
    criteria: ImapCriteria
    uidvalidity: int
    below: int
    total: int


def seal_place(cursors: Cursors, place: Place) -> str:
    """A cursor for the page that begins here."""
    criteria = {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in asdict(place.criteria).items()
        if value
    }
    where = (place.account_id, place.mailbox, place.uidvalidity, place.below, place.total)
    body = json.dumps([*where, criteria], separators=(",", ":"), ensure_ascii=False).encode()
    return cursors.seal(zlib.compress(body, 9), _QUESTION)


def open_place(cursors: Cursors, cursor: str, *, account_id: str, mailbox: str) -> Place:
    """The place that a cursor names. Raises InvalidInput if it is not one of this mailbox."""
    body = json.loads(zlib.decompress(cursors.unseal(cursor, _QUESTION)))
    its_account, its_mailbox, uidvalidity, below, total, written = body
    if (its_account, its_mailbox) != (account_id, mailbox):
        raise InvalidInput(
            f"cursor: it belongs to mailbox {its_mailbox} of account {its_account}; "
            "pass the same account_id and mailbox, or start again without it"
        )
    for name in _DATES & written.keys():
        written[name] = date.fromisoformat(written[name])
    criteria = ImapCriteria(**written)
    return Place(its_account, its_mailbox, criteria, uidvalidity, below, total)


_DATES = {"since", "before"}
