"""Mailboxes and labels: what their names mean, and how many messages are in them."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.model.inbox import Label, Mailbox, standard_mailbox
from postroom.model.page import Found, Slice
from postroom.model.view import Numbers, only
from postroom.store.search.index import IndexSearcher
from postroom.store.sql.statements import Conditions, Listing, caseless, within
from postroom.store.transaction import Row, Transaction

_MAILBOXES = Listing(
    "m.inbox, i.id, m.name, m.folded",
    "mailboxes m JOIN inboxes i ON i.number = m.inbox",
    "m.inbox, m.number",
    counted="mailboxes m",
)
_MAX_SCOPES = 100


def canonical_mailbox(tx: Transaction, name: str, inboxes: Numbers) -> str:
    """The mailbox that a name means: Trash for "Deleted Items", unless there is one of that name.

    An account may have such a mailbox beside the standard ones.
    """
    standard = standard_mailbox(name)
    if standard is None or caseless(standard) == caseless(name):
        return name
    where, params = within("inbox", inboxes)
    sql = f"SELECT 1 FROM mailboxes WHERE folded = :folded AND {where} LIMIT 1"
    return name if tx.one(sql, folded=caseless(name), **params) else standard


def canonical_mailboxes(tx: Transaction, names: Sequence[str], inbox: int) -> tuple[str, ...]:
    """The mailboxes of an inbox that these names mean."""
    return tuple(canonical_mailbox(tx, name, only(inbox)) for name in names)


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


class LabelNames:
    """The labels of inboxes, by their folded names.

    Each inbox has its own, so there are many more of them than names. They are only added, and
    removed with their inbox: what was read stays valid until their number changes.
    """

    def __init__(self) -> None:
        self._read: dict[Numbers, tuple[Row | None, dict[str, str]]] = {}

    def of(self, tx: Transaction, inboxes: Numbers) -> dict[str, str]:
        """The names in order; some of the labels may be on no message."""
        where, params = within("inbox", inboxes)
        state = tx.one(f"SELECT max(number), count(*) FROM labels WHERE {where}", **params)
        read, names = self._read.get(inboxes, (None, {}))
        if read != state:
            sql = f"SELECT folded, min(name) FROM labels WHERE {where} GROUP BY folded"
            names = {row[0]: row[1] for row in tx.all(f"{sql} ORDER BY folded", **params)}
            if len(self._read) >= _MAX_SCOPES:
                self._read.clear()
            self._read[inboxes] = state, names
        return names


def list_labels(
    tx: Transaction, inboxes: Numbers, page: Slice, searcher: IndexSearcher, known: LabelNames
) -> Found[Label]:
    """One page of the labels of messages that are not hidden, by name, with counts."""
    names = known.of(tx, inboxes)
    counts = searcher.count_labels(tx, inboxes, list(names)) if names else {}
    used = [folded for folded in names if counts.get(folded, (0, 0))[0]]
    start = sum(folded <= str(page.after[0]) for folded in used) if page.after else page.offset
    shown = used[start : start + page.limit]
    cursor = (shown[-1],) if shown and start + len(shown) < len(used) else None
    rows = tuple(Label(names[folded], *counts[folded]) for folded in shown)
    return Found(rows, len(used), start, cursor)
