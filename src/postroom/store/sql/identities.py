"""Identities: the addresses that one may send from, and that an inbox receives for."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.account import Identity
from postroom.model.inbox import Inbox, Visible
from postroom.model.page import Found, Slice
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.pages import Listing
from postroom.store.sql.values import dumps, from_text, visible_numbers
from postroom.store.transaction import Row, Transaction

_COLUMNS = """d.id, d.email, CASE WHEN d.name = '' THEN i.name ELSE d.name END, d.signature, i.id,
    i.account_id, d.is_default, d.number"""
_TABLES = "identities d JOIN inboxes i ON i.number = d.inbox"
_LISTING = Listing(_COLUMNS, _TABLES, "d.number", position=-1)
INSERT = """
    INSERT INTO identities (id, inbox, email, name, signature, is_default)
    VALUES (:id, :inbox, :email, :name, :signature, :is_default)
"""


def _identity(row: Row) -> Identity:
    return Identity(row[0], row[1], row[2], row[3], row[4], row[5], bool(row[6]))


def is_taken(tx: Transaction, email: str) -> bool:
    """Whether mail to this address has a place already."""
    return tx.one("SELECT 1 FROM identities WHERE email = :e", e=email.lower()) is not None


def add_own_identity(tx: Transaction, inbox: Inbox, number: int) -> None:
    """The address of an inbox is its first identity; it bears the inbox's name."""
    tx.run(
        INSERT,
        id="idn_" + inbox.id[4:],
        inbox=number,
        email=inbox.address.lower(),
        name="",
        signature="",
        is_default=1,
    )


def add_identity(tx: Transaction, identity: Identity) -> Identity:
    """Keep another address of an inbox. Raises Conflict when it is taken."""
    if is_taken(tx, identity.email):
        raise Conflict(f"the address {identity.email} is taken; choose another")
    row = tx.one("SELECT number FROM inboxes WHERE id = :id", id=identity.inbox_id)
    if row is None:
        raise NotFound(no_such("inbox", identity.inbox_id))
    tx.run(
        INSERT,
        id=identity.id,
        inbox=row[0],
        email=identity.email.lower(),
        name=identity.name,
        signature=identity.signature,
        is_default=0,
    )
    return identity


def keep_identities(tx: Transaction, inbox_id: str, identities: Sequence[Identity]) -> None:
    """Have those that a provider has; what is ours, and what was changed here, stays as it is."""
    row = tx.one("SELECT number FROM inboxes WHERE id = :id", id=inbox_id)
    inbox = row[0] if row else None
    for identity in identities:
        if not is_taken(tx, identity.email):
            add_identity(tx, identity)
        _follow(tx, inbox, identity)
    _forget(tx, inbox, {identity.email for identity in identities})


def _follow(tx: Transaction, inbox: int | None, there: Identity) -> None:
    """Take over a name or a signature that was changed at the provider and not here."""
    row = tx.one(
        """SELECT number, name, signature, told FROM identities
            WHERE email = :email AND inbox = :inbox""",
        email=there.email,
        inbox=inbox,
    )
    if row is None:
        return
    number, name, signature, told = row
    was_name, was_signature = from_text(told) if told else (None, None)
    tx.run(
        """UPDATE identities SET name = :name, signature = :signature, told = :told
            WHERE number = :number""",
        name=there.name if name == was_name else name,
        signature=there.signature if signature == was_signature else signature,
        told=dumps([there.name, there.signature]),
        number=number,
    )


def _forget(tx: Transaction, inbox: int | None, there: set[str]) -> None:
    """Remove addresses that a provider has told of and has no more; mail leaves by another."""
    rows = tx.all(
        """SELECT number, email, is_default FROM identities
            WHERE inbox = :inbox AND told IS NOT NULL ORDER BY number""",
        inbox=inbox,
    )
    for number, _, is_default in [row for row in rows if row[1] not in there]:
        tx.run("DELETE FROM identities WHERE number = :number", number=number)
        if is_default:
            tx.run(
                """UPDATE identities SET is_default = 1 WHERE number =
                       (SELECT min(number) FROM identities WHERE inbox = :inbox)""",
                inbox=inbox,
            )


def list_identities(
    tx: Transaction, visible: Visible, inbox_id: str | None, page: Slice
) -> Found[Identity]:
    """Oldest first."""
    where = Conditions()
    inboxes = visible_numbers(tx, visible)
    if inboxes is not None:
        where.among("d.inbox", "inbox", inboxes)
    if inbox_id is not None:
        where.add("i.id = :inbox_id", inbox_id=inbox_id)
    return _LISTING.page(tx, where, page, _identity)


def default_identity(tx: Transaction, inbox_id: str) -> Identity | None:
    """The address that an inbox sends from when nobody says which."""
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
    """Change what is given. The default of an inbox changes when another is made so."""
    row = tx.one(f"SELECT {_COLUMNS}, d.inbox FROM {_TABLES} WHERE d.id = :id", id=identity_id)
    if row is None or (visible is not None and row[4] not in visible):
        return None
    if is_default is False and row[6]:
        raise Conflict(f"{identity_id} is the default; make another identity the default instead")
    if is_default:
        tx.run("UPDATE identities SET is_default = 0 WHERE inbox = :inbox", inbox=row[8])
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
