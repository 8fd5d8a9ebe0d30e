"""OAuth clients, and the codes and tokens of grants, found by the hash of their secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.model.key import Key
from postroom.model.oauth import OAuthClient, OAuthToken
from postroom.store.sql.keys import add_key, keys_by_id, remove_key
from postroom.store.sql.values import (
    any_of,
    dumps,
    from_text,
    insert,
    moment,
    moment_or_none,
    seconds,
)
from postroom.store.transaction import Row, Transaction

MAX_UNUSED_CLIENTS = 500
"""Clients that registered and that nobody has let in yet; the oldest make way."""

_KEPT_FOR = timedelta(days=1)
"""How long a token stays after its end, so that one that comes again is known."""

_RETURNS_WITHIN = timedelta(days=90)
"""How long a client that was let in stays registered after its last token has expired."""

MAX_TOKENS = 2_000
"""Tokens of one grant that are kept, which is a month of refreshes every hour."""

_COLUMNS = """kind, key_id, client_id, resource, created_at, expires_at, used_at, redirect_uri,
    code_challenge"""
_UNFINISHED_GRANTS = """
    SELECT id FROM keys k WHERE client_id IS NOT NULL AND last_used_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM oauth_tokens t
         WHERE t.key_id = k.id AND t.expires_at > :now AND t.used_at IS NULL)
     ORDER BY id LIMIT 100
"""
_SURPLUS_TOKENS = """
    DELETE FROM oauth_tokens WHERE secret_hash IN (
        SELECT secret_hash FROM oauth_tokens WHERE key_id = :key_id
         ORDER BY created_at DESC, secret_hash LIMIT 100 OFFSET :most)
"""
_SURPLUS_CLIENTS = f"""
    DELETE FROM oauth_clients WHERE id IN (
        SELECT id FROM oauth_clients WHERE is_used = 0
         ORDER BY created_at DESC, id LIMIT 100 OFFSET {MAX_UNUSED_CLIENTS})
"""


def add_oauth_client(
    tx: Transaction, client: OAuthClient, *, now: datetime, expires_at: datetime
) -> None:
    """Store a client that registered; of those that nobody let in, the oldest make way."""
    tx.run("DELETE FROM oauth_clients WHERE expires_at <= :now", now=seconds(now))
    insert(
        tx,
        "oauth_clients",
        id=client.id,
        name=client.name,
        redirect_uris=dumps(client.redirect_uris),
        created_at=seconds(now),
        expires_at=seconds(expires_at),
    )
    tx.run(_SURPLUS_CLIENTS)


def oauth_client(tx: Transaction, client_id: str, now: datetime) -> OAuthClient | None:
    """A client that registered, unless its registration has expired."""
    row = tx.one(
        """SELECT id, name, redirect_uris FROM oauth_clients
            WHERE id = :id AND expires_at > :now""",
        id=client_id,
        now=seconds(now),
    )
    return OAuthClient(row[0], row[1], tuple(from_text(row[2]))) if row else None


def add_grant(
    tx: Transaction, key: Key, secret_hash: bytes, code: OAuthToken, code_hash: bytes
) -> None:
    """Store a grant, which is a key that nobody has the secret of, and its code."""
    add_key(tx, key, secret_hash, replaces=False)
    _add_token(tx, code, code_hash)


def _add_token(tx: Transaction, token: OAuthToken, secret_hash: bytes) -> None:
    insert(
        tx,
        "oauth_tokens",
        secret_hash=secret_hash,
        kind=token.kind,
        key_id=token.key_id,
        client_id=token.client_id,
        resource=token.resource,
        created_at=seconds(token.created_at),
        expires_at=seconds(token.expires_at),
        redirect_uri=token.redirect_uri,
        code_challenge=token.code_challenge,
    )


def oauth_token(tx: Transaction, secret_hash: bytes) -> OAuthToken | None:
    """A code or token, also one that was used or has expired."""
    row = tx.one(f"SELECT {_COLUMNS} FROM oauth_tokens WHERE secret_hash = :hash", hash=secret_hash)
    return _token(row) if row else None


def _token(row: Row) -> OAuthToken:
    kind, key_id, client_id, resource, created_at, expires_at, used_at, *of_code = row
    times = moment(created_at), moment(expires_at), moment_or_none(used_at)
    return OAuthToken(kind, key_id, client_id, resource, *times, *of_code)


def exchange_token(
    tx: Transaction, used_hash: bytes, tokens: Mapping[bytes, OAuthToken], *, now: datetime
) -> Key | None:
    """Use up a code or refresh token and store what replaces it, by hash; returns the grant.

    None if it was used before, even at the same time: then the grant has ended, because one of
    those who had it has stolen it.
    """
    key_id = next(iter(tokens.values())).key_id
    used = tx.run(
        """UPDATE oauth_tokens SET used_at = :now
            WHERE secret_hash = :hash AND used_at IS NULL AND expires_at > :now""",
        hash=used_hash,
        now=seconds(now),
    )
    if not used:
        remove_key(tx, key_id)
        return None
    for secret_hash, token in tokens.items():
        _add_token(tx, token, secret_hash)
    remove_surplus_tokens(tx, key_id)
    lasts_until = max(token.expires_at for token in tokens.values()) + _RETURNS_WITHIN
    tx.run(
        "UPDATE oauth_clients SET is_used = 1, expires_at = :until WHERE id = :id",
        until=seconds(lasts_until),
        id=next(iter(tokens.values())).client_id,
    )
    return next(iter(keys_by_id(tx, [key_id])), None)


def remove_surplus_tokens(tx: Transaction, key_id: str, most: int = MAX_TOKENS) -> None:
    """Remove the oldest tokens of a grant that has too many: its client refreshes all the time."""
    tx.run(_SURPLUS_TOKENS, key_id=key_id, most=most)


def remove_token(tx: Transaction, secret_hash: bytes) -> bool:
    """End one access token; its grant goes on."""
    tx.announce("keys")
    return tx.run("DELETE FROM oauth_tokens WHERE secret_hash = :hash", hash=secret_hash) > 0


def key_by_access_token(tx: Transaction, secret_hash: bytes, now: datetime) -> Key | None:
    """The grant of an access token, which ends with the token; None if the token has expired."""
    token = oauth_token(tx, secret_hash)
    if token is None or token.kind != "access" or token.expires_at <= now:
        return None
    key = next(iter(keys_by_id(tx, [token.key_id])), None)
    if key is None:
        return None
    ends = min(key.expires_at or token.expires_at, token.expires_at)
    return replace(key, expires_at=ends, resource=token.resource)


def unfinished_grants(tx: Transaction, now: datetime) -> list[str]:
    """The ids of grants that were never used, and that no code or token is valid for any more."""
    return [row[0] for row in tx.all(_UNFINISHED_GRANTS, now=seconds(now))]


def signed_in_grants(tx: Transaction, key_ids: Sequence[str], now: datetime) -> set[str]:
    """Those of some grants that a token is valid for."""
    among, params = any_of("key_id", key_ids)
    sql = f"""SELECT DISTINCT key_id FROM oauth_tokens
               WHERE key_id {among} AND expires_at > :now AND used_at IS NULL"""
    return {row[0] for row in tx.all(sql, **params, now=seconds(now))}


def remove_expired_tokens(tx: Transaction, now: datetime) -> None:
    """Remove tokens a while after their end, and clients that did not come back."""
    before = seconds(now - _KEPT_FOR)
    tx.run("DELETE FROM oauth_tokens WHERE expires_at <= :before", before=before)
    tx.run("DELETE FROM oauth_clients WHERE expires_at <= :now", now=seconds(now))
