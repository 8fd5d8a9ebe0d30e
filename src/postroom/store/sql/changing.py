"""Labels, flags and places of messages, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from postroom.errors import InvalidInput, MailError, NotFound
from postroom.model.attachment import BlobKey
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult, FailedAction
from postroom.model.stored import Change
from postroom.store.recall.mail import unshelve_mail
from postroom.store.search.sets import change_message, moving_sets
from postroom.store.search.sets import remove_message as unindex_message
from postroom.store.sql.adding import put_names
from postroom.store.sql.blobs import unused_of
from postroom.store.sql.memories import forget_without_mail
from postroom.store.sql.memory_links import learnt_from
from postroom.store.sql.names import is_hidden, name_of
from postroom.store.sql.pushes import (
    Delta,
    as_provider_has_it,
    origin_of,
    put_deletion,
    put_push,
)
from postroom.store.sql.threading import recount
from postroom.store.sql.values import caseless, flag_bits, flag_names, from_text
from postroom.store.transaction import Row, Transaction

_MOST_LABELS = 100

FIND = """
    SELECT m.number, m.inbox, m.thread, m.is_hidden, m.labels, m.mailboxes, i.id, m.raw, m.flags
      FROM messages m JOIN inboxes i ON i.number = m.inbox WHERE m.id = :id
"""
STANDING = """
    SELECT flags, labels, mailboxes, thread, is_hidden FROM messages
     WHERE inbox = :inbox AND number = :n
"""
HIDE = "UPDATE messages SET is_hidden = :hidden WHERE inbox = :inbox AND number = :n"
FLAG = "UPDATE messages SET flags = :flags WHERE inbox = :inbox AND number = :n"
OF_MESSAGES = (
    "bodies",
    "search_texts",
    "message_labels",
    "message_mailboxes",
    "attachments",
    "outbox",
)
"""The tables with what belongs to a message."""

_IT = "inbox = :inbox AND number = :number"
_OF_IT = "inbox = :inbox AND message = :number"


class Standing(NamedTuple):
    """How a message stands: its flags, labels and mailboxes."""

    flags: tuple[str, ...]
    labels: tuple[str, ...]
    mailboxes: tuple[str, ...]


def change_messages(
    tx: Transaction, message_ids: Sequence[str], change: Change, visible: Visible
) -> ActionResult:
    """Change each message; one that cannot be changed does not stop the others."""
    succeeded, failed = [], []
    for message_id in message_ids:
        try:
            _change(tx, message_id, _found(tx, message_id, visible), change)
            succeeded.append(message_id)
        except MailError as error:
            failed.append(FailedAction(message_id, error.code, str(error)))
    return ActionResult.of(tuple(succeeded), tuple(failed))


def _found(tx: Transaction, message_id: str, visible: Visible) -> Row:
    row = tx.one(FIND, id=message_id)
    if row is None or (visible is not None and row[6] not in visible):
        raise NotFound(f"no message {message_id}")
    return row


def _change(tx: Transaction, message_id: str, row: Row, change: Change) -> None:
    number, inbox = row[:2]
    origin = origin_of(tx, inbox)
    if origin is not None:
        change = as_provider_has_it(origin, change)
    before = Standing(flag_names(row[8]), tuple(from_text(row[4])), tuple(from_text(row[5])))
    labels = tuple(_labels(list(before.labels), change))
    if len(labels) > _MOST_LABELS:
        raise InvalidInput(f"a message can carry {_MOST_LABELS} labels at most")
    after = Standing(
        before.flags if change.flags is None else change.flags,
        labels,
        tuple(_mailboxes(list(before.mailboxes), change)),
    )
    set_standing(tx, inbox, number, after)
    if origin is not None:
        put_push(tx, origin, number, message_id, _delta(before, after))


def _delta(before: Standing, after: Standing) -> Delta:
    moved = set(map(caseless, before.mailboxes)) != set(map(caseless, after.mailboxes))
    return Delta(
        add_flags=tuple(f for f in after.flags if f not in before.flags),
        remove_flags=tuple(f for f in before.flags if f not in after.flags),
        add_labels=_less(after.labels, before.labels),
        remove_labels=_less(before.labels, after.labels),
        move_to=after.mailboxes[0] if moved else None,
    )


def _less(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    gone = set(map(caseless, others))
    return tuple(name for name in names if caseless(name) not in gone)


def standing(tx: Transaction, inbox: int, number: int) -> Standing:
    """How a message stands now."""
    row = tx.one(STANDING, inbox=inbox, n=number)
    if row is None:
        return Standing((), (), ())
    return Standing(flag_names(row[0]), tuple(from_text(row[1])), tuple(from_text(row[2])))


def set_standing(tx: Transaction, inbox: int, number: int, after: Standing) -> None:
    """Give a message these flags, labels and mailboxes, and let searches follow."""
    row = tx.one(STANDING, inbox=inbox, n=number)
    if row is None:
        return
    bits, thread, was_hidden = row[0], row[3], bool(row[4])
    if flag_bits(after.flags) != bits:
        tx.put(FLAG, flags=flag_bits(after.flags), inbox=inbox, n=number)
    labels, mailboxes = list(after.labels), list(after.mailboxes)
    if labels == from_text(row[1]) and mailboxes == from_text(row[2]):
        return
    _rename(tx, number, inbox, labels, mailboxes)
    hidden = is_hidden(mailboxes)
    before = _sets(from_text(row[1]), from_text(row[2]), is_hidden=was_hidden)
    change_message(tx, number, inbox, before, _sets(labels, mailboxes, is_hidden=hidden))
    if hidden != was_hidden:
        tx.put(HIDE, hidden=int(hidden), inbox=inbox, n=number)
        recount(tx, inbox, thread)


def _sets(labels: Sequence[str], mailboxes: Sequence[str], *, is_hidden: bool) -> set[str]:
    return moving_sets(
        is_hidden=is_hidden, mailboxes=map(caseless, mailboxes), labels=map(caseless, labels)
    )


def _mailboxes(present: list[str], change: Change) -> list[str]:
    if change.mailboxes is not None:
        return list(change.mailboxes)
    return [change.move_to] if change.move_to else present


def _labels(present: list[str], change: Change) -> list[str]:
    """The labels after a change; compared without case, the spelling in use stays."""
    wanted = list(present) if change.labels is None else list(change.labels)
    gone = {caseless(name) for name in change.remove_labels}
    kept: dict[str, str] = {}
    for name in (*wanted, *change.add_labels):
        if caseless(name) not in gone:
            kept.setdefault(caseless(name), name)
    return list(kept.values())


def _rename(
    tx: Transaction, number: int, inbox: int, labels: list[str], mailboxes: list[str]
) -> None:
    for table in ("message_labels", "message_mailboxes"):
        tx.put(f"DELETE FROM {table} WHERE inbox = :inbox AND message = :n", inbox=inbox, n=number)
    put_names(
        tx,
        inbox,
        number,
        mailboxes=[name_of(tx, "mailboxes", inbox, name) for name in mailboxes],
        labels=[name_of(tx, "labels", inbox, name) for name in labels],
    )


def number_of(tx: Transaction, inbox: int, message_id: str) -> int:
    """The number of a message that is there."""
    row = tx.one(
        "SELECT number FROM messages WHERE +inbox = :inbox AND id = :id", inbox=inbox, id=message_id
    )
    return int(row[0]) if row else 0


def remove_message(
    tx: Transaction, message_id: str, visible: Visible
) -> tuple[BlobKey, ...] | None:
    """Remove a message for good; return the blobs that nothing uses any more."""
    row = tx.one(FIND, id=message_id)
    if row is None or (visible is not None and row[6] not in visible):
        return None
    origin = origin_of(tx, row[1])
    if origin is not None:
        put_deletion(tx, origin, row[0], message_id)
    return remove_number(tx, row[1], row[0])


def remove_number(tx: Transaction, inbox: int, number: int) -> tuple[BlobKey, ...]:
    """Remove a message for good, by its number; return the blobs that nothing uses any more."""
    it = {"inbox": inbox, "number": number}
    row = tx.one(f"SELECT id, thread, raw FROM messages WHERE {_IT}", **it)
    if row is None:
        return ()
    message_id, thread, raw = row
    learnt = learnt_from(tx, _IT, **it)
    files = tx.all(f"SELECT sha256 FROM attachments WHERE {_OF_IT}", **it)
    for table in OF_MESSAGES:
        tx.put(f"DELETE FROM {table} WHERE {_OF_IT}", **it)
    tx.put("DELETE FROM events WHERE +inbox = :inbox AND message = :id", inbox=inbox, id=message_id)
    tx.put(f"DELETE FROM messages WHERE {_IT}", **it)
    unindex_message(tx, number, inbox)
    recount(tx, inbox, thread)
    unshelve_mail(tx, [number])
    forget_without_mail(tx, learnt)
    return unused_of(tx, [raw, *(file[0] for file in files)])
