"""The contacts of an inbox: whom it has written to or heard from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from postroom.mail.addresses import canonical_address
from postroom.mail.authentication import imitated, is_altered, shapes, site
from postroom.mail.text.fold import as_key
from postroom.model.message import Recipient
from postroom.model.storage import NewMessage
from postroom.store.sql.values import any_of, inbox_number
from postroom.store.transaction import Transaction

KNOWN_AFTER = 3

FIND = "SELECT message_count, is_known FROM contacts WHERE inbox = :inbox AND address = :address"
ADD = """
    INSERT INTO contacts (inbox, address, message_count, is_known)
    VALUES (:inbox, :address, :mails, 0)
    ON CONFLICT (inbox, address) DO NOTHING
"""
COUNT = """
    UPDATE contacts SET message_count = message_count + 1
     WHERE inbox = :inbox AND address = :address
"""
MAKE_KNOWN = """
    UPDATE contacts SET is_known = 1
     WHERE inbox = :inbox AND address = :address AND is_known = 0
"""
ADD_SHAPE = """
    INSERT INTO contact_skeletons (inbox, skeleton, domain) VALUES (:inbox, :skeleton, :domain)
    ON CONFLICT (inbox, skeleton, domain) DO NOTHING
"""
SIMILAR = "SELECT DISTINCT domain FROM contact_skeletons WHERE inbox = :inbox AND skeleton {among}"

BEGINNING = """
    SELECT address FROM contacts
     WHERE inbox = :inbox AND address >= :first AND address < :last AND is_known = 1
     ORDER BY address LIMIT :limit
"""

ARRIVAL_FINDINGS = ("first_time_sender", "imitates")
"""Findings about the sender that are made only on arrival."""

_REACHED = ("sent", "delivered", "unknown")
"""The statuses of recipients whom a mail has reached, or may have."""


def find_contacts(tx: Transaction, inbox_id: str, beginning: str, limit: int) -> tuple[str, ...]:
    """Addresses that are known to an inbox, by their beginning."""
    first = canonical_address(beginning.strip())
    span = {"first": first, "last": f"{first}\U0010ffff", "limit": limit}
    rows = tx.all(BEGINNING, inbox=inbox_number(tx, inbox_id) or 0, **span)
    return tuple(str(row[0]) for row in rows)


def update_contacts(
    tx: Transaction, message: NewMessage, inbox: int, own_address: str
) -> NewMessage:
    """Update the contacts of the inbox, and return the message with warnings about its sender."""
    if message.direction == "outbound":
        if message.recipients is None:  # sent elsewhere: it has left
            roles = ("to", "cc", "bcc")
            _add_written_to(tx, inbox, (a.address for a in message.addresses if a.role in roles))
        else:
            add_reached(tx, inbox, message.recipients)
        return message
    address = canonical_address(message.sender.address) if message.sender else ""
    if "@" not in address or not _is_stranger(tx, message, inbox, address):
        return message
    noticed: dict[str, object] = {"first_time_sender": True}
    if other := _imitated(tx, inbox, _domain(address), _domain(own_address)):
        noticed["imitates"] = other
    return replace(message, security={**message.security, **noticed})


def _is_stranger(tx: Transaction, message: NewMessage, inbox: int, address: str) -> bool:
    """Whether a sender is new; an address with hidden characters never becomes known."""
    if message.sender and is_altered(message.sender.address, message.security):
        return True
    if not message.is_heard:
        return tx.one(FIND, inbox=inbox, address=as_key(address)) is None
    return _count_sender(tx, inbox, address)


def _count_sender(tx: Transaction, inbox: int, address: str) -> bool:
    """Count a mail of a sender who is not known yet; True if the sender is new."""
    key = as_key(address)
    row = tx.one(FIND, inbox=inbox, address=key)
    if row is None:
        tx.put(ADD, inbox=inbox, address=key, mails=1)
        return True
    mails, is_known = row
    if not is_known:
        tx.put(COUNT, inbox=inbox, address=key)
        if mails + 1 >= KNOWN_AFTER:
            _mark_known(tx, inbox, address)
    return False


def add_reached(tx: Transaction, inbox: int, recipients: Iterable[Recipient]) -> None:
    """Record whom a mail has reached: they are known from then on.

    Mail that waits makes nobody known, because it can still be taken back.
    """
    _add_written_to(tx, inbox, (r.address for r in recipients if r.status in _REACHED))


def _add_written_to(tx: Transaction, inbox: int, addresses: Iterable[str]) -> None:
    for address in dict.fromkeys(map(canonical_address, addresses)):
        if "@" in address:
            tx.put(ADD, inbox=inbox, address=as_key(address), mails=0)
            _mark_known(tx, inbox, address)


def _mark_known(tx: Transaction, inbox: int, address: str) -> None:
    if tx.run(MAKE_KNOWN, inbox=inbox, address=as_key(address)):
        domain = _domain(address)
        known = as_key(site(domain))
        rows = [{"inbox": inbox, "skeleton": s, "domain": known} for s in shapes(domain)]
        tx.many(ADD_SHAPE, rows)


def _imitated(tx: Transaction, inbox: int, domain: str, own_domain: str) -> str | None:
    """The known domain that the domain of a new sender imitates."""
    among, params = any_of("skeleton", sorted(shapes(domain)))
    similar = [row[0] for row in tx.all(SIMILAR.format(among=among), inbox=inbox, **params)]
    known = [site(own_domain), *sorted(similar)]
    return None if as_key(site(domain)) in known else imitated(domain, known)


def _domain(address: str) -> str:
    return address.rpartition("@")[2].rstrip(".")
