"""Identities: the addresses that an inbox sends from and receives for, and who may claim them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from postroom.errors import Conflict, Forbidden, NotFound, no_such
from postroom.mail.addresses import (
    base_address,
    canonical_address,
    is_business,
    is_reserved,
    plus_address_range,
    reserved_names,
)
from postroom.model.account import Identity
from postroom.model.inbox import (
    OWNERS_RIGHTS,
    AddressRights,
    Inbox,
    QuestionableAddress,
    Visible,
)
from postroom.model.page import Found, Slice
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    dumps,
    from_text,
    inbox_number,
    insert,
    scalar,
    visible_numbers,
)
from postroom.store.transaction import Row, Transaction

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
            "(RFC 2142, and certificate authorities); only the owner may assign it, on the "
            "command line or with the owner's key over REST, and never an agent over MCP"
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
    found: int | None = scalar(tx, "SELECT inbox FROM identities WHERE email = :email", email=email)
    return found


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
    first, past = plus_address_range(email)
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


_COLUMNS = """d.id, d.email, CASE WHEN d.name = '' THEN i.name ELSE d.name END, d.signature, i.id,
    i.account_id, d.is_default"""
_TABLES = "identities d JOIN inboxes i ON i.number = d.inbox"
_LISTING = Listing(_COLUMNS, _TABLES, "d.number")


def _identity(row: Row) -> Identity:
    return Identity(row[0], row[1], row[2], row[3], row[4], row[5], bool(row[6]))


def address_exists(tx: Transaction, email: str) -> bool:
    """Whether an inbox has this address already."""
    return tx.one("SELECT 1 FROM identities WHERE email = :e", e=email.lower()) is not None


def add_own_identity(tx: Transaction, inbox: Inbox, number: int) -> None:
    """Insert the address of an inbox as its first identity, with the name of the inbox."""
    insert(
        tx,
        "identities",
        id="idn_" + inbox.id[4:],
        inbox=number,
        email=inbox.address.lower(),
        name="",
        signature="",
        is_default=1,
    )


def check_alias(tx: Transaction, email: str, inbox_id: str, rights: AddressRights) -> int:
    """Check that an inbox may get an address, and return the number of the inbox.

    Raises:
        Forbidden: the caller may not claim the address.
        Conflict: the address is taken.
    """
    inbox = inbox_number(tx, inbox_id)
    if not inbox:
        raise NotFound(no_such("inbox", inbox_id))
    refuse_claim(tx, email.lower(), inbox, rights)
    if address_exists(tx, email):
        raise Conflict(f"the address {email} is taken; choose another")
    return inbox


def add_identity(
    tx: Transaction, identity: Identity, rights: AddressRights = OWNERS_RIGHTS
) -> Identity:
    """Insert another address of an inbox. Raises what `check_alias` raises."""
    inbox = check_alias(tx, identity.email, identity.inbox_id, rights)
    insert(
        tx,
        "identities",
        id=identity.id,
        inbox=inbox,
        email=identity.email.lower(),
        name=identity.name,
        signature=identity.signature,
        is_default=0,
    )
    return identity


def replace_identities(
    tx: Transaction, inbox_id: str, identities: Sequence[Identity], served: Collection[str] = ()
) -> None:
    """Synchronise the identities of a provider; local ones and local changes stay as they are.

    A provider cannot claim addresses of others, nor reserved names of a domain that is *served*
    here.
    """
    inbox = inbox_number(tx, inbox_id)
    for identity in identities:
        is_foreign = identity.email.rpartition("@")[2] not in served
        with suppress(Conflict, Forbidden):
            add_identity(tx, identity, AddressRights(reserved_names=is_foreign))
        _update_from_provider(tx, inbox, identity)
    _remove_missing(tx, inbox, {identity.email for identity in identities})


def _update_from_provider(tx: Transaction, inbox: int, there: Identity) -> None:
    """Update a name or a signature that was changed at the provider and not here."""
    row = tx.one(
        """SELECT number, name, signature, provider_values FROM identities
            WHERE email = :email AND inbox = :inbox""",
        email=there.email,
        inbox=inbox,
    )
    if row is None:
        return
    number, name, signature, stored = row
    was_name, was_signature = from_text(stored) if stored else (None, None)
    tx.run(
        """UPDATE identities SET name = :name, signature = :signature, provider_values = :values
            WHERE number = :number""",
        name=there.name if name == was_name else name,
        signature=there.signature if signature == was_signature else signature,
        values=dumps([there.name, there.signature]),
        number=number,
    )


def _remove_missing(tx: Transaction, inbox: int, there: set[str]) -> None:
    """Remove addresses that the provider no longer reports."""
    rows = tx.all(
        """SELECT number, email, is_default FROM identities
            WHERE inbox = :inbox AND provider_values IS NOT NULL ORDER BY number""",
        inbox=inbox,
    )
    for number, _, is_default in [row for row in rows if row[1] not in there]:
        _remove(tx, number, inbox, was_default=bool(is_default))


def _remove(tx: Transaction, number: int, inbox: int, *, was_default: bool) -> None:
    """Remove an address; if it was the default, the oldest of the others becomes the default."""
    tx.run("DELETE FROM identities WHERE number = :number", number=number)
    if was_default:
        tx.run(
            """UPDATE identities SET is_default = 1 WHERE number =
                   (SELECT min(number) FROM identities WHERE inbox = :inbox)""",
            inbox=inbox,
        )


def remove_identity(tx: Transaction, identity_id: str, visible: Visible) -> bool:
    """Remove an alias; False if there is none. Raises Conflict for the address of the inbox."""
    row = tx.one(
        f"""SELECT i.id, i.address, d.email, d.number, d.inbox, d.is_default FROM {_TABLES}
             WHERE d.id = :id""",
        id=identity_id,
    )
    if row is None or not visible.sees(row[0]):
        return False
    inbox_id, address, email, number, inbox, is_default = row
    if email == address.lower():
        raise Conflict(f"{email} is the address of {inbox_id} itself; delete the inbox instead")
    _remove(tx, number, inbox, was_default=bool(is_default))
    return True


def list_identities(
    tx: Transaction, visible: Visible, inbox_id: str | None, page: Slice
) -> Found[Identity]:
    """One page of identities, oldest first."""
    where = Conditions()
    where.within("d.inbox", visible_numbers(tx, visible))
    if inbox_id is not None:
        where.add("i.id = :inbox_id", inbox_id=inbox_id)
    return _LISTING.page(tx, where, page, _identity)


def default_identity(tx: Transaction, inbox_id: str) -> Identity | None:
    """The address that an inbox sends from by default."""
    row = tx.one(
        f"""SELECT {_COLUMNS} FROM {_TABLES} WHERE i.id = :inbox_id
             ORDER BY d.is_default DESC, d.number LIMIT 1""",
        inbox_id=inbox_id,
    )
    return _identity(row) if row else None


def identity_at(tx: Transaction, email: str) -> Identity | None:
    """The identity with this address, compared without case."""
    row = tx.one(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE d.email = :email", email=email.lower())
    return _identity(row) if row else None


def change_identity(
    tx: Transaction,
    identity_id: str,
    visible: Visible,
    *,
    name: str | None,
    signature: str | None,
    is_default: bool | None,
) -> Identity | None:
    """Change the given fields; a new default replaces the previous one."""
    row = tx.one(f"SELECT {_COLUMNS}, d.inbox FROM {_TABLES} WHERE d.id = :id", id=identity_id)
    if row is None or not visible.sees(row[4]):
        return None
    if is_default is False and row[6]:
        raise Conflict(f"{identity_id} is the default; make another identity the default instead")
    if is_default:
        tx.run("UPDATE identities SET is_default = 0 WHERE inbox = :inbox", inbox=row[7])
    tx.run(
        """UPDATE identities SET name = coalesce(:name, name),
                  signature = coalesce(:signature, signature),
                  is_default = CASE WHEN :is_default = 1 THEN 1 ELSE is_default END
            WHERE id = :id""",
        name=name,
        signature=signature,
        is_default=int(bool(is_default)),
        id=identity_id,
    )
    changed = tx.one(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE d.id = :id", id=identity_id)
    return _identity(changed) if changed else None
