"""Changing messages within what their provider allows: flags, labels, mailboxes, removal.

The outcome of a send is kept when its message is removed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from postroom.errors import Conflict, InvalidInput, MailError, NotFound, no_such
from postroom.model.account import ProviderTraits
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, OUTBOX, SENT, STANDARD_MAILBOXES, Visible
from postroom.model.mail.message import (
    FLAGS,
    ActionResult,
    BlobKey,
    FailedAction,
    MessageState,
    Recipient,
)
from postroom.model.mail.sending import WAITING, overall_status
from postroom.model.mail.storage import Change
from postroom.store.ranking.index import unindex_mail
from postroom.store.search.index import (
    SetChange,
    mutable_sets,
    unindex_message,
    update_message_sets,
)
from postroom.store.sql.accounts.pushes import (
    Delta,
    FeedingAccount,
    account_feeding,
    insert_deletion_push,
    insert_push,
)
from postroom.store.sql.events import remove_events
from postroom.store.sql.memories.memories import remove_without_mail
from postroom.store.sql.memories.memory_links import memories_from_mail
from postroom.store.sql.messages.mailboxes import canonical_mailboxes
from postroom.store.sql.messages.message_insert import insert_names, is_hidden, name_of
from postroom.store.sql.messages.thread_merging import recount
from postroom.store.sql.statements import (
    OF_MESSAGES,
    all_among,
    batches,
    caseless,
    dumps,
    exists,
    flag_bits,
    flag_names,
    from_text,
    scalar,
    unused_of,
    update,
)
from postroom.store.transaction import Row, Transaction

SENT_MAIL = """
    SELECT m.id, m.received_at, m.details, o.pending
      FROM messages m LEFT JOIN outbox o ON o.inbox = m.inbox AND o.message = m.number
     WHERE m.inbox = :inbox AND m.number = :number AND m.is_outbound = 1
"""
UNFINISHED = """
    SELECT message FROM outbox WHERE inbox = :inbox AND state IN ('waiting', 'held', 'claimed',
        'handing_over')
"""
_DROPPED = "its message was removed before it was sent"
_MAYBE = "its message was removed during submission"

_STANDARD = {caseless(name): name for name in STANDARD_MAILBOXES}
_UNPRINTABLE = ("Cc", "Zl", "Zp")


def provider_change(feeding_account: FeedingAccount, change: Change) -> Change:
    """The change as the provider makes it: some have labels in place of other mailboxes."""
    destination = change.move_to
    if destination is None:
        return change
    standard = _STANDARD.get(caseless(destination))
    if standard is not None:
        return replace(change, move_to=standard)
    _refuse_name(destination)
    if not feeding_account.traits.mailboxes_are_labels:
        return change
    labels = (*change.add_labels, destination)
    return replace(change, add_labels=labels, move_to=ARCHIVE)


def after_move(
    feeding_account: FeedingAccount, present: Sequence[str], destination: str
) -> tuple[str, ...]:
    """The mailboxes of a message after a move; with labels, sent mail stays in Sent as well."""
    stays_in_sent = feeding_account.traits.mailboxes_are_labels and SENT in present
    if stays_in_sent and destination in (ARCHIVE, INBOX, SENT):
        return (INBOX, SENT) if destination == INBOX else (SENT,)
    return (destination,)


def _refuse_name(name: str) -> None:
    """Refuse a name that no mailbox can have. Raises InvalidInput."""
    if not all(part.strip() for part in name.split("/")):
        raise InvalidInput(f"{name!r} is not a valid mailbox name: / separates two names")
    if any(unicodedata.category(character) in _UNPRINTABLE for character in name):
        raise InvalidInput(f"{name!r} is not a valid mailbox name: remove the control characters")


def refuse_unsupported(feeding_account: FeedingAccount, delta: Delta) -> None:
    """Refuse a change that the provider rejects, or that would lose the message.

    Raises:
        InvalidInput: with what to do instead.
    """
    if delta.move_to in (DRAFTS, OUTBOX):
        raise InvalidInput(
            f"messages cannot be moved to {delta.move_to}; "
            "choose another mailbox, or write a new mail with create_draft"
        )
    traits = feeding_account.traits
    if not traits.has_draft_flag and "draft" in delta.add_flags:
        raise InvalidInput(f"{traits.title} does not store the flag draft; leave it out")
    if traits.mailboxes_are_labels:
        _refuse_with_labels(traits, delta)


def _refuse_with_labels(traits: ProviderTraits, delta: Delta) -> None:
    if delta.move_to == SENT:
        raise InvalidInput(
            f"{traits.title} does not move mail to Sent; sent mail is there already. To take a "
            "message out of Inbox, move it to Archive"
        )
    for label in delta.add_labels:
        folded = caseless(label)
        if folded in traits.reserved_labels or folded.startswith(traits.reserved_label_prefixes):
            raise InvalidInput(
                f"{label} is a system label of {traits.title}; choose another name, or use "
                "move_message (Inbox, Junk, Trash) or the flags (seen, flagged)"
            )
        if not all(part.strip() for part in label.split("/")):
            raise InvalidInput(f"{label!r} is not a valid label at {traits.title}: / nests labels")


_MAX_LABELS = 100

_STATE_COLUMNS = "m.inbox, m.number, m.thread, m.is_hidden, m.flags, m.labels, m.mailboxes"
FIND = f"""
    SELECT {_STATE_COLUMNS}, m.id, i.id FROM messages m JOIN inboxes i ON i.number = m.inbox
     WHERE m.id {{among}}
"""
STATE = f"SELECT {_STATE_COLUMNS} FROM messages m WHERE m.inbox = :inbox AND m.number = :n"
_ROW_KEY = "inbox = :inbox AND number = :number"
_MESSAGE_KEY = "inbox = :inbox AND message = :number"


def change_messages(
    tx: Transaction, message_ids: Sequence[str], change: Change, visible: Visible
) -> ActionResult:
    """Change each message; one that cannot be changed does not affect the others."""
    return change_each(tx, [(message_id, change) for message_id in message_ids], visible)


def change_each(
    tx: Transaction, changes: Sequence[tuple[str, Change]], visible: Visible
) -> ActionResult:
    """Apply a separate change to each message."""
    succeeded: list[str] = []
    failed: list[FailedAction] = []
    for some in batches(changes):
        found, moves = _find(tx, [message_id for message_id, _ in some], visible), list[SetChange]()
        for message_id, change in some:
            try:
                # A message that is named twice is read again, because it has changed.
                known = found.pop(message_id, None) or _one(tx, message_id, visible)
                moves += _change(tx, message_id, known, change)
                succeeded.append(message_id)
            except MailError as error:
                failed.append(FailedAction(message_id, error.code, str(error)))
        update_message_sets(tx, moves)
    return ActionResult.of(tuple(succeeded), tuple(failed))


def _find(tx: Transaction, message_ids: Sequence[str], visible: Visible) -> dict[str, _Known]:
    """The messages that exist and are visible."""
    rows = all_among(tx, FIND, message_ids)
    return {row[7]: _known(row) for row in rows if visible.sees(row[8])}


def _one(tx: Transaction, message_id: str, visible: Visible) -> _Known:
    known = _find(tx, [message_id], visible).get(message_id)
    if known is None:
        raise NotFound(no_such("message", message_id))
    return known


class _Known(NamedTuple):
    """A message with its flags, labels and mailboxes."""

    inbox: int
    number: int
    thread: int
    is_hidden: bool
    message_state: MessageState


def _known(row: Row) -> _Known:
    message_state = MessageState(
        labels=tuple(from_text(row[5])),
        flags=flag_names(row[4]),
        mailboxes=tuple(from_text(row[6])),
    )
    return _Known(row[0], row[1], row[2], bool(row[3]), message_state)


def _change(tx: Transaction, message_id: str, known: _Known, change: Change) -> list[SetChange]:
    feeding_account, before = account_feeding(tx, known.inbox), known.message_state
    if change.move_to is not None:
        (move_to,) = canonical_mailboxes(tx, [change.move_to], known.inbox)
        change = replace(change, move_to=move_to)
    if change.mailboxes is not None:
        change = replace(change, mailboxes=canonical_mailboxes(tx, change.mailboxes, known.inbox))
    if feeding_account is not None:
        change = provider_change(feeding_account, change)
        if change.move_to is not None and change.mailboxes is None:
            there = after_move(feeding_account, before.mailboxes, change.move_to)
            change = replace(change, mailboxes=there)
    labels = tuple(_labels(list(before.labels), change))
    if len(labels) > _MAX_LABELS:
        raise InvalidInput(f"a message can carry {_MAX_LABELS} labels at most")
    after = MessageState(
        labels=labels,
        flags=_flags(before.flags, change),
        mailboxes=tuple(_mailboxes(list(before.mailboxes), change)),
    )
    if set(after.mailboxes) != set(before.mailboxes):
        _refuse_in_outbox(tx, known, message_id, after)
    if feeding_account is not None:
        delta = _delta(before, after, change.move_to or after.mailboxes[0])
        refuse_unsupported(feeding_account, delta)
        insert_push(tx, feeding_account, known.number, message_id, delta)
    return _set_state(tx, known, after)


def _refuse_in_outbox(tx: Transaction, known: _Known, message_id: str, after: MessageState) -> None:
    """Refuse to move mail into Outbox, or out of it before it has left.

    Raises:
        InvalidInput, Conflict: with what to do instead.
    """
    if OUTBOX in known.message_state.mailboxes:
        refuse_unfinished(tx, known.inbox, known.number, message_id)
    elif caseless(OUTBOX) in map(caseless, after.mailboxes):
        raise InvalidInput("only mail that is being sent is in Outbox; choose another mailbox")


def _delta(before: MessageState, after: MessageState, destination: str) -> Delta:
    moved = set(map(caseless, before.mailboxes)) != set(map(caseless, after.mailboxes))
    return Delta(
        add_flags=tuple(f for f in after.flags if f not in before.flags),
        remove_flags=tuple(f for f in before.flags if f not in after.flags),
        add_labels=_without(after.labels, before.labels),
        remove_labels=_without(before.labels, after.labels),
        move_to=destination if moved else None,
    )


def _without(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    removed = set(map(caseless, others))
    return tuple(name for name in names if caseless(name) not in removed)


def message_state(tx: Transaction, inbox: int, number: int) -> MessageState:
    """The current flags, labels and mailboxes of a message."""
    row = tx.one(STATE, inbox=inbox, n=number)
    return MessageState(mailboxes=()) if row is None else _known(row).message_state


def set_message_state(tx: Transaction, inbox: int, number: int, after: MessageState) -> None:
    """Set the flags, labels and mailboxes of a message, and update the index."""
    row = tx.one(STATE, inbox=inbox, n=number)
    if row is not None:
        update_message_sets(tx, _set_state(tx, _known(row), after))


def _set_state(tx: Transaction, known: _Known, after: MessageState) -> list[SetChange]:
    """Set the flags, labels and mailboxes of a message, and return the changes for the index."""
    inbox, number, thread, was_hidden, before = known
    row_key = {"inbox": inbox, "number": number}
    if set(after.flags) != set(before.flags):
        update(tx, "messages", row_key, flags=flag_bits(after.flags))
    hidden = was_hidden
    if (after.labels, after.mailboxes) != (before.labels, before.mailboxes):
        _rename(tx, number, inbox, list(after.labels), list(after.mailboxes))
        hidden = is_hidden(after.mailboxes)
    if hidden != was_hidden:
        update(tx, "messages", row_key, is_hidden=int(hidden))
        recount(tx, inbox, thread)
    were, are = _sets(before, is_hidden=was_hidden), _sets(after, is_hidden=hidden)
    return [] if were == are else [SetChange(number, inbox, were, are)]


def _sets(message_state: MessageState, *, is_hidden: bool) -> set[str]:
    return mutable_sets(
        is_hidden=is_hidden,
        mailboxes=map(caseless, message_state.mailboxes),
        labels=map(caseless, message_state.labels),
        flags=message_state.flags,
    )


def _mailboxes(present: list[str], change: Change) -> list[str]:
    if change.mailboxes is not None:
        return list(change.mailboxes)
    return [change.move_to] if change.move_to else present


def _flags(present: tuple[str, ...], change: Change) -> tuple[str, ...]:
    flags = present if change.flags is None else change.flags
    given = {*flags, *change.add_flags} - set(change.remove_flags)
    return tuple(flag for flag in FLAGS if flag in given)


def _labels(present: list[str], change: Change) -> list[str]:
    """The labels after a change, compared without case; the existing spelling stays."""
    labels = list(present) if change.labels is None else list(change.labels)
    removed = {caseless(name) for name in change.remove_labels}
    by_name: dict[str, str] = {}
    for name in (*labels, *change.add_labels):
        if caseless(name) not in removed:
            by_name.setdefault(caseless(name), name)
    return list(by_name.values())


def _rename(
    tx: Transaction, number: int, inbox: int, labels: list[str], mailboxes: list[str]
) -> None:
    for table in ("message_labels", "message_mailboxes"):
        tx.put(f"DELETE FROM {table} WHERE inbox = :inbox AND message = :n", inbox=inbox, n=number)
    insert_names(
        tx,
        inbox,
        number,
        mailboxes=[name_of(tx, "mailboxes", inbox, name) for name in mailboxes],
        labels=[name_of(tx, "labels", inbox, name) for name in labels],
    )


def number_of(tx: Transaction, inbox: int, message_id: str) -> int:
    """The number of a message, or 0."""
    sql = "SELECT number FROM messages WHERE +inbox = :inbox AND id = :id"
    return int(scalar(tx, sql, inbox=inbox, id=message_id) or 0)


def remove_message(
    tx: Transaction, message_id: str, visible: Visible
) -> tuple[BlobKey, ...] | None:
    """Remove a message permanently; return the blobs that nothing uses any more.

    Raises:
        Conflict: it is in the outbox.
    """
    known = _find(tx, [message_id], visible).get(message_id)
    if known is None:
        return None
    refuse_unfinished(tx, known.inbox, known.number, message_id)
    return remove_everywhere(tx, known.inbox, known.number, message_id)


def remove_everywhere(
    tx: Transaction, inbox: int, number: int, message_id: str
) -> tuple[BlobKey, ...]:
    """Remove a message here and at its provider; return what `remove_number` returns."""
    feeding_account = account_feeding(tx, inbox)
    if feeding_account is not None:
        insert_deletion_push(tx, feeding_account, number, message_id)
    return remove_number(tx, inbox, number)


def remove_number(tx: Transaction, inbox: int, number: int) -> tuple[BlobKey, ...]:
    """Remove a message permanently, by its number; return the blobs that nothing uses any more."""
    it = {"inbox": inbox, "number": number}
    row = tx.one(f"SELECT id, thread, raw FROM messages WHERE {_ROW_KEY}", **it)
    if row is None:
        return ()
    message_id, thread, raw = row
    retain_send_outcome(tx, inbox, number)
    memories = memories_from_mail(tx, _ROW_KEY, **it)
    files = tx.all(f"SELECT sha256 FROM attachments WHERE {_MESSAGE_KEY}", **it)
    for table in OF_MESSAGES:
        tx.put(f"DELETE FROM {table} WHERE {_MESSAGE_KEY}", **it)
    remove_events(tx, "+inbox = :inbox AND message = :id", inbox=inbox, id=message_id)
    tx.put(
        "DELETE FROM rule_jobs WHERE +inbox = :inbox AND message = :id", inbox=inbox, id=message_id
    )
    tx.put(f"DELETE FROM messages WHERE {_ROW_KEY}", **it)
    unindex_message(tx, number, inbox)
    recount(tx, inbox, thread)
    unindex_mail(tx, [number])
    remove_without_mail(tx, memories)
    return unused_of(tx, [raw, *(file[0] for file in files)])


def refuse_unfinished(tx: Transaction, inbox: int, number: int, message_id: str) -> None:
    """Refuse to remove or move a message that is in the outbox: it would silently not be sent.

    Raises Conflict.
    """
    if exists(tx, f"{UNFINISHED} AND message = :number", inbox=inbox, number=number):
        raise Conflict(
            f"{message_id} has not been sent yet; cancel_message makes it a draft, "
            "which can be removed"
        )


def retain_send_outcomes(tx: Transaction, inbox: int) -> None:
    """Keep the outcomes of all unfinished sends of an inbox that is removed."""
    for (number,) in tx.all(UNFINISHED, inbox=inbox):
        retain_send_outcome(tx, inbox, number)


def retain_send_outcome(tx: Transaction, inbox: int, number: int) -> None:
    """Keep the outcome of a send whose message is removed, for repeated requests."""
    row = tx.one(SENT_MAIL, inbox=inbox, number=number)
    if row is None:
        return
    message_id, at, details, pending = row
    in_transmission = from_text(pending or "[]")
    recipients = tuple(_final(r, in_transmission) for r in from_text(details)["recipients"] or ())
    for send, answer in tx.all("SELECT number, response FROM sends WHERE at = :at", at=at):
        response = from_text(answer)
        if recipients and response["message_id"] == message_id:
            response |= {"recipients": recipients, "status": overall_status(recipients)}
            update(tx, "sends", {"number": send}, response=dumps(response))


def _final(recipient: dict[str, Any], in_transmission: list[str]) -> Recipient:
    address, status = recipient["address"], recipient["status"]
    if status not in WAITING:
        return Recipient(**recipient)
    if address in in_transmission:
        return Recipient(address, "unknown", _MAYBE)
    return Recipient(address, "failed", _DROPPED)
