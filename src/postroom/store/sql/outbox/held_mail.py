"""What the person who decides about a held mail is shown besides the mail itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from postroom.mail.addresses import canonical_address
from postroom.model.sending import EarlierMail
from postroom.store.sql.keys import keys_by_id
from postroom.store.sql.outbox.drafts import earlier_mail_in
from postroom.store.sql.outbox.holds import known_addresses
from postroom.store.sql.values import from_text, inbox_number
from postroom.store.transaction import Transaction

FIND = """
    SELECT o.authors
      FROM messages m LEFT JOIN outbox o ON o.inbox = m.inbox AND o.message = m.number
     WHERE m.inbox = :inbox AND m.id = :id
"""
REPLACES = "SELECT replaces FROM drafts WHERE message_id = :id"


class HeldMailFacts(NamedTuple):
    """The keys that wrote a mail, with their names; addresses that are new; the mail before it."""

    authors: dict[str, str]
    new_recipients: tuple[str, ...]
    replaces: EarlierMail | None


def held_mail_facts(
    tx: Transaction, message_id: str, inbox_id: str, recipients: Sequence[str]
) -> HeldMailFacts:
    """The authors of a mail, which of these recipients are new, and the mail that it replaces."""
    inbox = inbox_number(tx, inbox_id) or 0
    (authors,) = tx.one(FIND, inbox=inbox, id=message_id) or (None,)
    ids = from_text(authors or "[]")
    names = {key.id: key.name for key in keys_by_id(tx, ids)} if ids else {}
    by_address = {canonical_address(address): address for address in recipients}
    known = known_addresses(tx, inbox, list(by_address)) if by_address else frozenset()
    draft = tx.one(REPLACES, id=message_id)
    return HeldMailFacts(
        {id_: names.get(id_) or id_ for id_ in ids},
        tuple(given for address, given in by_address.items() if address not in known),
        earlier_mail_in(draft[0]) if draft else None,
    )
