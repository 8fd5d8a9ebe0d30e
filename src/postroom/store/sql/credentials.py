"""Keys, OAuth clients and grants, and web sessions, found by the hash of their secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.model.key import Key, KeyChange, OAuthClient, OAuthToken, WebSession
from postroom.model.mail.approval import RecipientLists
from postroom.model.page import Found, Slice
from postroom.model.view import view_names
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    all_among,
    dumps,
    exists,
    from_text,
    insert,
    moment,
    moment_or_none,
    seconds,
    seconds_or_none,
    update,
    view_in,
)
from postroom.store.transaction import Row, Transaction

KEY_COLUMNS = """id, name, scopes, inboxes, namespaces, accounts, created_at, last_used_at,
    former_inboxes, expires_at, approval, recipients, client_id"""
_KEYS = Listing(KEY_COLUMNS, "keys", "number")


def add_key(tx: Transaction, key: Key, secret_hash: bytes, *, replaces: bool = True) -> bool:
    """Insert a key or replace its secret; False if it exists and is not replaced."""
    if not replaces and has_key(tx, key.id):
        return False
    insert(
        tx,
        "keys",
        " ON CONFLICT (id) DO UPDATE SET secret_hash = excluded.secret_hash",
        id=key.id,
        name=key.name,
        secret_hash=secret_hash,
        scopes=dumps(key.scopes),
        inboxes=dumps(view_names(key.inboxes)),
        namespaces=dumps(view_names(key.namespaces)),
        accounts=dumps(view_names(key.accounts)),
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
    return exists(tx, "SELECT 1 FROM keys WHERE id = :id", id=key_id)


def keys_by_id(tx: Transaction, ids: Sequence[str]) -> list[Key]:
    sql = f"SELECT {KEY_COLUMNS} FROM keys WHERE id {{among}}"
    return [_key(row) for row in all_among(tx, sql, ids)]


def key_by_hash(tx: Transaction, secret_hash: bytes) -> Key | None:
    row = tx.one(f"SELECT {KEY_COLUMNS} FROM keys WHERE secret_hash = :hash", hash=secret_hash)
    return _key(row) if row else None


def mark_key_used(tx: Transaction, key_id: str, now: datetime) -> None:
    """Record the time of the last use of a key."""
    update(tx, "keys", {"id": key_id}, last_used_at=seconds(now))


def list_keys(tx: Transaction, page: Slice) -> Found[Key]:
    """One page of keys, oldest first."""
    return _KEYS.page(tx, Conditions(), page, _key)


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
    update(
        tx,
        "keys",
        {"id": key_id},
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


MAX_UNUSED_CLIENTS = 500
"""Registered clients that nobody has granted access yet; the oldest are removed."""

_TOKEN_RETENTION = timedelta(days=1)
"""How long a token stays after its end, so that one that comes again is known."""

_RETURNS_WITHIN = timedelta(days=90)
"""How long a client with a grant stays registered after its last token has expired."""

MAX_TOKENS = 2_000
"""Tokens of one grant that are kept, which is a month of refreshes every hour."""

GRANT_COLUMNS = """kind, key_id, client_id, resource, created_at, expires_at, used_at, redirect_uri,
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
         ORDER BY created_at DESC, secret_hash LIMIT 100 OFFSET :max_tokens)
"""
_SURPLUS_CLIENTS = f"""
    DELETE FROM oauth_clients WHERE id IN (
        SELECT id FROM oauth_clients WHERE is_used = 0
         ORDER BY created_at DESC, id LIMIT 100 OFFSET {MAX_UNUSED_CLIENTS})
"""


def add_oauth_client(
    tx: Transaction, client: OAuthClient, *, now: datetime, expires_at: datetime
) -> None:
    """Store a registered client; of those without a grant, the oldest are removed."""
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
    row = tx.one(
        f"SELECT {GRANT_COLUMNS} FROM oauth_tokens WHERE secret_hash = :hash", hash=secret_hash
    )
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
    grant = next(iter(tokens.values()))
    used = tx.run(
        """UPDATE oauth_tokens SET used_at = :now
            WHERE secret_hash = :hash AND used_at IS NULL AND expires_at > :now""",
        hash=used_hash,
        now=seconds(now),
    )
    if not used:
        remove_key(tx, grant.key_id)
        return None
    for secret_hash, token in tokens.items():
        _add_token(tx, token, secret_hash)
    remove_surplus_tokens(tx, grant.key_id)
    lasts_until = max(token.expires_at for token in tokens.values()) + _RETURNS_WITHIN
    update(tx, "oauth_clients", {"id": grant.client_id}, is_used=1, expires_at=seconds(lasts_until))
    return next(iter(keys_by_id(tx, [grant.key_id])), None)


def remove_surplus_tokens(tx: Transaction, key_id: str, max_tokens: int = MAX_TOKENS) -> None:
    """Remove the oldest tokens of a grant that has too many: its client refreshes all the time."""
    tx.run(_SURPLUS_TOKENS, key_id=key_id, max_tokens=max_tokens)


def remove_token(tx: Transaction, secret_hash: bytes) -> bool:
    """End one access token; its grant stays valid."""
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
    sql = """SELECT DISTINCT key_id FROM oauth_tokens
              WHERE key_id {among} AND expires_at > :now AND used_at IS NULL"""
    return {row[0] for row in all_among(tx, sql, key_ids, now=seconds(now))}


def remove_expired_tokens(tx: Transaction, now: datetime) -> None:
    """Remove tokens a while after their end, and clients that did not come back."""
    before = seconds(now - _TOKEN_RETENTION)
    tx.run("DELETE FROM oauth_tokens WHERE expires_at <= :before", before=before)
    tx.run("DELETE FROM oauth_clients WHERE expires_at <= :now", now=seconds(now))


SESSION_COLUMNS = "id, key_id, user_agent, created_at, expires_at, last_used_at, key_hash"
_MOST_LISTED = 200

FIND = f"SELECT {SESSION_COLUMNS} FROM web_sessions WHERE secret_hash = :hash AND expires_at > :now"
USE_LINK = "DELETE FROM sign_in_links WHERE secret_hash = :hash AND expires_at > :now"


def add_sign_in_link(
    tx: Transaction, secret_hash: bytes, *, expires_at: datetime, now: datetime
) -> None:
    """Store a link that signs in once."""
    tx.run("DELETE FROM sign_in_links WHERE expires_at <= :now", now=seconds(now))
    insert(tx, "sign_in_links", secret_hash=secret_hash, expires_at=seconds(expires_at))


def add_web_session(
    tx: Transaction, session: WebSession, secret_hash: bytes, *, link_hash: bytes | None = None
) -> bool:
    """Store a session; one that a link opens uses the link up, and is refused without it."""
    now = seconds(session.created_at)
    if link_hash is not None and not tx.run(USE_LINK, hash=link_hash, now=now):
        return False
    tx.run("DELETE FROM web_sessions WHERE expires_at <= :now", now=now)
    insert(
        tx,
        "web_sessions",
        id=session.id,
        secret_hash=secret_hash,
        key_id=session.key_id,
        key_hash=session.key_hash,
        user_agent=session.user_agent,
        created_at=now,
        expires_at=seconds(session.expires_at),
        last_used_at=now,
    )
    return True


def _session(row: Row) -> WebSession:
    created_at, expires_at, last_used_at = map(moment, row[3:6])
    key_hash = None if row[6] is None else bytes(row[6])
    return WebSession(row[0], row[1], row[2], created_at, expires_at, last_used_at, key_hash)


def web_session(tx: Transaction, secret_hash: bytes, now: datetime) -> WebSession | None:
    """The session, unless it has expired."""
    row = tx.one(FIND, hash=secret_hash, now=seconds(now))
    return _session(row) if row else None


def mark_session_used(tx: Transaction, session_id: str, now: datetime) -> None:
    """Record the time of the last use of a session."""
    update(tx, "web_sessions", {"id": session_id}, last_used_at=seconds(now))


def list_web_sessions(
    tx: Transaction, now: datetime, key_id: str | None = None
) -> tuple[WebSession, ...]:
    """The sessions of a key, or of everybody; the newest first."""
    among = "" if key_id is None else "AND key_id = :key_id"
    sql = f"""SELECT {SESSION_COLUMNS} FROM web_sessions WHERE expires_at > :now {among}
               ORDER BY created_at DESC, id LIMIT {_MOST_LISTED}"""
    params = {} if key_id is None else {"key_id": key_id}
    return tuple(map(_session, tx.all(sql, now=seconds(now), **params)))


def remove_web_sessions(
    tx: Transaction, session_id: str | None = None, key_id: str | None = None
) -> int:
    """End one session or all, of a key or of everybody; returns how many."""
    named = {"id": session_id, "key_id": key_id}
    params = {name: value for name, value in named.items() if value is not None}
    among = "".join(f" AND {name} = :{name}" for name in params)
    tx.announce("keys")
    return tx.run(f"DELETE FROM web_sessions WHERE 1 = 1{among}", **params)


def end_sessions_of_key(tx: Transaction, key_id: str, except_hash: bytes | None = None) -> None:
    """End the sessions that were opened with a key, or with its secrets before this one."""
    tx.run(
        """DELETE FROM web_sessions
            WHERE key_id = :key_id AND key_hash IS NOT NULL AND key_hash <> :hash""",
        key_id=key_id,
        hash=except_hash or b"",
    )
