"""Sessions of the web pages, and the links that open one, found by the hash of their secret."""

from __future__ import annotations

from datetime import datetime

from postroom.model.key import WebSession
from postroom.store.sql.values import insert, moment, seconds
from postroom.store.transaction import Row, Transaction

_COLUMNS = "id, key_id, user_agent, created_at, expires_at, last_used_at, key_hash"
_MOST_LISTED = 200

FIND = f"SELECT {_COLUMNS} FROM web_sessions WHERE secret_hash = :hash AND expires_at > :now"
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


def mark_used(tx: Transaction, session_id: str, now: datetime) -> None:
    """Record the time of the last use of a session."""
    sql = "UPDATE web_sessions SET last_used_at = :now WHERE id = :id"
    tx.run(sql, now=seconds(now), id=session_id)


def list_web_sessions(
    tx: Transaction, now: datetime, key_id: str | None = None
) -> tuple[WebSession, ...]:
    """The sessions of a key, or of everybody; the newest first."""
    among = "" if key_id is None else "AND key_id = :key_id"
    sql = f"""SELECT {_COLUMNS} FROM web_sessions WHERE expires_at > :now {among}
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
