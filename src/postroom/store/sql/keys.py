"""Keys, found by the hash of their secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from postroom.model.approval import RecipientLists
from postroom.model.key import Key, KeyChange
from postroom.model.page import Found, Slice
from postroom.model.view import named_in
from postroom.store.sql.conditions import Conditions, Listing
from postroom.store.sql.values import (
    any_of,
    dumps,
    from_text,
    moment,
    moment_or_none,
    seconds,
    seconds_or_none,
    view_in,
)
from postroom.store.sql.web_sessions import end_sessions_of_key
from postroom.store.transaction import Row, Transaction

_COLUMNS = """id, name, scopes, inboxes, namespaces, accounts, created_at, last_used_at,
    former_inboxes, expires_at, approval, recipients, client_id"""
_LISTING = Listing(_COLUMNS, "keys", "number")

UPSERT_KEY = """
    INSERT INTO keys (
        id, name, secret_hash, scopes, inboxes, namespaces, accounts, created_at, expires_at,
        approval, recipients, client_id
    ) VALUES (
        :id, :name, :secret_hash, :scopes, :inboxes, :namespaces, :accounts, :created_at,
        :expires_at, :approval, :recipients, :client_id
    )
    ON CONFLICT (id) DO UPDATE SET secret_hash = excluded.secret_hash
"""


def add_key(tx: Transaction, key: Key, secret_hash: bytes, *, replaces: bool) -> bool:
    """Insert a key or replace its secret; False if it exists and is not replaced."""
    if not replaces and has_key(tx, key.id):
        return False
    tx.run(
        UPSERT_KEY,
        id=key.id,
        name=key.name,
        secret_hash=secret_hash,
        scopes=dumps(key.scopes),
        inboxes=dumps(named_in(key.inboxes)),
        namespaces=dumps(named_in(key.namespaces)),
        accounts=dumps(named_in(key.accounts)),
        created_at=seconds(key.created_at),
        approval=key.approval,
        recipients=dumps(key.recipients),
        expires_at=seconds_or_none(key.expires_at),
        client_id=key.client_id,
    )
    end_sessions_of_key(tx, key.id, secret_hash)
    tx.announce("keys")
    return True


def _key(row: Row) -> Key:
    return Key(
        id=row[0],
        name=row[1],
        scopes=tuple(from_text(row[2])),
        inboxes=view_in(row[3]),
        namespaces=view_in(row[4]),
        accounts=view_in(row[5]),
        created_at=moment(row[6]),
        last_used_at=moment_or_none(row[7]),
        former_inboxes=tuple(from_text(row[8])),
        expires_at=moment_or_none(row[9]),
        approval=row[10],
        recipients=recipient_lists(row[11]),
        client_id=row[12],
    )


def recipient_lists(text: str) -> RecipientLists:
    """The lists of a policy from their stored form."""
    return RecipientLists(**{name: tuple(values) for name, values in from_text(text).items()})


def has_key(tx: Transaction, key_id: str) -> bool:
    return tx.one("SELECT 1 FROM keys WHERE id = :id", id=key_id) is not None


def keys_by_id(tx: Transaction, ids: Sequence[str]) -> list[Key]:
    among, params = any_of("id", ids)
    return [_key(row) for row in tx.all(f"SELECT {_COLUMNS} FROM keys WHERE id {among}", **params)]


def key_by_hash(tx: Transaction, secret_hash: bytes) -> Key | None:
    row = tx.one(f"SELECT {_COLUMNS} FROM keys WHERE secret_hash = :hash", hash=secret_hash)
    return _key(row) if row else None


def mark_used(tx: Transaction, key_id: str, now: datetime) -> None:
    """Record the time of the last use of a key."""
    tx.run("UPDATE keys SET last_used_at = :now WHERE id = :id", now=seconds(now), id=key_id)


def list_keys(tx: Transaction, page: Slice) -> Found[Key]:
    """One page of keys, oldest first."""
    return _LISTING.page(tx, Conditions(), page, _key)


def update_key(tx: Transaction, key_id: str, change: KeyChange) -> Key | None:
    """Change a key; None if there is no such key."""
    before = next(iter(keys_by_id(tx, [key_id])), None)
    if before is None:
        return None
    expires_at = None if change.never_expires else change.expires_at or before.expires_at
    policy = change.policy or before.policy
    after = replace(
        before,
        name=change.name or before.name,
        expires_at=expires_at,
        approval=policy.approval,
        recipients=policy.recipients,
    )
    tx.run(
        """UPDATE keys SET name = :name, expires_at = :expires_at, approval = :approval,
                  recipients = :recipients WHERE id = :id""",
        id=key_id,
        name=after.name,
        expires_at=seconds_or_none(expires_at),
        approval=after.approval,
        recipients=dumps(after.recipients),
    )
    tx.announce("keys")
    return after


def remove_key(tx: Transaction, key_id: str) -> bool:
    tx.announce("keys")
    end_sessions_of_key(tx, key_id)
    tx.run("DELETE FROM oauth_tokens WHERE key_id = :id", id=key_id)
    return tx.run("DELETE FROM keys WHERE id = :id", id=key_id) > 0
