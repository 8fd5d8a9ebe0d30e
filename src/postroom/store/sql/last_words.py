"""What is still known of a send once its message is removed."""

from __future__ import annotations

from typing import Any

from postroom.errors import Conflict
from postroom.model.message import Recipient
from postroom.model.sending import OPEN, overall_status
from postroom.store.sql.values import dumps, from_text
from postroom.store.transaction import Transaction

SENT = """
    SELECT m.id, m.received_at, m.details, o.pending
      FROM messages m LEFT JOIN outbox o ON o.inbox = m.inbox AND o.message = m.number
     WHERE m.inbox = :inbox AND m.number = :number AND m.is_outbound = 1
"""
ON_ITS_WAY = """
    SELECT message FROM outbox WHERE inbox = :inbox AND state IN ('waiting', 'claimed',
        'handing_over')
"""
_DROPPED = "its message was removed before it was sent"
_MAYBE = "its message was removed while it was handed over"


def refuse_on_its_way(tx: Transaction, inbox: int, number: int, message_id: str) -> None:
    """A mail that is removed would not go out, and nobody would be told. Raises Conflict."""
    row = tx.one(f"{ON_ITS_WAY} AND message = :number", inbox=inbox, number=number)
    if row is not None:
        raise Conflict(
            f"{message_id} is on its way out; cancel_message stops it, then it can be removed"
        )


def keep_last_words(tx: Transaction, inbox: int) -> None:
    """All mail of an inbox is removed: what is on its way does not go out."""
    for (number,) in tx.all(ON_ITS_WAY, inbox=inbox):
        keep_last_word(tx, inbox, number)


def keep_last_word(tx: Transaction, inbox: int, number: int) -> None:
    """Let whoever repeats a send hear what became of it, though its message is about to go."""
    row = tx.one(SENT, inbox=inbox, number=number)
    if row is None:
        return
    message_id, at, details, pending = row
    handed_over = from_text(pending or "[]")
    recipients = tuple(_last(r, handed_over) for r in from_text(details)["recipients"] or ())
    for send, answer in tx.all("SELECT number, answer FROM sends WHERE at = :at", at=at):
        said = from_text(answer)
        if recipients and said["message_id"] == message_id:
            said |= {"recipients": recipients, "status": overall_status(recipients)}
            tx.run("UPDATE sends SET answer = :a WHERE number = :n", a=dumps(said), n=send)


def _last(recipient: dict[str, Any], handed_over: list[str]) -> Recipient:
    address, status = recipient["address"], recipient["status"]
    if status not in OPEN:
        return Recipient(**recipient)
    if address in handed_over:
        return Recipient(address, "unknown", _MAYBE)
    return Recipient(address, "failed", _DROPPED)
