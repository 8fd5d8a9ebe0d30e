"""What we hold of an account already, as those ask who read its provider."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from postroom.model.inbox import TRASH
from postroom.model.remote import RemoteRef
from postroom.store.sql.accounts import account_number
from postroom.store.sql.values import any_of, dumps
from postroom.store.transaction import Transaction

_AT_ONCE = 500


def unknown_refs(
    tx: Transaction,
    account_id: str,
    refs: Sequence[RemoteRef],
    *,
    untrashed: Collection[RemoteRef] = (),
) -> set[RemoteRef]:
    """Those of the places that we know nothing of.

    What was removed here and lies in Trash there stays unseen, until it is *untrashed*.
    """
    account, _ = account_number(tx, account_id)
    unknown, back = set(refs), frozenset(untrashed)
    by_scope: dict[str, list[str]] = {}
    for ref in refs:
        by_scope.setdefault(ref.scope, []).append(ref.key)
    for scope, keys in by_scope.items():
        for start in range(0, len(keys), _AT_ONCE):
            among, params = any_of("key", keys[start : start + _AT_ONCE])
            rows = tx.all(
                f"""SELECT key, message IS NULL AND mailboxes = :trash FROM remotes
                     WHERE account = :account AND scope = :scope AND key {among}""",
                account=account,
                scope=scope,
                trash=dumps([TRASH]),
                **params,
            )
            found = ((RemoteRef(scope, key), is_let_go) for key, is_let_go in rows)
            unknown -= {ref for ref, is_let_go in found if not (is_let_go and ref in back)}
    return unknown


def scopes(tx: Transaction, account_id: str) -> frozenset[str]:
    """The scopes in which there is something."""
    account, _ = account_number(tx, account_id)
    rows = tx.all("SELECT DISTINCT scope FROM remotes WHERE account = :account", account=account)
    return frozenset(row[0] for row in rows)


def keys(tx: Transaction, account_id: str, scope: str) -> frozenset[str]:
    """What is in a scope and was not called gone."""
    account, _ = account_number(tx, account_id)
    rows = tx.all(
        "SELECT key FROM remotes WHERE account = :account AND scope = :scope AND is_gone = 0",
        account=account,
        scope=scope,
    )
    return frozenset(row[0] for row in rows)


def labels(tx: Transaction, account_id: str) -> frozenset[str]:
    """The labels that are in use in the inbox of an account, or were."""
    _, inbox = account_number(tx, account_id)
    rows = tx.all("SELECT name FROM labels WHERE inbox = :inbox", inbox=inbox)
    return frozenset(row[0] for row in rows)
