"""Who may claim which address, checked in the transaction that assigns it."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import Forbidden
from postroom.mail.addresses import (
    base_address,
    canonical_address,
    is_business,
    is_reserved,
    reserved_names,
    tags_of,
)
from postroom.model.inbox import AddressRights, QuestionableAddress
from postroom.store.transaction import Transaction

_TAGGED = """
    SELECT email FROM identities
     WHERE email >= :first AND email < :past AND inbox <> :inbox ORDER BY email
"""
_ROWS = """
    SELECT d.email, d.id, i.id, i.account_id, d.inbox
      FROM identities d JOIN inboxes i ON i.number = d.inbox
"""


def refuse_claim(tx: Transaction, email: str, inbox: int | None, rights: AddressRights) -> None:
    """Refuse an address that a caller may not claim for an inbox; None is a new inbox.

    Raises:
        Forbidden: with the addresses that the caller may claim instead.
    """
    base = base_address(email)
    holder = None if base == email else _holder(tx, base)
    if holder is not None and holder == inbox:
        return
    if not rights.other_addresses:
        raise Forbidden(_only_tags_error(tx, email, inbox))
    if _is_not_allowed(rights, base.rpartition("@")[0]):
        raise Forbidden(
            f"{email}: {base.rpartition('@')[0]} is a name reserved for the domain "
            "(RFC 2142, and certificate authorities); only the owner's key and the "
            "command line may assign it"
        )
    if rights.tags_of_others:
        return
    if holder is not None:
        raise Forbidden(
            f"{email}: this is a plus-address of {base}, which belongs to another "
            "inbox; choose another, or use the owner's key"
        )
    if base == email:
        _refuse_base_of_others(tx, email, inbox)


def _is_not_allowed(rights: AddressRights, local: str) -> bool:
    """Whether a name is reserved for the domain and these rights do not include it."""
    if rights.reserved_names or not is_reserved(local):
        return False
    return not (rights.business_names and is_business(local))


def _holder(tx: Transaction, email: str) -> int | None:
    row = tx.one("SELECT inbox FROM identities WHERE email = :email", email=email)
    return row[0] if row else None


def _only_tags_error(tx: Transaction, email: str, inbox: int | None) -> str:
    row = tx.one(
        "SELECT email FROM identities WHERE inbox = :inbox ORDER BY is_default DESC, number",
        inbox=inbox,
    )
    local, _, domain = base_address(row[0] if row else email).rpartition("@")
    return (
        f"email: a key that is limited to inboxes may only add plus-addresses of them, such as "
        f"{local}+tag@{domain}; ask the owner for another address"
    )


def _refuse_base_of_others(tx: Transaction, email: str, inbox: int | None) -> None:
    """Refuse an address when another inbox has one of its plus-addresses."""
    first, past = tags_of(email)
    domain = email.rpartition("@")[2]
    for (tagged,) in tx.all(_TAGGED, first=first, past=past, inbox=inbox or 0):
        if tagged.rpartition("@")[2] == domain:
            raise Forbidden(
                f"{email}: {tagged} is a plus-address of it in another inbox; choose another "
                "address, or use the owner's key"
            )


def questionable_addresses(tx: Transaction) -> list[QuestionableAddress]:
    """The existing addresses that only the owner could claim now."""
    return [*_reserved(tx), *_tags_of_others(tx)]


def _reserved(tx: Transaction) -> Iterator[QuestionableAddress]:
    """Names are found by the index; the few quoted local parts are scanned.

    A tag of an assigned address belongs to its holder, or is found as a tag of another inbox.
    """
    for name in sorted(reserved_names()):
        yield from _reserved_between(tx, f"{name}@", f"{name}A")
        yield from _reserved_between(tx, f"{name}+", f"{name},")
    yield from _reserved_between(tx, '"', "#")


def _reserved_between(tx: Transaction, first: str, past: str) -> Iterator[QuestionableAddress]:
    where = "WHERE d.email >= :first AND d.email < :past ORDER BY d.email"
    for email, identity, inbox, account, _ in tx.all(f"{_ROWS} {where}", first=first, past=past):
        base = base_address(canonical_address(email))
        has_holder = base != email and _holder(tx, base) is not None
        if is_reserved(base.rpartition("@")[0]) and not has_holder:
            yield QuestionableAddress(email, identity, inbox, account)


def _tags_of_others(tx: Transaction) -> Iterator[QuestionableAddress]:
    rows = tx.all(f"{_ROWS} WHERE d.email LIKE '%+%' ORDER BY d.email")
    for email, identity, inbox, account, number in rows:
        base = base_address(canonical_address(email))
        holder = None if base == email else _holder(tx, base)
        if holder is not None and holder != number:
            yield QuestionableAddress(email, identity, inbox, account, belongs_to=base)
