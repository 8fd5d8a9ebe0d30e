"""Keys, known by the hash of their secret."""

from __future__ import annotations

from datetime import datetime

from postroom.model.key import Key
from postroom.model.page import Found, Slice
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.pages import Listing
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

_COLUMNS = "id, name, scopes, inboxes, namespaces, accounts, created_at, last_used_at"
_LISTING = Listing(f"{_COLUMNS}, number", "keys", "number", position=-1)

PUT_KEY = """
    INSERT INTO keys (
        id, name, secret_hash, scopes, inboxes, namespaces, accounts, created_at
    ) VALUES (
        :id, :name, :secret_hash, :scopes, :inboxes, :namespaces, :accounts, :created_at
    )
    ON CONFLICT (id) DO UPDATE SET secret_hash = excluded.secret_hash
"""


def add_key(tx: Transaction, key: Key, secret_hash: bytes, *, replaces: bool) -> bool:
    """Keep a key; one with the same id gets the new secret, or stays, which is told."""
    if not replaces and has_key(tx, key.id):
        return False
    tx.run(
        PUT_KEY,
        id=key.id,
        name=key.name,
        secret_hash=secret_hash,
        scopes=dumps(key.scopes),
        inboxes=dumps(key.inboxes),
        namespaces=dumps(key.namespaces),
        accounts=dumps(key.accounts),
        created_at=seconds(key.created_at),
    )
    tx.announce("keys")
    return True


def _key(row: Row) -> Key:
    return Key(
        id=row[0],
        name=row[1],
        scopes=_names(row[2]) or (),
        inboxes=_names(row[3]),
        namespaces=_names(row[4]),
        accounts=_names(row[5]),
        created_at=moment(row[6]),
        last_used_at=None if row[7] is None else moment(row[7]),
    )


def _names(text: str) -> tuple[str, ...] | None:
    """A list that was stored as JSON; null means that there is no limit."""
    names = from_text(text)
    return None if names is None else tuple(names)


def has_key(tx: Transaction, key_id: str) -> bool:
    """Whether there is a key with this id."""
    return tx.one("SELECT 1 FROM keys WHERE id = :id", id=key_id) is not None


def key_of(tx: Transaction, secret_hash: bytes) -> Key | None:
    """The key with this hash."""
    row = tx.one(f"SELECT {_COLUMNS} FROM keys WHERE secret_hash = :hash", hash=secret_hash)
    return _key(row) if row else None


def mark_used(tx: Transaction, key_id: str, now: datetime) -> None:
    """Note that a key was used just now."""
    tx.run("UPDATE keys SET last_used_at = :now WHERE id = :id", now=seconds(now), id=key_id)


def list_keys(tx: Transaction, page: Slice) -> Found[Key]:
    """Oldest first."""
    return _LISTING.page(tx, Conditions(), page, _key)


def remove_key(tx: Transaction, key_id: str) -> bool:
    """Revoke a key."""
    tx.announce("keys")
    return tx.run("DELETE FROM keys WHERE id = :id", id=key_id) > 0
