"""Labels, flags and places of messages, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from postroom.errors import InvalidInput, MailError, NotFound, no_such
from postroom.model.attachment import BlobKey
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult, FailedAction
from postroom.model.stored import Change
from postroom.store.recall.mail import unshelve_mail
from postroom.store.search.sets import Move, move_messages, moving_sets
from postroom.store.search.sets import remove_message as unindex_message
from postroom.store.sql.adding import put_names
from postroom.store.sql.blobs import unused_of
from postroom.store.sql.events import remove_events
from postroom.store.sql.last_words import keep_last_word, refuse_on_its_way
from postroom.store.sql.memory_links import learnt_from
from postroom.store.sql.memory_removal import forget_without_mail
from postroom.store.sql.names import is_hidden, name_of
from postroom.store.sql.possible import after_move, as_provider_has_it, refuse_impossible
from postroom.store.sql.pushes import (
    Delta,
    origin_of,
    put_deletion,
    put_push,
)
from postroom.store.sql.threading import recount
from postroom.store.sql.values import any_of, caseless, flag_bits, flag_names, from_text
from postroom.store.transaction import Row, Transaction

_MOST_LABELS = 100
_AT_ONCE = 500

_STANDING = "m.inbox, m.number, m.thread, m.is_hidden, m.flags, m.labels, m.mailboxes"
FIND = f"""
    SELECT {_STANDING}, m.id, i.id FROM messages m JOIN inboxes i ON i.number = m.inbox
     WHERE m.id {{among}}
"""
STANDING = f"SELECT {_STANDING} FROM messages m WHERE m.inbox = :inbox AND m.number = :n"
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
    return change_each(tx, [(message_id, change) for message_id in message_ids], visible)


def change_each(
    tx: Transaction, changes: Sequence[tuple[str, Change]], visible: Visible
) -> ActionResult:
    """The same, if each message is changed in its own way."""
    succeeded: list[str] = []
    failed: list[FailedAction] = []
    for first in range(0, len(changes), _AT_ONCE):
        some = changes[first : first + _AT_ONCE]
        found, moves = _find(tx, [message_id for message_id, _ in some], visible), list[Move]()
        for message_id, change in some:
            try:
                # One that is named again is looked up again: it has changed.
                known = found.pop(message_id, None) or _one(tx, message_id, visible)
                moves += _change(tx, message_id, known, change)
                succeeded.append(message_id)
            except MailError as error:
                failed.append(FailedAction(message_id, error.code, str(error)))
        move_messages(tx, moves)
    return ActionResult.of(tuple(succeeded), tuple(failed))


def _find(tx: Transaction, message_ids: Sequence[str], visible: Visible) -> dict[str, _Known]:
    """Those of some messages that are there and may be seen."""
    among, params = any_of("id", message_ids)
    rows = tx.all(FIND.format(among=among), **params)
    return {row[7]: _known(row) for row in rows if visible is None or row[8] in visible}


def _one(tx: Transaction, message_id: str, visible: Visible) -> _Known:
    known = _find(tx, [message_id], visible).get(message_id)
    if known is None:
        raise NotFound(no_such("message", message_id))
    return known


class _Known(NamedTuple):
    """A message, and how it stands."""

    inbox: int
    number: int
    thread: int
    is_hidden: bool
    standing: Standing


def _known(row: Row) -> _Known:
    standing = Standing(flag_names(row[4]), tuple(from_text(row[5])), tuple(from_text(row[6])))
    return _Known(row[0], row[1], row[2], bool(row[3]), standing)


def _change(tx: Transaction, message_id: str, known: _Known, change: Change) -> list[Move]:
    origin, before = origin_of(tx, known.inbox), known.standing
    if origin is not None:
        change = as_provider_has_it(origin, change)
        if change.move_to is not None and change.mailboxes is None:
            there = after_move(origin, before.mailboxes, change.move_to)
            change = replace(change, mailboxes=there)
    labels = tuple(_labels(list(before.labels), change))
    if len(labels) > _MOST_LABELS:
        raise InvalidInput(f"a message can carry {_MOST_LABELS} labels at most")
    after = Standing(
        before.flags if change.flags is None else change.flags,
        labels,
        tuple(_mailboxes(list(before.mailboxes), change)),
    )
    if origin is not None:
        delta = _delta(before, after, change.move_to or after.mailboxes[0])
        refuse_impossible(origin, delta)
        put_push(tx, origin, known.number, message_id, delta)
    return _stand(tx, known, after)


def _delta(before: Standing, after: Standing, destination: str) -> Delta:
    moved = set(map(caseless, before.mailboxes)) != set(map(caseless, after.mailboxes))
    return Delta(
        add_flags=tuple(f for f in after.flags if f not in before.flags),
        remove_flags=tuple(f for f in before.flags if f not in after.flags),
        add_labels=_less(after.labels, before.labels),
        remove_labels=_less(before.labels, after.labels),
        move_to=destination if moved else None,
    )


def _less(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    gone = set(map(caseless, others))
    return tuple(name for name in names if caseless(name) not in gone)


def standing(tx: Transaction, inbox: int, number: int) -> Standing:
    """How a message stands now."""
    row = tx.one(STANDING, inbox=inbox, n=number)
    return Standing((), (), ()) if row is None else _known(row).standing


def set_standing(tx: Transaction, inbox: int, number: int, after: Standing) -> None:
    """Give a message these flags, labels and mailboxes, and let searches follow."""
    row = tx.one(STANDING, inbox=inbox, n=number)
    if row is not None:
        move_messages(tx, _stand(tx, _known(row), after))


def _stand(tx: Transaction, known: _Known, after: Standing) -> list[Move]:
    """Let a message stand in another way, and tell how the sets of searches must follow."""
    inbox, number, thread, was_hidden, before = known
    if set(after.flags) != set(before.flags):
        tx.put(FLAG, flags=flag_bits(after.flags), inbox=inbox, n=number)
    if (after.labels, after.mailboxes) == (before.labels, before.mailboxes):
        return []
    _rename(tx, number, inbox, list(after.labels), list(after.mailboxes))
    hidden = is_hidden(after.mailboxes)
    if hidden != was_hidden:
        tx.put(HIDE, hidden=int(hidden), inbox=inbox, n=number)
        recount(tx, inbox, thread)
    were = _sets(before.labels, before.mailboxes, is_hidden=was_hidden)
    return [Move(number, inbox, were, _sets(after.labels, after.mailboxes, is_hidden=hidden))]


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
    """Remove a message for good; return the blobs that nothing uses any more.

    Raises:
        Conflict: it is on its way out.
    """
    known = _find(tx, [message_id], visible).get(message_id)
    if known is None:
        return None
    refuse_on_its_way(tx, known.inbox, known.number, message_id)
    origin = origin_of(tx, known.inbox)
    if origin is not None:
        put_deletion(tx, origin, known.number, message_id)
    return remove_number(tx, known.inbox, known.number)


def remove_number(tx: Transaction, inbox: int, number: int) -> tuple[BlobKey, ...]:
    """Remove a message for good, by its number; return the blobs that nothing uses any more."""
    it = {"inbox": inbox, "number": number}
    row = tx.one(f"SELECT id, thread, raw FROM messages WHERE {_IT}", **it)
    if row is None:
        return ()
    message_id, thread, raw = row
    keep_last_word(tx, inbox, number)
    learnt = learnt_from(tx, _IT, **it)
    files = tx.all(f"SELECT sha256 FROM attachments WHERE {_OF_IT}", **it)
    for table in OF_MESSAGES:
        tx.put(f"DELETE FROM {table} WHERE {_OF_IT}", **it)
    remove_events(tx, "+inbox = :inbox AND message = :id", inbox=inbox, id=message_id)
    tx.put(f"DELETE FROM messages WHERE {_IT}", **it)
    unindex_message(tx, number, inbox)
    recount(tx, inbox, thread)
    unshelve_mail(tx, [number])
    forget_without_mail(tx, learnt)
    return unused_of(tx, [raw, *(file[0] for file in files)])
