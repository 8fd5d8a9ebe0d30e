"""Mailboxes: what their names mean, and how many messages are in them."""

from __future__ import annotations

from postroom.model.inbox import WELL_KNOWN_MAILBOXES, Mailbox
from postroom.model.page import Found, Slice
from postroom.model.view import Numbers
from postroom.store.search.index import IndexSearcher
from postroom.store.sql.conditions import Conditions, Listing, within
from postroom.store.sql.values import caseless
from postroom.store.transaction import Transaction

_MAILBOXES = Listing(
    "m.inbox, i.id, m.name, m.folded",
    "mailboxes m JOIN inboxes i ON i.number = m.inbox",
    "m.inbox, m.number",
    counted="mailboxes m",
)


def canonical_mailbox(tx: Transaction, name: str, inboxes: Numbers) -> str:
    """The mailbox that a name means: Trash for "Deleted Items", unless there is one of that name.

    An account may have such a mailbox beside the standard ones.
    """
    standard = WELL_KNOWN_MAILBOXES.get(caseless(name).removeprefix("[gmail]/"))
    if standard is None:
        return name
    where, params = within("inbox", inboxes)
    sql = f"SELECT 1 FROM mailboxes WHERE folded = :folded AND {where} LIMIT 1"
    return name if tx.one(sql, folded=caseless(name), **params) else standard


def list_mailboxes(
    tx: Transaction, inboxes: Numbers, page: Slice, searcher: IndexSearcher
) -> Found[Mailbox]:
    """One page of the mailboxes of some inboxes, with counts."""
    where = Conditions()
    where.within("m.inbox", inboxes)
    found = _MAILBOXES.page(tx, where, page, tuple)
    keys = [(row[0], row[3]) for row in found.rows]
    counts = searcher.count_mailboxes(tx, keys) if keys else {}
    rows = tuple(Mailbox(row[1], row[2], *counts[row[0], row[3]]) for row in found.rows)
    return Found(rows, found.total, found.offset, found.next)
