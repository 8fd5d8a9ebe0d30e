"""Memories about one person that appear in a mail to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from postroom.model.inbox import Visible
from postroom.model.memory import Namespaces, TiedMemory
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.memories import memory_links
from postroom.store.sql.memories.memory_links import mail_shingles
from postroom.store.sql.values import any_of, seconds
from postroom.store.transaction import Transaction

_ENOUGH_SHINGLES = 3
"""The number of common runs of four words, or all of a shorter text, that count as a match."""

_MAX_EXAMINED, _MAX_REPORTED = 500, 20
"""Limits on the memories examined, most similar first, and on those reported."""

_BATCH_SIZE = 500

OF_MEMORY = """
    SELECT s.name, m.key, (SELECT count(*) FROM (
               SELECT 1 FROM memory_shingles x WHERE x.memory = :memory LIMIT :enough) AS few)
      FROM memories m JOIN ranking_collections s ON s.number = m.collection WHERE m.number = :memory
"""
WITH_SHINGLES = """
    SELECT x.memory FROM memory_shingles x JOIN memories m ON m.number = x.memory
      JOIN ranking_collections s ON s.number = m.collection WHERE x.shingle {among} AND {where}
"""


def tied_memories(
    tx: Transaction,
    text: str,
    recipients: Iterable[str],
    namespaces: Namespaces,
    visible: Visible,
    now: datetime,
) -> list[TiedMemory]:
    """Memories whose text is in a mail to a recipient that they are not tied to.

    Only memories in these namespaces count, and only ties through mail of *visible* inboxes.
    """
    if tx.one("SELECT 1 FROM memory_ties LIMIT 1") is None:
        return []
    where = Conditions()
    where.add("(m.expires_at IS NULL OR m.expires_at > :now)", now=seconds(now))
    where.within("s.name", namespaces, "namespace")
    matches = _matches(tx, mail_shingles(text), where)
    addresses = {address.lower() for address in recipients}
    found = (
        _tied(tx, memory, count, addresses, visible)
        for memory, count in matches.most_common(_MAX_EXAMINED)
    )
    return list(islice((tied for tied in found if tied is not None), _MAX_REPORTED))


def _matches(tx: Transaction, asked: set[int], where: Conditions) -> Counter[int]:
    matches: Counter[int] = Counter()
    remaining = iter(asked)
    while batch := list(islice(remaining, _BATCH_SIZE)):
        among, params = any_of("shingle", batch)
        sql = WITH_SHINGLES.format(among=among, where=where.sql)
        matches.update(row[0] for row in tx.all(sql, **params, **where.params))
    return matches


def _tied(
    tx: Transaction, memory: int, count: int, recipients: set[str], visible: Visible
) -> TiedMemory | None:
    row = tx.one(OF_MEMORY, memory=memory, enough=_ENOUGH_SHINGLES)
    if row is None or count < row[2]:
        return None
    ties = memory_links.ties_of(tx, memory, visible)
    others = sorted(recipients - ties)
    if not ties or not others:
        return None
    links = memory_links.links_of(tx, memory)
    return TiedMemory(
        row[0],
        row[1],
        about=tuple(sorted({link.to.lower() for link in links if link.is_address})),
        sources=tuple(dict.fromkeys(link.to for link in links if link.is_mail)),
        others=tuple(others),
    )
