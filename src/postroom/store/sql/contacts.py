"""Whom an inbox knows: who wrote before, and whom it wrote to.

A domain is known once one of its addresses was written to, or has written three times. Known
domains are kept in all the shapes that a look-alike of theirs would share, so that finding the one
that a stranger imitates is a look into an index however many are known.
"""

from __future__ import annotations

from dataclasses import replace

from postroom.mail.keying import as_key
from postroom.mail.lookalikes import imitated, shapes, site
from postroom.model.stored import NewMessage
from postroom.store.sql.names import is_hidden
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

KNOWN_AFTER = 3

FIND = "SELECT mails, is_known FROM contacts WHERE inbox = :inbox AND address = :address"
ADD = """
    INSERT INTO contacts (inbox, address, mails, is_known)
    VALUES (:inbox, :address, :mails, 0)
    ON CONFLICT (inbox, address) DO NOTHING
"""
COUNT = """
    UPDATE contacts SET mails = mails + 1 WHERE inbox = :inbox AND address = :address
"""
MAKE_KNOWN = """
    UPDATE contacts SET is_known = 1
     WHERE inbox = :inbox AND address = :address AND is_known = 0
"""
ADD_SHAPE = """
    INSERT INTO contact_shapes (inbox, shape, site) VALUES (:inbox, :shape, :site)
    ON CONFLICT (inbox, shape, site) DO NOTHING
"""
SIMILAR = "SELECT DISTINCT site FROM contact_shapes WHERE inbox = :inbox AND shape {among}"

NOTICED = ("first_time_sender", "imitates")
"""What only the arrival of a message could tell of its sender."""


def introduce(tx: Transaction, message: NewMessage, inbox: int, own_address: str) -> NewMessage:
    """Remember whom a message is from, or to; the message with what is worth a warning."""
    if message.direction == "outbound":
        _write_to(tx, message, inbox)
        return message
    address = message.sender.address.lower() if message.sender else ""
    if "@" not in address or is_hidden(message.mailboxes):
        return message
    if not _meet(tx, inbox, address):
        return message
    noticed: dict[str, object] = {"first_time_sender": True}
    if other := _imitated(tx, inbox, _domain(address), _domain(own_address)):
        noticed["imitates"] = other
    return replace(message, security={**message.security, **noticed})


def _meet(tx: Transaction, inbox: int, address: str) -> bool:
    """Take note of a sender; True if he is new. Of who is known there is nothing to note."""
    key = as_key(address)
    row = tx.one(FIND, inbox=inbox, address=key)
    if row is None:
        tx.put(ADD, inbox=inbox, address=key, mails=1)
        return True
    mails, is_known = row
    if not is_known:
        tx.put(COUNT, inbox=inbox, address=key)
        if mails + 1 >= KNOWN_AFTER:
            _know(tx, inbox, address)
    return False


def _write_to(tx: Transaction, message: NewMessage, inbox: int) -> None:
    roles = ("to", "cc", "bcc")
    for address in {a.address.lower() for a in message.addresses if a.role in roles}:
        if "@" in address:
            tx.put(ADD, inbox=inbox, address=as_key(address), mails=0)
            _know(tx, inbox, address)


def _know(tx: Transaction, inbox: int, address: str) -> None:
    if tx.run(MAKE_KNOWN, inbox=inbox, address=as_key(address)):
        domain = _domain(address)
        known = as_key(site(domain))
        rows = [{"inbox": inbox, "shape": s, "site": known} for s in shapes(domain)]
        tx.many(ADD_SHAPE, rows)


def _imitated(tx: Transaction, inbox: int, domain: str, own_domain: str) -> str | None:
    """The known domain that a stranger's could be taken for; nobody imitates himself."""
    among, params = any_of("shape", sorted(shapes(domain)))
    similar = [row[0] for row in tx.all(SIMILAR.format(among=among), inbox=inbox, **params)]
    known = [site(own_domain), *sorted(similar)]
    return None if as_key(site(domain)) in known else imitated(domain, known)


def _domain(address: str) -> str:
    return address.rpartition("@")[2].rstrip(".")
