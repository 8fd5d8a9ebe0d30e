"""Accounts: create, find, and the state of their synchronisation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.account import Account, AccountState, RefusedChange, RemoteRef, Unfetched
from postroom.model.inbox import OWNERS_RIGHTS, AddressRights, Inbox, Visible
from postroom.model.page import Found, Slice
from postroom.store.sql.inboxes import add_inbox
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    all_among,
    dumps,
    from_text,
    inbox_number,
    insert,
    moment,
    moment_or_none,
    scalar,
    seconds,
    update,
)
from postroom.store.transaction import Row, Transaction

_COLUMNS = """a.id, a.provider, a.address, i.id, a.state, a.detail,
    (SELECT count(*) FROM messages m WHERE m.inbox = a.inbox), a.total, a.synced_at, a.created_at,
    a.options, a.refusal"""
_TABLES = "accounts a JOIN inboxes i ON i.number = a.inbox"
_LISTING = Listing(_COLUMNS, _TABLES, "a.number")


def _account(row: Row) -> Account:
    return Account(
        id=row[0],
        provider=row[1],
        address=row[2],
        inbox_id=row[3],
        state=row[4],
        detail=row[5],
        synced=row[6],
        total=row[7] if row[8] is None else None,
        synced_at=moment_or_none(row[8]),
        created_at=moment(row[9]),
        last_refusal=_refusal(row[11]),
        options=from_text(row[10]),
    )


def _refusal(text: str | None) -> RefusedChange | None:
    if text is None:
        return None
    at, message_id, change, detail = from_text(text)
    return RefusedChange(moment(at), message_id, change, detail)


def set_refusal(tx: Transaction, account: int, refused: RefusedChange) -> None:
    """Record the last change that a provider refused."""
    row = [seconds(refused.at), refused.message_id, refused.change, refused.detail]
    update(tx, "accounts", {"number": account}, refusal=dumps(row))


def add_account(
    tx: Transaction, account: Account, name: str, rights: AddressRights = OWNERS_RIGHTS
) -> None:
    """Insert an account and its inbox. Raises Conflict and Forbidden."""
    if tx.one("SELECT 1 FROM accounts WHERE id = :id", id=account.id):
        raise Conflict(f"the account {account.id} already exists; choose another name")
    inbox = Inbox(account.inbox_id, account.address, name, account.id, account.created_at)
    add_inbox(tx, inbox, None, b"", rights)
    insert(
        tx,
        "accounts",
        id=account.id,
        provider=account.provider,
        address=account.address,
        inbox=inbox_number(tx, inbox.id),
        options=dumps(account.options),
        state=account.state,
        detail=account.detail,
        created_at=seconds(account.created_at),
    )
    tx.announce("accounts")


def list_accounts(tx: Transaction, visible: Visible, page: Slice) -> Found[Account]:
    """One page of accounts, oldest first."""
    where = Conditions()
    where.within("i.id", visible)
    return _LISTING.page(tx, where, page, _account)


def get_account(tx: Transaction, account_id: str, visible: Visible) -> Account | None:
    """The account, if the caller can see its inbox."""
    row = tx.one(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE a.id = :id", id=account_id)
    if row is None or not visible.sees(row[3]):
        return None
    return _account(row)


def inboxes_of(tx: Transaction, account_ids: Collection[str]) -> frozenset[str]:
    """The inboxes of these accounts; unknown accounts are ignored."""
    rows = all_among(tx, f"SELECT i.id FROM {_TABLES} WHERE a.id {{among}}", sorted(account_ids))
    return frozenset(row[0] for row in rows)


def change_account(tx: Transaction, account_id: str, options: dict[str, Any]) -> None:
    """Set the options of an account and its state to `new`, after another sign-in."""
    update(tx, "accounts", {"id": account_id}, options=dumps(options), state="new", detail="")
    tx.announce("accounts")


def set_account_state(
    tx: Transaction,
    account_id: str,
    state: AccountState,
    detail: str = "",
    *,
    synced_at: datetime | None = None,
) -> None:
    """Set the state of an account; the time is given when all of it was read."""
    synced = {} if synced_at is None else {"synced_at": seconds(synced_at)}
    update(tx, "accounts", {"id": account_id}, state=state, detail=detail[:1000], **synced)


def set_capabilities(tx: Transaction, account_id: str, capabilities: dict[str, Any]) -> None:
    """Store the capabilities that an account was found to have."""
    update(tx, "accounts", {"id": account_id}, capabilities=dumps(capabilities))


def capabilities_of(tx: Transaction, account_id: str) -> dict[str, Any] | None:
    stored = scalar(tx, "SELECT capabilities FROM accounts WHERE id = :id", id=account_id)
    return from_text(stored) if stored else None


def request_sync(tx: Transaction, account_id: str, now: datetime) -> None:
    """Request a sync pass of an account. Raises NotFound."""
    changed = tx.run(
        """UPDATE accounts SET sync_requested_at = CASE WHEN coalesce(sync_requested_at, 0) >= :now
                  THEN sync_requested_at + 1 ELSE :now END WHERE id = :id""",
        now=seconds(now),
        id=account_id,
    )
    if not changed:
        raise NotFound(no_such("account", account_id))
    tx.announce("accounts")


def sync_requested_at(tx: Transaction, account_id: str) -> int:
    """The time of the last request for a sync pass, in seconds; 0 if there was none."""
    sql = "SELECT sync_requested_at FROM accounts WHERE id = :id"
    return int(scalar(tx, sql, id=account_id) or 0)


def checkpoint_of(tx: Transaction, account_id: str) -> dict[str, Any] | None:
    """The checkpoint of the last sync pass."""
    stored = scalar(tx, "SELECT checkpoint FROM accounts WHERE id = :id", id=account_id)
    return from_text(stored) if stored else None


def unfetched_of(tx: Transaction, account_id: str) -> tuple[Unfetched, ...]:
    """The messages that the provider listed but failed to return."""
    stored = scalar(tx, "SELECT unfetched FROM accounts WHERE id = :id", id=account_id)
    return tuple(
        Unfetched(RemoteRef(scope, key), attempts, moment(at))
        for scope, key, attempts, at in from_text(stored or "[]")
    )


def set_unfetched(tx: Transaction, account_id: str, unfetched: Sequence[Unfetched]) -> None:
    """Store the messages that must be fetched again."""
    rows = [[*one.ref, one.attempts, seconds(one.next_at)] for one in unfetched]
    update(tx, "accounts", {"id": account_id}, unfetched=dumps(rows) if rows else None)


def account_number(tx: Transaction, account_id: str) -> tuple[int, int]:
    """The numbers of an account and of its inbox. Raises NotFound when it was removed."""
    row = tx.one("SELECT number, inbox FROM accounts WHERE id = :id", id=account_id)
    if row is None:
        raise NotFound(no_such("account", account_id))
    return row[0], row[1]
