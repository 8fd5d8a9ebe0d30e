"""Automatic answers: a sender gets one in a thread within a day, and our own mail gets none."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from postroom.errors import Conflict
from postroom.model.stored import NewMessage
from postroom.store.sql.threading import NAMED
from postroom.store.sql.values import from_text, seconds
from postroom.store.transaction import Transaction

ONCE_IN = timedelta(hours=24)
SENT_SINCE = """
    SELECT details FROM messages
     WHERE +inbox = :inbox AND thread = :thread AND is_outbound = 1 AND received_at > :since
"""
OWN = """
    SELECT 1 FROM messages
     WHERE inbox = :inbox AND internet_id = :internet_id AND is_outbound = 1
"""


def refuse_second_answer(
    tx: Transaction, thread_id: str | None, answered: Collection[str], now: datetime
) -> None:
    """Raises Conflict when one of these got an automatic answer in this thread within a day."""
    named = tx.one(NAMED, id=thread_id) if answered else None
    if named is None:
        return
    rows = tx.all(SENT_SINCE, thread=named[0], inbox=named[1], since=seconds(now - ONCE_IN))
    before = {address for (details,) in rows for address in _answered(details)}
    for address in sorted(before & {address.lower() for address in answered}):
        raise Conflict(
            f"{address} got an automatic answer in this thread within a day; leave out automatic "
            "if a person wrote this one"
        )


def _answered(details: str) -> list[str]:
    return from_text(details).get("auto_answered") or []


def auto_answered(message: NewMessage) -> dict[str, object]:
    """What is noted of a message that is an automatic answer."""
    return {"auto_answered": message.auto_answered} if message.auto_answered else {}


def is_own_mail(tx: Transaction, inbox_id: str, internet_message_id: str) -> bool:
    """Whether an inbox has sent the mail with this Message-ID."""
    inbox = tx.one("SELECT number FROM inboxes WHERE id = :id", id=inbox_id)
    found = inbox and tx.one(OWN, inbox=inbox[0], internet_id=internet_message_id)
    return found is not None
