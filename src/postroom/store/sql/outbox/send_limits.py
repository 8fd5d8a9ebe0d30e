"""Limits on sending: automatic replies per recipient and day, mails per domain."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from postroom.errors import Conflict
from postroom.mail.addresses import without_tag
from postroom.mail.text.fold import as_key
from postroom.model.storage import ReplyLimit
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.sql.values import from_text, inbox_number, scalar, seconds
from postroom.store.transaction import Transaction

REPLY_WINDOW = timedelta(hours=24)
SENT_SINCE = """
    SELECT details FROM messages
     WHERE +inbox = :inbox AND thread = :thread AND is_outbound = 1 AND received_at > :since
"""
REPLIES_SINCE = "SELECT inbox FROM automatic_replies WHERE address = :address AND at > :since"
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
    before = {address for (details,) in rows for address in _answered(details)}
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
    tx.many(
        "INSERT INTO automatic_replies (inbox, address, at) VALUES (:inbox, :address, :at)",
        [{"inbox": inbox, "address": key, "at": seconds(now)} for key in _reply_keys(addresses)],
    )


def _reply_keys(addresses: Iterable[str]) -> list[str]:
    """The keys by which replies are counted: an address without case and plus-tag."""
    return list(dict.fromkeys(as_key(without_tag(address)) for address in addresses))


def forwards_since(tx: Transaction, caller: str, thread_id: str, since: datetime) -> int:
    """The number of mails that a rule has sent in a thread."""
    return int(scalar(tx, FORWARDS_SINCE, caller=caller, thread=thread_id, since=seconds(since)))


def _answered(details: str) -> list[str]:
    return from_text(details).get("auto_answered") or []


def is_own_mail(tx: Transaction, inbox_id: str, internet_message_id: str) -> bool:
    """Whether an inbox has sent the mail with this Message-ID."""
    inbox = inbox_number(tx, inbox_id)
    return tx.one(OWN, inbox=inbox, internet_id=internet_message_id) is not None
