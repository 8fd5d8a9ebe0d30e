"""Links and ties of memories to mail and people, and the shingles that recognise their text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from postroom.errors import Forbidden, NotFound
from postroom.model.inbox import Visible
from postroom.model.memory import DisclosedMemory, Link, Namespaces, RecalledMemory, summary_of
from postroom.model.view import EVERYTHING, Everything
from postroom.store.sql.statements import (
    Conditions,
    any_of,
    batches,
    exists,
    from_text,
    insert_many,
    moment,
    seconds,
    update,
)
from postroom.store.transaction import Row, Transaction

_MIN_WORDS, _SHINGLE_WORDS = 2, 4
_MAX_WORDS, _MAX_MAIL_WORDS = 16_000, 20_000
"""The number of words compared: of a memory (more than 64 KB of prose) and of a mail."""


def text_shingles(text: str) -> set[int]:
    """Hash each run of four words of a text; a shorter text is one run, a single word is none."""
    terms = _terms(text, _MAX_WORDS)
    return _runs(terms, min(len(terms), _SHINGLE_WORDS)) if len(terms) >= _MIN_WORDS else set()


def mail_shingles(text: str) -> set[int]:
    """Hash each run of words of a mail by which a memory may be recognised."""
    terms = _terms(text, _MAX_MAIL_WORDS)
    lengths = range(_MIN_WORDS, _SHINGLE_WORDS + 1)
    return set().union(*(_runs(terms, length) for length in lengths))


def _terms(text: str, limit: int) -> list[str]:
    from postroom.mail.text.terms import words

    return list(islice((term for word in words(text) for term in word.terms), limit))


def _runs(terms: Sequence[str], length: int) -> set[int]:
    starts = range(len(terms) - length + 1)
    return {_hash(run) for run in {"\x1f".join(terms[at : at + length]) for at in starts}}


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


_BATCH_SIZE = 500
_MAX_MESSAGES = 50

LINKS = """
    SELECT type, display_target, weight FROM memory_links WHERE memory = :memory ORDER BY position
"""
SEEN_MESSAGE = """
    SELECT i.id FROM messages m JOIN inboxes i ON i.number = m.inbox WHERE m.id = :id
"""
NAMED_THREAD = """
    SELECT number FROM threads WHERE id = :id UNION SELECT thread FROM thread_aliases WHERE id = :id
"""
SEEN_THREAD = f"""
    SELECT i.id FROM threads t JOIN inboxes i ON i.number = t.inbox
     WHERE t.number IN ({NAMED_THREAD})
"""
CURRENT_ID = f"SELECT id FROM threads WHERE number IN ({NAMED_THREAD})"
PEOPLE_OF_MESSAGE = """
    SELECT m.addresses, i.address FROM messages m JOIN inboxes i ON i.number = m.inbox
     WHERE m.id = :id
"""
PEOPLE_OF_THREAD = f"""
    SELECT m.addresses, i.address FROM messages m JOIN inboxes i ON i.number = m.inbox
     WHERE m.thread IN ({NAMED_THREAD})
     ORDER BY m.number DESC LIMIT :limit
"""


def target_of(tx: Transaction, to: str) -> str:
    """The target of a link in the form in which it is compared.

    Addresses are in lower case; a merged thread is replaced by the thread it is part of.
    """
    link = Link("", to)
    if link.is_mail and not link.is_message:
        row = tx.one(CURRENT_ID, id=to)
        return str(row[0]) if row else to
    return to.lower() if link.is_address else to


def links_of(tx: Transaction, memory: int) -> tuple[Link, ...]:
    """The links of a memory, in order."""
    return tuple(Link(*row) for row in tx.all(LINKS, memory=memory))


def check_links(
    tx: Transaction, links: Sequence[Link], *, known: Sequence[Link], visible: Visible
) -> None:
    """Refuse a link to mail that the caller cannot see. Raises NotFound."""
    held = {link.to for link in known}
    for position, link in enumerate(links):
        if not link.is_mail or link.to in held:
            continue
        if not is_visible(tx, link.to, visible):
            kind = "message" if link.is_message else "thread"
            raise NotFound(f"links[{position}].to: no {kind} {link.to}")


def is_visible(tx: Transaction, mail: str, visible: Visible) -> bool:
    """Whether a caller can see a message or a thread."""
    row = tx.one(SEEN_MESSAGE if Link("", mail).is_message else SEEN_THREAD, id=mail)
    return row is not None and visible.sees(row[0])


def refuse_source_removal(tx: Transaction, links: Sequence[Link], *, known: Sequence[Link]) -> None:
    """Refuse to remove links to mail. Raises Forbidden."""
    given = {target_of(tx, link.to) for link in links}
    for link in known:
        if link.is_mail and target_of(tx, link.to) not in given:
            raise Forbidden(
                f"links: {link.to} is the source of this memory, which only the owner can "
                "remove; include it in links, or leave links out"
            )


def has_removed_mail(tx: Transaction, links: Iterable[Link]) -> bool:
    """Whether a link leads to mail that was removed."""
    return any(link.is_mail and not _exists(tx, link) for link in links)


def set_links(tx: Transaction, memory: int, links: Sequence[Link], text: str) -> None:
    """Replace the links of a memory, and the ties that follow from them."""
    for table in ("memory_links", "memory_ties", "memory_shingles"):
        tx.run(f"DELETE FROM {table} WHERE memory = :memory", memory=memory)
    if not links:
        return
    insert_many(
        tx,
        "memory_links",
        [
            {
                "memory": memory,
                "position": position,
                "type": link.type,
                "target": target_of(tx, link.to),
                "display_target": link.to,
                "weight": link.weight,
            }
            for position, link in enumerate(links)
        ],
    )
    ties = sorted({address for link in links for address in _contacts(tx, link)})
    if ties:
        insert_many(tx, "memory_ties", [{"memory": memory, "address": one} for one in ties])
        shingles = [{"shingle": one, "memory": memory} for one in text_shingles(text)]
        insert_many(tx, "memory_shingles", shingles)


def _contacts(tx: Transaction, link: Link) -> Iterator[str]:
    """The people of a link: the address itself, or the other participants of the mail."""
    if link.is_address:
        yield link.to.lower()
    if not link.is_mail:
        return
    if link.is_message:
        rows = tx.all(PEOPLE_OF_MESSAGE, id=link.to)
    else:
        rows = tx.all(PEOPLE_OF_THREAD, id=link.to, limit=_MAX_MESSAGES)
    for addresses, own in rows:
        for _, _, address in from_text(addresses):
            if address and address.lower() != own.lower():
                yield address.lower()


def linked_addresses(tx: Transaction, memory: int, visible: Visible) -> set[str]:
    """The addresses that a memory is tied to, through mail that the caller can see."""
    if isinstance(visible, Everything):
        rows = tx.all("SELECT address FROM memory_ties WHERE memory = :m", m=memory)
        return {row[0] for row in rows}
    seen = (
        link
        for link in links_of(tx, memory)
        if not link.is_mail or is_visible(tx, link.to, visible)
    )
    return {address for link in seen for address in _contacts(tx, link)}


def memories_from_mail(tx: Transaction, which: str, **params: object) -> list[int]:
    """The memories that link to some messages or to their threads.

    Removed memories that came from this mail are included. *which* is a condition on the table
    `messages`, of one `:inbox`.
    """
    rows = tx.all(
        f"""WITH named AS (
                SELECT id FROM messages WHERE {which}
                UNION SELECT t.id FROM threads t
                 WHERE +t.inbox = :inbox
                   AND t.number IN (SELECT thread FROM messages WHERE {which}))
            SELECT memory FROM memory_links WHERE target IN (SELECT id FROM named)
             UNION
            SELECT memory FROM mail_memory_sources WHERE source IN (SELECT id FROM named)""",
        **params,
    )
    return sorted({row[0] for row in rows})


def mark_stale(tx: Transaction, memories: Sequence[int]) -> list[tuple[int, int]]:
    """Mark memories as stale if some of their mail was removed.

    Returns collection and number of the memories to be removed: those without any mail left that
    the owner did not write.
    """
    removed: list[tuple[int, int]] = []
    for memory in memories:
        row = tx.one(
            "SELECT collection, written_by_owner FROM memories WHERE number = :n", n=memory
        )
        existing = [_exists(tx, link) for link in links_of(tx, memory) if link.is_mail]
        if row is None or all(existing):
            continue
        if row[1] or any(existing):
            update(tx, "memories", {"number": memory}, is_stale=1)
        else:
            removed.append((row[0], memory))
    return removed


def _exists(tx: Transaction, link: Link) -> bool:
    return is_visible(tx, link.to, EVERYTHING)


def redirect_links(tx: Transaction, inbox: int, into: int, others: Sequence[int]) -> None:
    """Redirect links from merged threads to the thread they are part of."""
    among, params = any_of("thread", others)
    which = {"inbox": inbox, "into": into, **params}
    there = "SELECT id FROM threads WHERE +inbox = :inbox AND number"
    tx.run(
        f"""UPDATE memory_links SET target = ({there} = :into), display_target = ({there} = :into)
             WHERE target IN ({there} {among})""",
        **which,
    )
    tx.run(
        f"""INSERT INTO mail_memory_sources (memory, source)
            SELECT DISTINCT memory, ({there} = :into) FROM mail_memory_sources
             WHERE source IN ({there} {among}) ON CONFLICT DO NOTHING""",
        **which,
    )
    tx.run(f"DELETE FROM mail_memory_sources WHERE source IN ({there} {among})", **which)


def unexpired(namespaces: Namespaces, now: datetime) -> Conditions:
    """The memories `m` of the collections `s` that are in these namespaces and have not expired."""
    where = Conditions()
    where.add("(m.expires_at IS NULL OR m.expires_at > :now)", now=seconds(now))
    where.within("s.name", namespaces, "namespace")
    return where


RECALLED = """
    SELECT s.name, m.key, m.summary, m.text, m.trust, m.is_stale, m.updated_at, x.target, m.number
      FROM ({found}) x JOIN memories m ON m.number = x.memory
       JOIN ranking_collections s ON s.number = m.collection
     WHERE {where} ORDER BY m.updated_at DESC, m.number DESC, x.target LIMIT :limit
"""


def memories_about(
    tx: Transaction,
    addresses: Sequence[str],
    mail: Sequence[str],
    namespaces: Namespaces,
    *,
    visible: Visible,
    now: datetime,
    limit: int,
) -> tuple[RecalledMemory, ...]:
    """Memories that are tied to some people or linked to some mail, newest first.

    Participants of mail that the caller cannot see do not count as ties.
    """
    people, params = any_of("address", sorted({a.lower() for a in addresses})[:_BATCH_SIZE])
    targets, more = any_of("target", mail)
    found = f"""SELECT memory, address AS target FROM memory_ties WHERE address {people}
          UNION SELECT memory, target FROM memory_links WHERE target {targets}"""
    where = unexpired(namespaces, now)
    sql = RECALLED.format(found=found, where=where.sql)
    rows = tx.all(sql, **params, **more, **where.params, limit=limit * _BATCH_SIZE)
    shown: dict[int, Row] = {}
    for row in rows:
        if len(shown) == limit:
            break
        number, target = row[8], row[7]
        if number in shown:
            continue
        if (
            visible == EVERYTHING
            or target in mail
            or target in linked_addresses(tx, number, visible)
        ):
            shown[number] = row
    return tuple(map(_recalled, shown.values()))


def _recalled(row: Row) -> RecalledMemory:
    namespace, key, summary, text, trust, is_stale, updated_at, about, _ = row
    summary = summary_of(text) if summary is None else summary
    stale = bool(is_stale) or None
    return RecalledMemory(namespace, key, summary, about, trust, moment(updated_at), stale=stale)


_ENOUGH_SHINGLES = 3
"""The number of common runs of four words, or all of a shorter text, that count as a match."""

_MAX_EXAMINED, _MAX_REPORTED = 500, 20
"""Limits on the memories examined, most similar first, and on those reported."""

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
) -> list[DisclosedMemory]:
    """Memories whose text is in a mail to a recipient that they are not tied to.

    Only memories in these namespaces count, and only ties through mail of *visible* inboxes.
    """
    if not exists(tx, "SELECT 1 FROM memory_ties LIMIT 1"):
        return []
    matches = _matches(tx, mail_shingles(text), unexpired(namespaces, now))
    addresses = {address.lower() for address in recipients}
    found = (
        _tied(tx, memory, count, addresses, visible)
        for memory, count in matches.most_common(_MAX_EXAMINED)
    )
    return list(islice((tied for tied in found if tied is not None), _MAX_REPORTED))


def _matches(tx: Transaction, asked: set[int], where: Conditions) -> Counter[int]:
    matches: Counter[int] = Counter()
    for batch in batches(asked):
        among, params = any_of("shingle", batch)
        sql = WITH_SHINGLES.format(among=among, where=where.sql)
        matches.update(row[0] for row in tx.all(sql, **params, **where.params))
    return matches


def _tied(
    tx: Transaction, memory: int, count: int, recipients: set[str], visible: Visible
) -> DisclosedMemory | None:
    row = tx.one(OF_MEMORY, memory=memory, enough=_ENOUGH_SHINGLES)
    if row is None or count < row[2]:
        return None
    ties = linked_addresses(tx, memory, visible)
    others = sorted(recipients - ties)
    if not ties or not others:
        return None
    links = links_of(tx, memory)
    return DisclosedMemory(
        row[0],
        row[1],
        about=tuple(sorted({link.to.lower() for link in links if link.is_address})),
        sources=tuple(dict.fromkeys(link.to for link in links if link.is_mail)),
        others=tuple(others),
    )
