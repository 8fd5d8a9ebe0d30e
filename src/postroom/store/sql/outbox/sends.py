"""Sends, each exactly once: idempotency keys, repeated requests, limits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.approval import digest_of
from postroom.errors import Conflict, RateLimited
from postroom.mail.addresses import without_tag
from postroom.mail.text.fold import as_key
from postroom.model.mail.approval import GateRequest, Hold
from postroom.model.mail.message import FLAGS, Recipient, hidden_chars
from postroom.model.mail.sending import PAUSED, Sent, mailbox_of, overall_status, waits_until
from postroom.model.mail.storage import NewSend, ReplyLimit
from postroom.store.search.index import SetChange, flag_set, update_message_sets
from postroom.store.sql.accounts.pushes import Delta, account_feeding, insert_push, insert_sent_copy
from postroom.store.sql.events import count_send
from postroom.store.sql.messages.message_insert import add_message
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.sql.outbox.drafts import mark_sent, sent_as
from postroom.store.sql.outbox.holds import explain_hold, pass_gate
from postroom.store.sql.outbox.queue import GateResult, insert_outbox_entry, is_paused
from postroom.store.sql.statements import (
    dumps,
    exists,
    from_text,
    inbox_number,
    insert,
    moment_or_none,
    scalar,
    seconds,
    stored_hold,
)
from postroom.store.transaction import Transaction

REPLY_WINDOW = timedelta(hours=24)
SENT_SINCE = """
    SELECT details FROM messages
     WHERE +inbox = :inbox AND thread = :thread AND is_outbound = 1 AND received_at > :since
"""
REPLIES_SINCE = "SELECT inbox FROM automatic_replies WHERE address = :address AND at > :since"
REPLIES_BY_ADDRESS = """
    SELECT i.id, r.address, count(*) FROM automatic_replies r JOIN inboxes i ON i.number = r.inbox
     WHERE r.at > :since GROUP BY i.id, r.address
"""
FORWARDS_SINCE = """
    SELECT count(*) FROM sends
     WHERE caller = :caller AND at > :since AND replace(response, :thread, '') <> response
"""
OWN = """
    SELECT 1 FROM messages
     WHERE inbox = :inbox AND internet_id = :internet_id AND is_outbound = 1
"""


def refuse_second_answer(
    tx: Transaction, thread_id: str | None, answered: Collection[str], now: datetime
) -> None:
    """Refuse a second automatic reply to an address in a thread within a day. Raises Conflict."""
    named = tx.one(NAMED, id=thread_id) if answered else None
    if named is None:
        return
    rows = tx.all(SENT_SINCE, thread=named[0], inbox=named[1], since=seconds(now - REPLY_WINDOW))
    before = {a for (details,) in rows for a in from_text(details).get("auto_answered") or ()}
    for address in sorted(before & {address.lower() for address in answered}):
        raise Conflict(
            f"{address} got an automatic reply in this thread within a day; leave out automatic "
            "if a person wrote this one"
        )


def refuse_many_replies(
    tx: Transaction, inbox_id: str, addresses: Iterable[str], limit: ReplyLimit, now: datetime
) -> None:
    """Refuse automatic replies to an address above its daily limit. Raises Conflict."""
    inbox, since = inbox_number(tx, inbox_id), seconds(now - REPLY_WINDOW)
    for address in _reply_keys(addresses):
        numbers = [row[0] for row in tx.all(REPLIES_SINCE, address=address, since=since)]
        is_over = limit.in_all is not None and len(numbers) >= limit.in_all
        if is_over or numbers.count(inbox) >= limit.in_inbox:
            raise Conflict(
                f"{address} has reached its daily limit of automatic replies; leave out "
                "automatic if a person wrote this one, or reply tomorrow"
            )


def count_replies(tx: Transaction, inbox: int, addresses: Iterable[str], now: datetime) -> None:
    """Count an automatic reply, and remove expired counts."""
    tx.put("DELETE FROM automatic_replies WHERE at <= :since", since=seconds(now - REPLY_WINDOW))
    for address in _reply_keys(addresses):
        insert(tx, "automatic_replies", inbox=inbox, address=address, at=seconds(now))


def replies_today(tx: Transaction, now: datetime) -> dict[tuple[str, str], int]:
    """How many automatic replies went out within a day, by inbox and address."""
    rows = tx.all(REPLIES_BY_ADDRESS, since=seconds(now - REPLY_WINDOW))
    return {(inbox_id, address): count for inbox_id, address, count in rows}


def _reply_keys(addresses: Iterable[str]) -> list[str]:
    """The keys by which replies are counted: an address without case and plus-tag."""
    return list(dict.fromkeys(as_key(without_tag(address)) for address in addresses))


def forwards_since(tx: Transaction, caller: str, thread_id: str, since: datetime) -> int:
    """The number of mails that a rule has sent in a thread."""
    return int(scalar(tx, FORWARDS_SINCE, caller=caller, thread=thread_id, since=seconds(since)))


def is_own_mail(tx: Transaction, inbox_id: str, internet_message_id: str) -> bool:
    """Whether an inbox has sent the mail with this Message-ID."""
    inbox = inbox_number(tx, inbox_id)
    return exists(tx, OWN, inbox=inbox, internet_id=internet_message_id)


KEY_RETENTION_S = int(timedelta(days=7).total_seconds())
REPEAT_WINDOW_S = int(timedelta(minutes=10).total_seconds())
HOUR_S = 3600
_REPEATED = (
    "the same mail was sent minutes ago, so it was not sent again; allow_duplicate: true sends it"
)
_REMOVED = "its message was removed since"
_FAILED = ("failed", "bounced", "rejected")
_FORMER = {"agent": "agent:before"}
"""The caller recorded for sends before an upgrade; they count for no limit."""
_ANSWERED = 1 << FLAGS.index("answered")

BY_KEY = """
    SELECT response, request_hash FROM sends
     WHERE caller = :caller AND idempotency_key = :key AND at > :since
"""
BY_PAYLOAD = """
    SELECT response FROM sends WHERE caller = :caller AND request_hash = :payload AND at > :since
     ORDER BY number
"""
RESULT = """
    SELECT t.id, m.details
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.id = :id
"""
INSERT_SEND = """
    INSERT INTO sends (caller, idempotency_key, request_hash, at, response)
    VALUES (:caller, :key, :payload, :at, :answer)
"""
OLDEST_OF_HOUR = "SELECT count(*), min(at) FROM sends WHERE caller = :caller AND at > :since"


def record_send(tx: Transaction, send: NewSend) -> Sent:
    """Store a sent message and its local deliveries, or return the result of an earlier request.

    Raises:
        Conflict: the idempotency key was used with another payload, or the mail is an automatic
            answer to an address that got one in this thread within a day.
        RateLimited: the caller has reached its limit for this hour.
    """
    earlier = _earlier(tx, send)
    if earlier is not None:
        return earlier
    _refuse_over_limits(tx, send)
    gate_result = _pass_gate(tx, send)
    sent = _store(tx, send, gate_result)
    if send.draft_id is not None:
        it = (send.draft_id, send.draft_revision)
        mark_sent(tx, *it, sent.message_id, send.message.received_at)
    now = seconds(send.message.received_at)
    tx.put("DELETE FROM sends WHERE at <= :since", since=now - KEY_RETENTION_S)
    request = {"caller": send.caller, "key": send.idempotency_key, "payload": send.payload}
    tx.put(INSERT_SEND, **request, at=now, answer=dumps(sent))
    return _with_pause(tx, sent)


def _refuse_over_limits(tx: Transaction, send: NewSend) -> None:
    """Refuse too many automatic answers, or too many mails of a caller."""
    message = send.message
    refuse_second_answer(tx, message.thread_id, message.auto_answered, message.received_at)
    if send.reply_limit is not None:
        refuse_many_replies(
            tx, message.inbox_id, _addresses(send), send.reply_limit, message.received_at
        )
    _check_rate(tx, send, seconds(message.received_at))


def _addresses(send: NewSend) -> list[str]:
    return [recipient.address for recipient in send.message.recipients or ()]


def _store(tx: Transaction, send: NewSend, gate_result: GateResult) -> Sent:
    """Store the message, its local deliveries and its outbox entry; one that is held waits."""
    recipients = _waiting(send.message.recipients or (), gate_result.hold)
    added = add_message(
        tx,
        replace(
            send.message,
            recipients=recipients,
            mailboxes=(mailbox_of(recipients),),
            send_at=send.send_at,
            hold=stored_hold(gate_result.hold) if gate_result.hold else None,
        ),
    )
    for delivery in send.deliveries if gate_result.hold is None else ():
        add_message(tx, delivery)
    if send.answered is not None:
        _mark_answered(tx, send.answered)
    place = tx.one("SELECT inbox, number FROM messages WHERE id = :id", id=added.message_id)
    inbox, number = place or (0, 0)
    if send.reply_limit is not None:
        count_replies(tx, inbox, _addresses(send), send.message.received_at)
    insert_sent_copy(tx, inbox, number, added.message_id, statuses={r.status for r in recipients})
    insert_outbox_entry(
        tx,
        inbox,
        number,
        recipients,
        seconds(send.send_at or send.message.received_at),
        is_scheduled=send.send_at is not None or gate_result.hold is not None,
        gate_result=gate_result,
        sent_by=send.caller,
    )
    held = gate_result.hold.reasons if gate_result.hold else ()
    count_send(tx, inbox, send.message.received_at, via=send.via, is_held=bool(held))
    return Sent(
        added.message_id,
        added.thread_id,
        overall_status(recipients),
        recipients,
        warnings=((explain_hold(held), *send.warnings) if held else send.warnings) or None,
        send_at=waits_until(recipients, send.send_at),
    )


def _pass_gate(tx: Transaction, send: NewSend) -> GateResult:
    """Pass a new mail through the gate. Raises Forbidden if a policy denies a recipient."""
    message = send.message
    mail = GateRequest(
        inbox=inbox_number(tx, message.inbox_id),
        raw=message.raw,
        sender=message.sender.address if message.sender else "",
        recipients=[recipient.address for recipient in message.recipients or ()],
        external_recipients=send.external_recipients,
        authors=send.authors or (send.caller,),
        attachments=sum(not a.is_inline for a in message.attachments),
        hidden_chars=hidden_chars(message.security),
        thread_id=message.thread_id,
        disclosures=send.warnings,
        now=message.received_at,
    )
    return GateResult(digest_of(mail), tuple(mail.authors), pass_gate(tx, mail, send.gate))


def _waiting(recipients: tuple[Recipient, ...], hold: Hold | None) -> tuple[Recipient, ...]:
    """The recipients of a new mail: all of them wait if it is held."""
    if hold is None:
        return recipients
    return tuple(Recipient(r.address, "held", "; ".join(hold.reasons)) for r in recipients)


def _with_pause(tx: Transaction, sent: Sent) -> Sent:
    """Add a warning if the mail is queued and the outbox is paused."""
    is_queued = any(recipient.status == "queued" for recipient in sent.recipients)
    if not is_queued or not is_paused(tx):
        return sent
    return replace(sent, warnings=(*(sent.warnings or ()), PAUSED))


def _earlier(tx: Transaction, send: NewSend) -> Sent | None:
    """The result of the same send before; for a draft, of any caller at any time."""
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
    return None if message_id is None else _result(tx, message_id)


def _result(tx: Transaction, message_id: str) -> Sent:
    """The current result of a sent message. Raises Conflict when it was removed."""
    row = tx.one(RESULT, id=message_id)
    if row is None:
        raise Conflict(f"it was sent as {message_id}, and {_REMOVED}")
    details = from_text(row[1])
    recipients = tuple(Recipient(**r) for r in details["recipients"])
    send_at = waits_until(recipients, moment_or_none(details.get("send_at")))
    return Sent(message_id, row[0], overall_status(recipients), recipients, send_at=send_at)


def _mark_answered(tx: Transaction, message_id: str) -> None:
    """Flag the message that was answered, here and at its provider."""
    row = tx.one("SELECT number, inbox, flags FROM messages WHERE id = :id", id=message_id)
    if row is None or row[2] & _ANSWERED:
        return
    tx.put(
        f"UPDATE messages SET flags = flags | {_ANSWERED} WHERE inbox = :inbox AND number = :n",
        inbox=row[1],
        n=row[0],
    )
    update_message_sets(tx, [SetChange(row[0], row[1], set(), {flag_set("answered")})])
    feeding_account = account_feeding(tx, row[1])
    if feeding_account is not None:
        insert_push(tx, feeding_account, row[0], message_id, Delta(add_flags=("answered",)))


def earlier_send(
    tx: Transaction,
    caller: str,
    payload: bytes,
    *,
    idempotency_key: str | None,
    allow_duplicate: bool,
    now: datetime,
) -> Sent | None:
    """The earlier result of this send. Raises Conflict on a key that was used for another mail."""
    if idempotency_key is not None:
        since = seconds(now) - KEY_RETENTION_S
        row = tx.one(BY_KEY, caller=caller, key=idempotency_key, since=since)
        if row is not None and row[1] != payload:
            raise Conflict(
                f"the idempotency key {idempotency_key} was used for another mail; "
                "use a new key for a new mail"
            )
        return _with_removal_warning(tx, _sent(row[0])) if row else None
    if allow_duplicate:
        return None
    since = seconds(now) - REPEAT_WINDOW_S
    found = _repeated(tx, caller, payload, since)
    if found is None and caller in _FORMER:
        found = _repeated(tx, _FORMER[caller], payload, since)
    return found


def _repeated(tx: Transaction, caller: str, payload: bytes, since: int) -> Sent | None:
    """The first identical mail since a time that has reached, or may reach, any recipient."""
    for (answer,) in tx.all(BY_PAYLOAD, caller=caller, payload=payload, since=since):
        sent = replace(_sent(answer), deduplicated=True, warnings=(_REPEATED,))
        if not _failed_for_all(tx, sent):
            return _with_removal_warning(tx, sent)
    return None


def _failed_for_all(tx: Transaction, sent: Sent) -> bool:
    """Whether a mail failed for all recipients, so that sending it again is no duplicate."""
    row = tx.one(RESULT, id=sent.message_id)
    if row is None:
        return all(recipient.status in _FAILED for recipient in sent.recipients)
    return all(recipient["status"] in _FAILED for recipient in from_text(row[1])["recipients"])


def _with_removal_warning(tx: Transaction, sent: Sent) -> Sent:
    """The stored result, with a warning if its message was removed."""
    if exists(tx, RESULT, id=sent.message_id):
        return sent
    return replace(sent, warnings=(*(sent.warnings or ()), _REMOVED))


def _sent(answer: str) -> Sent:
    values = from_text(answer)
    recipients = tuple(Recipient(**recipient) for recipient in values.pop("recipients"))
    warnings = tuple(values.pop("warnings", None) or ()) or None
    send_at = values.pop("send_at", None)
    when = datetime.fromisoformat(send_at) if send_at else None
    return Sent(**values, recipients=recipients, warnings=warnings, send_at=when)


def _check_rate(tx: Transaction, send: NewSend, now: int) -> None:
    if send.max_per_hour is None:
        return
    row = tx.one(OLDEST_OF_HOUR, caller=send.caller, since=now - HOUR_S)
    if row is not None and row[0] >= send.max_per_hour:
        wait = max(1, row[1] + HOUR_S - now)
        raise RateLimited(
            f"{row[0]} mails were sent within the hour, which is the limit for one sender; try "
            f"again in {wait} s",
            retry_after=wait,
        )
