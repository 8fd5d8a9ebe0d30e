"""Mail of accounts: which message is where at its provider, and what follows from changes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from postroom.model.account import RefusedChange
from postroom.model.attachment import BlobKey
from postroom.model.inbox import SENT
from postroom.model.remote import (
    Push,
    Pushed,
    Refusal,
    RemoteChanges,
    RemoteMessage,
    RemoteRef,
)
from postroom.model.stored import Added, Change, NewMessage
from postroom.store.sql.accounts import account_number, set_refusal
from postroom.store.sql.adding import add_message
from postroom.store.sql.changing import (
    Standing,
    change_messages,
    number_of,
    remove_number,
    set_standing,
    standing,
)
from postroom.store.sql.events import About, add_event
from postroom.store.sql.pushes import Delta, origin_of, put_push, put_removal
from postroom.store.sql.remote_places import keys
from postroom.store.sql.values import caseless, dumps, from_text
from postroom.store.transaction import Transaction

_SAID = 1000
_WANTED = ("flags", "labels", "add_flags", "remove_flags", "add_labels", "remove_labels", "move_to")
INSERT = """
    INSERT INTO remotes (account, scope, key, message, mailboxes, is_gone)
    VALUES (:account, :scope, :key, :message, :mailboxes, 0)
    ON CONFLICT (account, scope, key) DO UPDATE
       SET message = excluded.message, mailboxes = excluded.mailboxes, is_gone = 0
"""
FIND = """
    SELECT message, mailboxes FROM remotes
     WHERE account = :account AND scope = :scope AND key = :key
"""
PLACED = "SELECT 1 FROM remotes WHERE message = :message LIMIT 1"
LIVE = "SELECT mailboxes FROM remotes WHERE message = :message AND is_gone = 0 ORDER BY scope, key"
SENT_BY_US = """
    SELECT m.number, m.id, t.id
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.inbox = :inbox AND m.internet_id = :internet_id AND m.is_outbound = 1
       AND NOT EXISTS (SELECT 1 FROM remotes r WHERE r.message = m.number AND r.is_gone = 0)
     ORDER BY m.number LIMIT 1
"""
THREAD = """
    SELECT t.id FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE +m.inbox = :inbox AND m.id = :id
"""
ABANDONED = """
    SELECT DISTINCT r.message FROM remotes r
     WHERE r.account = :account AND r.is_gone = 1 AND r.message IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM remotes o WHERE o.message = r.message AND o.is_gone = 0)
       AND r.message NOT IN (SELECT o.message FROM outbox o
                              WHERE o.inbox = :inbox AND o.state <> 'done')
     LIMIT :limit
"""
FORGET_PLACES = """
    DELETE FROM remotes
     WHERE account = :account AND is_gone = 1
       AND (message IS NULL OR message NOT IN (SELECT o.message FROM outbox o
                                                WHERE o.inbox = :inbox AND o.state <> 'done'))
"""


def add_remote(
    tx: Transaction, account_id: str, arrivals: Sequence[tuple[NewMessage, RemoteMessage]]
) -> list[Added]:
    """Keep mail from a provider; what came by another way before is the same message."""
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
    is_first = own is not None and tx.one(PLACED, message=number) is None
    _place(tx, account, remote.ref, number, remote.mailboxes)
    if is_first:
        _tell_standing(tx, inbox, number, added.message_id, remote)
    elif added.is_duplicate:
        _follow(tx, inbox, number, remote)
    elif (change := _by_rules(as_there, message)) != Change():
        for failed in change_messages(tx, [added.message_id], change, None).failed:
            about = About(inbox, added.thread_id, added.message_id)
            told = _refused(failed.message, change)
            add_event(tx, "message.refused", message.received_at, about, told)
    return added


def _by_rules(before: NewMessage, after: NewMessage) -> Change:
    """What rules have changed on a message at its arrival; its provider is to hear of it."""
    return Change(
        flags=None if before.flags == after.flags else after.flags,
        labels=None if before.labels == after.labels else after.labels,
        move_to=None if before.mailboxes == after.mailboxes else after.mailboxes[0],
    )


def _sent_by_us(tx: Transaction, inbox: int, message: NewMessage) -> Added | None:
    """Our own copy of a mail that the provider took, and perhaps rewrote: its id tells."""
    if message.direction != "outbound" or message.internet_message_id is None:
        return None
    row = tx.one(SENT_BY_US, inbox=inbox, internet_id=message.internet_message_id)
    return Added(row[1], row[2], is_duplicate=True) if row else None


def _place(
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
    """Let what we know follow what the provider says, and write down how far we have read."""
    account, inbox = account_number(tx, account_id)
    _follow_all(tx, account, inbox, changes.messages)
    for ref in changes.gone:
        _leave(tx, account, inbox, ref)
    for scope in changes.dropped:
        for key in keys(tx, account_id, scope):
            _leave(tx, account, inbox, RemoteRef(scope, key))
    tx.run(
        """UPDATE accounts SET checkpoint = :checkpoint, total = coalesce(:total, total)
            WHERE number = :account""",
        checkpoint=dumps(changes.checkpoint),
        total=changes.total,
        account=account,
    )


def _follow_all(tx: Transaction, account: int, inbox: int, found: Sequence[RemoteMessage]) -> None:
    for remote in found:
        row = tx.one(FIND, account=account, scope=remote.ref.scope, key=remote.ref.key)
        if row is not None and row[0] is not None:
            _place(tx, account, remote.ref, row[0], remote.mailboxes)
            _follow(tx, inbox, row[0], remote)


def give_up_push(tx: Transaction, account_id: str, push: Push, refusal: Refusal) -> None:
    """A change will not be made at the provider: let what it has hold here, and tell of it."""
    account, inbox = account_number(tx, account_id)
    tx.run("DELETE FROM pushes WHERE number = :n", n=push.number)
    if push.kind == "delete":
        for ref, _ in push.refs:
            _leave(tx, account, inbox, ref)
    _follow_all(tx, account, inbox, refusal.there)
    refused = RefusedChange(refusal.at, push.message_id, _wanted(push), refusal.why[:_SAID])
    set_refusal(tx, account, refused)
    row = tx.one(THREAD, inbox=inbox, id=push.message_id)
    if row is not None:
        about = About(inbox, row[0], push.message_id)
        add_event(tx, "message.refused", refusal.at, about, _refused(refusal.why, push))


def _refused(detail: str, change: Push | Change) -> dict[str, object]:
    """What an event says of a change that was not made."""
    return {"detail": detail[:_SAID], "change": _wanted(change)}


def _wanted(change: Push | Change) -> dict[str, object]:
    if isinstance(change, Push) and change.kind == "save_sent":
        return {"copy_to": SENT}
    if isinstance(change, Push) and change.kind == "drop_draft":
        return {"drop_draft": True}
    if isinstance(change, Push) and change.kind == "delete":
        return {"delete": True}
    return {name: value for name in _WANTED if (value := getattr(change, name, None))}


def _leave(tx: Transaction, account: int, inbox: int, ref: RemoteRef) -> None:
    """A message is not in this place any more; whether it is anywhere is seen at the end."""
    row = tx.one(FIND, account=account, scope=ref.scope, key=ref.key)
    if row is None:
        return
    place = {"account": account, "scope": ref.scope, "key": ref.key}
    if row[0] is None:
        tx.run(
            "DELETE FROM remotes WHERE account = :account AND scope = :scope AND key = :key",
            **place,
        )
        return
    tx.run(
        """UPDATE remotes SET is_gone = 1
            WHERE account = :account AND scope = :scope AND key = :key""",
        **place,
    )
    now = standing(tx, inbox, row[0])
    mailboxes = _mailboxes(tx, row[0])
    if mailboxes and not _is_being_pushed(tx, row[0]):
        set_standing(tx, inbox, row[0], Standing(now.flags, now.labels, mailboxes))


def _follow(tx: Transaction, inbox: int, number: int, remote: RemoteMessage) -> None:
    """Take over how a message stands, unless a change of ours is still on its way there."""
    if _is_being_pushed(tx, number):
        return
    now = standing(tx, inbox, number)
    labels = now.labels if remote.labels is None else _spelled(remote.labels, now.labels)
    flags = (*remote.flags, *(flag for flag in now.flags if flag in remote.untold))
    set_standing(tx, inbox, number, Standing(flags, labels, _mailboxes(tx, number)))


def _tell_standing(
    tx: Transaction, inbox: int, number: int, message_id: str, remote: RemoteMessage
) -> None:
    """The provider has a copy of what we have sent: let it stand there as it does here."""
    now, origin = standing(tx, inbox, number), origin_of(tx, inbox)
    flags, labels = remote.flags, _spelled(remote.labels or (), now.labels)
    is_moved = SENT in remote.mailboxes and SENT not in now.mailboxes
    new = Delta(
        add_flags=tuple(f for f in now.flags if f not in (*flags, *remote.untold)),
        add_labels=tuple(n for n in now.labels if remote.labels is not None and n not in labels),
        move_to=now.mailboxes[0] if is_moved and not _is_being_pushed(tx, number) else None,
    )
    flags = tuple(dict.fromkeys((*now.flags, *flags)))
    labels = tuple(dict.fromkeys((*now.labels, *labels)))
    mailboxes = now.mailboxes if is_moved else _mailboxes(tx, number)
    set_standing(tx, inbox, number, Standing(flags, labels, mailboxes))
    if origin is not None:
        put_push(tx, origin, number, message_id, new)


def _spelled(names: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    """Names as they are written here already; some providers know them in lower case only."""
    known = {caseless(name): name for name in present}
    return tuple(known.get(caseless(name), name) for name in names)


def _mailboxes(tx: Transaction, number: int) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for row in tx.all(LIVE, message=number):
        for name in from_text(row[0]):
            found.setdefault(caseless(name), name)
    return tuple(found.values())


def _is_being_pushed(tx: Transaction, number: int) -> bool:
    return tx.one("SELECT 1 FROM pushes WHERE message = :n LIMIT 1", n=number) is not None


def settle_push(tx: Transaction, account_id: str, push: Push, pushed: Pushed) -> None:
    """A change was made at the provider: write down where the message is.

    A copy of what was removed here meanwhile is removed there too, and one that its provider makes
    itself by now.
    """
    account, inbox = account_number(tx, account_id)
    row = tx.one("SELECT message FROM pushes WHERE number = :n", n=push.number)
    tx.run("DELETE FROM pushes WHERE number = :n", n=push.number)
    number = row[0] if row else _of_copy(tx, inbox, push)
    for ref, mailboxes in pushed.entered:
        _place(tx, account, ref, number, mailboxes)
    for ref in pushed.left:
        _leave(tx, account, inbox, ref)
    if row is None and number is None and push.kind == "save_sent" and pushed.entered:
        put_removal(tx, account, push.message_id, pushed.entered)


def _of_copy(tx: Transaction, inbox: int, push: Push) -> int | None:
    """Whose copy was made, if that is tried again meanwhile: with JMAP it is the one to be sent."""
    origin = origin_of(tx, inbox)
    if push.kind != "save_sent" or origin is None or origin.provider != "fastmail":
        return None
    return number_of(tx, inbox, push.message_id) or None


def sweep_gone(tx: Transaction, account_id: str, limit: int) -> tuple[int, tuple[BlobKey, ...]]:
    """Remove messages that are nowhere at the provider any more; call it after a whole pass.

    A message that was moved is in its new place by then. One that still waits to be sent stays
    until it is out.
    """
    account, inbox = account_number(tx, account_id)
    unused: list[BlobKey] = []
    rows = tx.all(ABANDONED, account=account, inbox=inbox, limit=limit)
    for (number,) in rows:
        unused += remove_number(tx, inbox, number)
        tx.run("DELETE FROM remotes WHERE message = :n", n=number)
        tx.run("DELETE FROM pushes WHERE message = :n", n=number)
    if not rows:
        tx.run(FORGET_PLACES, account=account, inbox=inbox)
    return len(rows), tuple(unused)
