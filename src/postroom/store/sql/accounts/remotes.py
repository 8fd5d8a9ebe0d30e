"""Remote messages: where a message is at its provider, and changes made there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from postroom.model.account import (
    Push,
    Pushed,
    Refusal,
    RefusedChange,
    RemoteChanges,
    RemoteMessage,
    RemoteRef,
)
from postroom.model.inbox import DRAFTS, OUTBOX, SENT, TRASH
from postroom.model.mail.message import BlobKey, MessageState
from postroom.model.mail.storage import Added, Change, NewMessage
from postroom.model.view import EVERYTHING
from postroom.store.sql.accounts.accounts import account_number, set_refusal
from postroom.store.sql.accounts.pushes import (
    Delta,
    account_feeding,
    insert_push,
    insert_removal_push,
)
from postroom.store.sql.events import MessageRef, add_event
from postroom.store.sql.messages.message_changes import (
    change_messages,
    message_state,
    number_of,
    remove_number,
    set_message_state,
)
from postroom.store.sql.messages.message_insert import add_message
from postroom.store.sql.statements import all_among, caseless, dumps, exists, from_text
from postroom.store.transaction import Transaction

KNOWN = """
    SELECT key, message IS NULL AND mailboxes = :trash FROM remote_messages
     WHERE account = :account AND scope = :scope AND key {among}
"""


def unknown_refs(
    tx: Transaction,
    account_id: str,
    refs: Sequence[RemoteRef],
    *,
    untrashed: Collection[RemoteRef] = (),
) -> set[RemoteRef]:
    """The places that are not known.

    A message that was removed here and is in Trash there stays known until it is *untrashed*.
    """
    account, _ = account_number(tx, account_id)
    unknown, back = set(refs), frozenset(untrashed)
    by_scope: dict[str, list[str]] = {}
    for ref in refs:
        by_scope.setdefault(ref.scope, []).append(ref.key)
    which = {"account": account, "trash": dumps([TRASH])}
    for scope, keys in by_scope.items():
        rows = all_among(tx, KNOWN, keys, **which, scope=scope)
        found = ((RemoteRef(scope, key), is_deleted_here) for key, is_deleted_here in rows)
        unknown -= {ref for ref, is_deleted_here in found if not (is_deleted_here and ref in back)}
    return unknown


def scopes(tx: Transaction, account_id: str) -> frozenset[str]:
    """The scopes that have messages."""
    account, _ = account_number(tx, account_id)
    rows = tx.all("SELECT DISTINCT scope FROM remote_messages WHERE account = :n", n=account)
    return frozenset(row[0] for row in rows)


def keys(tx: Transaction, account_id: str, scope: str) -> frozenset[str]:
    """The keys of a scope that are not marked as removed."""
    account, _ = account_number(tx, account_id)
    rows = tx.all(
        """SELECT key FROM remote_messages
            WHERE account = :account AND scope = :scope AND is_removed = 0""",
        account=account,
        scope=scope,
    )
    return frozenset(row[0] for row in rows)


def labels(tx: Transaction, account_id: str) -> frozenset[str]:
    """The labels of the inbox of an account, used or not."""
    _, inbox = account_number(tx, account_id)
    rows = tx.all("SELECT name FROM labels WHERE inbox = :inbox", inbox=inbox)
    return frozenset(row[0] for row in rows)


_MAX_DETAIL = 1000
_CHANGE_FIELDS = (
    "flags",
    "labels",
    "add_flags",
    "remove_flags",
    "add_labels",
    "remove_labels",
    "move_to",
)
_CHANGE_OF_KIND: dict[str, dict[str, object]] = {
    "save_sent": {"copy_to": SENT},
    "drop_draft": {"drop_draft": True},
    "delete": {"delete": True},
}
INSERT = """
    INSERT INTO remote_messages (account, scope, key, message, mailboxes, is_removed)
    VALUES (:account, :scope, :key, :message, :mailboxes, 0)
    ON CONFLICT (account, scope, key) DO UPDATE
       SET message = excluded.message, mailboxes = excluded.mailboxes, is_removed = 0
"""
_REMOTE_KEY = "account = :account AND scope = :scope AND key = :key"
FIND = f"SELECT message, mailboxes FROM remote_messages WHERE {_REMOTE_KEY}"
PLACED = "SELECT 1 FROM remote_messages WHERE message = :message LIMIT 1"
LIVE = """
    SELECT mailboxes FROM remote_messages WHERE message = :message AND is_removed = 0
     ORDER BY scope, key
"""
SENT_BY_US = """
    SELECT m.number, m.id, t.id
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.inbox = :inbox AND m.internet_id = :internet_id AND m.is_outbound = 1
       AND NOT EXISTS (SELECT 1 FROM remote_messages r
        WHERE r.message = m.number AND r.is_removed = 0)
     ORDER BY m.number LIMIT 1
"""
THREAD = """
    SELECT t.id FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE +m.inbox = :inbox AND m.id = :id
"""
ABANDONED = """
    SELECT DISTINCT r.message FROM remote_messages r
     WHERE r.account = :account AND r.is_removed = 1 AND r.message IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM remote_messages o
        WHERE o.message = r.message AND o.is_removed = 0)
       AND r.message NOT IN (SELECT o.message FROM outbox o
                              WHERE o.inbox = :inbox AND o.state <> 'done')
     LIMIT :limit
"""
DELETE_PLACES = """
    DELETE FROM remote_messages
     WHERE account = :account AND is_removed = 1
       AND (message IS NULL OR message NOT IN (SELECT o.message FROM outbox o
                                                WHERE o.inbox = :inbox AND o.state <> 'done'))
"""


def add_remote(
    tx: Transaction, account_id: str, arrivals: Sequence[tuple[NewMessage, RemoteMessage]]
) -> list[Added]:
    """Insert mail from a provider; mail that arrived another way before is the same message."""
    account, inbox = account_number(tx, account_id)
    return [_add(tx, account, inbox, message, remote) for message, remote in arrivals]


def _add(
    tx: Transaction, account: int, inbox: int, message: NewMessage, remote: RemoteMessage
) -> Added:
    as_there = replace(
        message, flags=remote.flags, labels=remote.labels or (), mailboxes=remote.mailboxes
    )
    own = _sent_by_us(tx, inbox, message)
    added = own or add_message(tx, as_there)
    number = number_of(tx, inbox, added.message_id)
    is_first = own is not None and not exists(tx, PLACED, message=number)
    _insert_remote_message(tx, account, remote.ref, number, remote.mailboxes)
    if is_first:
        _push_state(tx, inbox, number, added.message_id, remote)
    elif added.is_duplicate:
        _apply_remote(tx, inbox, number, remote)
    elif (change := _by_rules(as_there, message)) != Change():
        for failed in change_messages(tx, [added.message_id], change, EVERYTHING).failed:
            about = MessageRef(inbox, added.thread_id, added.message_id)
            data = _refusal_data(failed.message, change)
            add_event(tx, "message.refused", message.received_at, about, data)
    return added


def _by_rules(before: NewMessage, after: NewMessage) -> Change:
    """The changes that rules made to a message on arrival, for the provider."""
    return Change(
        flags=None if before.flags == after.flags else after.flags,
        labels=None if before.labels == after.labels else after.labels,
        move_to=None if before.mailboxes == after.mailboxes else after.mailboxes[0],
    )


def _sent_by_us(tx: Transaction, inbox: int, message: NewMessage) -> Added | None:
    """The sent message of which this is a copy, found by its Message-ID."""
    if message.direction != "outbound" or message.internet_message_id is None:
        return None
    row = tx.one(SENT_BY_US, inbox=inbox, internet_id=message.internet_message_id)
    return Added(row[1], row[2], is_duplicate=True) if row else None


def _insert_remote_message(
    tx: Transaction, account: int, ref: RemoteRef, number: int | None, mailboxes: Sequence[str]
) -> None:
    tx.run(
        INSERT,
        account=account,
        scope=ref.scope,
        key=ref.key,
        message=number,
        mailboxes=dumps(list(mailboxes)),
    )


def apply_changes(tx: Transaction, account_id: str, changes: RemoteChanges) -> None:
    """Apply the changes of a provider, and store the checkpoint."""
    account, inbox = account_number(tx, account_id)
    _apply_all(tx, account, inbox, changes.messages)
    for ref in changes.removed:
        _remove_place(tx, account, inbox, ref)
    for scope in changes.removed_scopes:
        for key in keys(tx, account_id, scope):
            _remove_place(tx, account, inbox, RemoteRef(scope, key))
    tx.run(
        """UPDATE accounts SET checkpoint = :checkpoint, total = coalesce(:total, total)
            WHERE number = :account""",
        checkpoint=dumps(changes.checkpoint),
        total=changes.total,
        account=account,
    )


def _apply_all(tx: Transaction, account: int, inbox: int, found: Sequence[RemoteMessage]) -> None:
    for remote in found:
        row = tx.one(FIND, account=account, scope=remote.ref.scope, key=remote.ref.key)
        if row is not None and row[0] is not None:
            _insert_remote_message(tx, account, remote.ref, row[0], remote.mailboxes)
            _apply_remote(tx, inbox, row[0], remote)


def abandon_push(tx: Transaction, account_id: str, push: Push, refusal: Refusal) -> None:
    """Delete a push that failed, restore the state at the provider, and add an event."""
    account, inbox = account_number(tx, account_id)
    tx.run("DELETE FROM pushes WHERE number = :n", n=push.number)
    if push.kind == "delete":
        for ref, _ in push.refs:
            _remove_place(tx, account, inbox, ref)
    _apply_all(tx, account, inbox, refusal.remote_messages)
    refused = RefusedChange(
        refusal.at, push.message_id, _changed_fields(push), refusal.reason[:_MAX_DETAIL]
    )
    set_refusal(tx, account, refused)
    row = tx.one(THREAD, inbox=inbox, id=push.message_id)
    if row is not None:
        about = MessageRef(inbox, row[0], push.message_id)
        add_event(tx, "message.refused", refusal.at, about, _refusal_data(refusal.reason, push))


def _refusal_data(detail: str, change: Push | Change) -> dict[str, object]:
    """The event data of a refused change."""
    return {"detail": detail[:_MAX_DETAIL], "change": _changed_fields(change)}


def _changed_fields(change: Push | Change) -> dict[str, object]:
    if isinstance(change, Push) and change.kind in _CHANGE_OF_KIND:
        return _CHANGE_OF_KIND[change.kind]
    return {name: value for name in _CHANGE_FIELDS if (value := getattr(change, name, None))}


def _remove_place(tx: Transaction, account: int, inbox: int, ref: RemoteRef) -> None:
    """Mark a place as removed; messages without any place are removed after the sync pass."""
    remote_key = {"account": account, "scope": ref.scope, "key": ref.key}
    row = tx.one(FIND, **remote_key)
    if row is None:
        return
    if row[0] is None:
        tx.run(f"DELETE FROM remote_messages WHERE {_REMOTE_KEY}", **remote_key)
        return
    tx.run(f"UPDATE remote_messages SET is_removed = 1 WHERE {_REMOTE_KEY}", **remote_key)
    now = message_state(tx, inbox, row[0])
    mailboxes = _mailboxes(tx, row[0], now)
    if mailboxes and not _is_being_pushed(tx, row[0]):
        set_message_state(tx, inbox, row[0], replace(now, mailboxes=mailboxes))


def _apply_remote(tx: Transaction, inbox: int, number: int, remote: RemoteMessage) -> None:
    """Set flags, labels and mailboxes from the provider, unless a push of it is pending."""
    if _is_being_pushed(tx, number):
        return
    now = message_state(tx, inbox, number)
    labels = now.labels if remote.labels is None else _spelled(remote.labels, now.labels)
    flags = (*remote.flags, *(flag for flag in now.flags if flag in remote.unsupported_flags))
    mailboxes = _mailboxes(tx, number, now)
    after = MessageState(labels=labels, flags=flags, mailboxes=mailboxes)
    set_message_state(tx, inbox, number, after)


def _push_state(
    tx: Transaction, inbox: int, number: int, message_id: str, remote: RemoteMessage
) -> None:
    """Push the flags, labels and mailbox of a sent message to the new copy at the provider."""
    now, feeding_account = message_state(tx, inbox, number), account_feeding(tx, inbox)
    flags, labels = remote.flags, _spelled(remote.labels or (), now.labels)
    was_moved = SENT not in now.mailboxes and OUTBOX not in now.mailboxes
    is_moved = SENT in remote.mailboxes and was_moved
    new = Delta(
        add_flags=tuple(f for f in now.flags if f not in (*flags, *remote.unsupported_flags)),
        add_labels=tuple(n for n in now.labels if remote.labels is not None and n not in labels),
        move_to=now.mailboxes[0] if is_moved and not _is_being_pushed(tx, number) else None,
    )
    flags = tuple(dict.fromkeys((*now.flags, *flags)))
    labels = tuple(dict.fromkeys((*now.labels, *labels)))
    mailboxes = now.mailboxes if is_moved else _mailboxes(tx, number, now)
    after = MessageState(labels=labels, flags=flags, mailboxes=mailboxes)
    set_message_state(tx, inbox, number, after)
    if feeding_account is not None:
        insert_push(tx, feeding_account, number, message_id, new)


def _spelled(names: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    """Names in their local spelling; some providers return them in lower case only."""
    known = {caseless(name): name for name in present}
    return tuple(known.get(caseless(name), name) for name in names)


def _mailboxes(tx: Transaction, number: int, now: MessageState) -> tuple[str, ...]:
    """The mailboxes at the provider; Outbox is ours, and its mail may be a draft there."""
    found: dict[str, str] = {}
    for row in tx.all(LIVE, message=number):
        for name in from_text(row[0]):
            found.setdefault(caseless(name), name)
    there = tuple(found.values())
    return now.mailboxes if OUTBOX in now.mailboxes and there == (DRAFTS,) else there


def _is_being_pushed(tx: Transaction, number: int) -> bool:
    return exists(tx, "SELECT 1 FROM pushes WHERE message = :n LIMIT 1", n=number)


def settle_push(tx: Transaction, account_id: str, push: Push, pushed: Pushed) -> None:
    """Delete a push that succeeded, and store the new places of the message.

    A copy is removed at the provider if its message was removed here meanwhile, or if the provider
    stores a copy itself.
    """
    account, inbox = account_number(tx, account_id)
    row = tx.one("SELECT message FROM pushes WHERE number = :n", n=push.number)
    tx.run("DELETE FROM pushes WHERE number = :n", n=push.number)
    number = row[0] if row else _of_copy(tx, inbox, push)
    for ref, mailboxes in pushed.added_refs:
        _insert_remote_message(tx, account, ref, number, mailboxes)
    for ref in pushed.removed_refs:
        _remove_place(tx, account, inbox, ref)
    if row is None and number is None and push.kind == "save_sent" and pushed.added_refs:
        insert_removal_push(tx, account, push.message_id, pushed.added_refs)


def _of_copy(tx: Transaction, inbox: int, push: Push) -> int | None:
    """The message of a copy that is to be sent again, where the provider sends the copy itself."""
    feeding_account = account_feeding(tx, inbox)
    if (
        push.kind != "save_sent"
        or feeding_account is None
        or not feeding_account.traits.sends_sent_copy
    ):
        return None
    return number_of(tx, inbox, push.message_id) or None


def remove_remotely_deleted(
    tx: Transaction, account_id: str, limit: int
) -> tuple[int, tuple[BlobKey, ...]]:
    """Remove messages that have no place at the provider; call it after a complete sync pass.

    A moved message has its new place by then. A message in the outbox stays until it is sent.
    """
    account, inbox = account_number(tx, account_id)
    unused: list[BlobKey] = []
    rows = tx.all(ABANDONED, account=account, inbox=inbox, limit=limit)
    for (number,) in rows:
        unused += remove_number(tx, inbox, number)
        tx.run("DELETE FROM remote_messages WHERE message = :n", n=number)
        tx.run("DELETE FROM pushes WHERE message = :n", n=number)
    if not rows:
        tx.run(DELETE_PLACES, account=account, inbox=inbox)
    return len(rows), tuple(unused)
