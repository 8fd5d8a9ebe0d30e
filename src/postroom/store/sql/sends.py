"""Sends, each exactly once: what a caller sent before is answered, not repeated."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from postroom.errors import Conflict, RateLimited
from postroom.model.message import FLAGS, Recipient
from postroom.model.sending import PAUSED, Sent, overall_status
from postroom.model.stored import NewSend
from postroom.store.sql.adding import add_message
from postroom.store.sql.answers import refuse_second_answer
from postroom.store.sql.drafts import mark_sent, sent_as
from postroom.store.sql.outbox import is_paused, put_in_outbox
from postroom.store.sql.pushes import Delta, keep_a_copy, origin_of, put_push
from postroom.store.sql.values import dumps, from_text, seconds
from postroom.store.transaction import Transaction

KEYS_KEPT_S = int(timedelta(days=7).total_seconds())
REPEAT_WINDOW_S = int(timedelta(minutes=10).total_seconds())
HOUR_S = 3600
_REPEATED = "the same mail was sent minutes ago and not again now; allow_duplicate: true sends it"
_REMOVED = "its copy here was removed since"
_NEVER = ("failed", "bounced")
_ANSWERED = 1 << FLAGS.index("answered")

BY_KEY = """
    SELECT answer, payload FROM sends
     WHERE caller = :caller AND idempotency_key = :key AND at > :since
"""
BY_PAYLOAD = """
    SELECT answer FROM sends WHERE caller = :caller AND payload = :payload AND at > :since
     ORDER BY number
"""
BECAME = """
    SELECT t.id, m.details
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.id = :id
"""
INSERT_SEND = """
    INSERT INTO sends (caller, idempotency_key, payload, at, answer)
    VALUES (:caller, :key, :payload, :at, :answer)
"""
OLDEST_OF_HOUR = "SELECT count(*), min(at) FROM sends WHERE caller = :caller AND at > :since"


def record_send(tx: Transaction, send: NewSend) -> Sent:
    """Store a sent message and its local deliveries, or answer as the first time."""
    earlier = _earlier(tx, send)
    if earlier is not None:
        return earlier
    refuse_second_answer(
        tx, send.message.thread_id, send.message.auto_answered, send.message.received_at
    )
    now = seconds(send.message.received_at)
    _check_rate(tx, send, now)
    added = add_message(tx, send.message)
    for delivery in send.deliveries:
        add_message(tx, delivery)
    if send.answered is not None:
        _mark_answered(tx, send.answered)
    recipients = send.message.recipients or ()
    place = _place(tx, added.message_id)
    keep_a_copy(tx, *place, added.message_id, statuses={r.status for r in recipients})
    put_in_outbox(
        tx,
        *place,
        recipients,
        seconds(send.send_at or send.message.received_at),
        is_scheduled=send.send_at is not None,
    )
    sent = Sent(
        added.message_id,
        added.thread_id,
        overall_status(recipients),
        recipients,
        warnings=send.warnings or None,
    )
    if send.draft_id is not None:
        it = (send.draft_id, send.draft_revision)
        mark_sent(tx, *it, sent.message_id, send.message.received_at)
    tx.put("DELETE FROM sends WHERE at <= :since", since=now - KEYS_KEPT_S)
    tx.put(
        INSERT_SEND,
        caller=send.caller,
        key=send.idempotency_key,
        payload=send.payload,
        at=now,
        answer=dumps(sent),
    )
    return _with_pause(tx, sent)


def _with_pause(tx: Transaction, sent: Sent) -> Sent:
    """Say of what is queued that nothing goes out now, if that is so."""
    is_queued = any(recipient.status == "queued" for recipient in sent.recipients)
    if not is_queued or not is_paused(tx):
        return sent
    return replace(sent, warnings=(*(sent.warnings or ()), PAUSED))


def _earlier(tx: Transaction, send: NewSend) -> Sent | None:
    """What the same send has come to; of a draft, whoever sent it and however long ago."""
    earlier = earlier_send(
        tx,
        send.caller,
        send.payload,
        idempotency_key=send.idempotency_key,
        allow_duplicate=send.allow_duplicate or send.draft_id is not None,
        now=send.message.received_at,
    )
    if earlier is not None or send.draft_id is None:
        return earlier
    message_id = sent_as(tx, send.draft_id, send.draft_revision)
    return None if message_id is None else _became(tx, message_id)


def _became(tx: Transaction, message_id: str) -> Sent:
    """What became of a message so far. Raises Conflict when it is gone."""
    row = tx.one(BECAME, id=message_id)
    if row is None:
        raise Conflict(f"it was sent as {message_id}, and {_REMOVED}")
    recipients = tuple(Recipient(**r) for r in from_text(row[1])["recipients"])
    return Sent(message_id, row[0], overall_status(recipients), recipients)


def _mark_answered(tx: Transaction, message_id: str) -> None:
    """Flag the mail that was answered, here and at its provider."""
    row = tx.one("SELECT number, inbox, flags FROM messages WHERE id = :id", id=message_id)
    if row is None or row[2] & _ANSWERED:
        return
    tx.put(
        f"UPDATE messages SET flags = flags | {_ANSWERED} WHERE inbox = :inbox AND number = :n",
        inbox=row[1],
        n=row[0],
    )
    origin = origin_of(tx, row[1])
    if origin is not None:
        put_push(tx, origin, row[0], message_id, Delta(add_flags=("answered",)))


def _place(tx: Transaction, message_id: str) -> tuple[int, int]:
    row = tx.one("SELECT inbox, number FROM messages WHERE id = :id", id=message_id)
    return (row[0], row[1]) if row else (0, 0)


def earlier_send(
    tx: Transaction,
    caller: str,
    payload: bytes,
    *,
    idempotency_key: str | None,
    allow_duplicate: bool,
    now: datetime,
) -> Sent | None:
    """The answer that this send got before. Raises Conflict on a key used for another mail."""
    if idempotency_key is not None:
        since = seconds(now) - KEYS_KEPT_S
        row = tx.one(BY_KEY, caller=caller, key=idempotency_key, since=since)
        if row is not None and row[1] != payload:
            raise Conflict(
                f"the idempotency key {idempotency_key} was used for another mail; "
                "use a new key for a new mail"
            )
        return _still(tx, _sent(row[0])) if row else None
    if allow_duplicate:
        return None
    since = seconds(now) - REPEAT_WINDOW_S
    for (answer,) in tx.all(BY_PAYLOAD, caller=caller, payload=payload, since=since):
        sent = replace(_sent(answer), deduplicated=True, warnings=(_REPEATED,))
        if not _got_nobody(tx, sent):
            return _still(tx, sent)
    return None


def _got_nobody(tx: Transaction, sent: Sent) -> bool:
    """Whether a mail has failed for everyone: to send it again doubles nothing."""
    row = tx.one(BECAME, id=sent.message_id)
    if row is None:
        return all(recipient.status in _NEVER for recipient in sent.recipients)
    return all(recipient["status"] in _NEVER for recipient in from_text(row[1])["recipients"])


def _still(tx: Transaction, sent: Sent) -> Sent:
    """An answer as it was given, and whether the message that it names is still there."""
    if tx.one(BECAME, id=sent.message_id) is not None:
        return sent
    return replace(sent, warnings=(*(sent.warnings or ()), _REMOVED))


def _sent(answer: str) -> Sent:
    values = from_text(answer)
    recipients = tuple(Recipient(**recipient) for recipient in values.pop("recipients"))
    warnings = tuple(values.pop("warnings", None) or ()) or None
    return Sent(**values, recipients=recipients, warnings=warnings)


def _check_rate(tx: Transaction, send: NewSend, now: int) -> None:
    if send.most_per_hour is None:
        return
    row = tx.one(OLDEST_OF_HOUR, caller=send.caller, since=now - HOUR_S)
    if row is not None and row[0] >= send.most_per_hour:
        wait = max(1, row[1] + HOUR_S - now)
        raise RateLimited(
            f"this key has sent {row[0]} mails within the hour; try again in {wait} s",
            retry_after=wait,
        )
