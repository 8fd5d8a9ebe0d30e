"""Where memories come from and whom they are about, and what follows when mail is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from postroom.errors import Forbidden, NotFound
from postroom.model.inbox import Visible
from postroom.model.memory import Link, Namespaces, RecalledMemory, summary_of
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.confidences import kept_shingles
from postroom.store.sql.values import any_of, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

_AT_ONCE = 500
_MOST_MESSAGES = 50

INSERT_LINK = """
    INSERT INTO memory_links (memory, position, type, target, shown, weight)
    VALUES (:memory, :position, :type, :target, :shown, :weight)
"""
LINKS = """
    SELECT type, shown, weight FROM memory_links WHERE memory = :memory ORDER BY position
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
PRESENT_ID = f"SELECT id FROM threads WHERE number IN ({NAMED_THREAD})"
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
    """What a link leads to, as it is compared.

    An address is without case; a thread that became part of another is that.
    """
    link = Link("", to)
    if link.is_mail and not link.is_message:
        row = tx.one(PRESENT_ID, id=to)
        return str(row[0]) if row else to
    return to.lower() if link.is_address else to


def links_of(tx: Transaction, memory: int) -> tuple[Link, ...]:
    """The links of a memory in their order."""
    return tuple(Link(*row) for row in tx.all(LINKS, memory=memory))


def check_links(
    tx: Transaction, links: Sequence[Link], *, known: Sequence[Link], visible: Visible
) -> None:
    """Refuse a link to mail that does not exist for the caller. Raises NotFound."""
    held = {link.to for link in known}
    for position, link in enumerate(links):
        if not link.is_mail or link.to in held:
            continue
        row = tx.one(SEEN_MESSAGE if link.is_message else SEEN_THREAD, id=link.to)
        if row is None or (visible is not None and row[0] not in visible):
            kind = "message" if link.is_message else "thread"
            raise NotFound(f"links[{position}].to: no {kind} {link.to}")


def check_kept(tx: Transaction, links: Sequence[Link], *, known: Sequence[Link]) -> None:
    """Refuse to take links to mail away. Raises Forbidden."""
    kept = {target_of(tx, link.to) for link in links}
    for link in known:
        if link.is_mail and target_of(tx, link.to) not in kept:
            raise Forbidden(
                f"links: {link.to} is where this memory comes from, and only the owner can take "
                "that away; give it among the links, or leave links out"
            )


def names_gone_mail(tx: Transaction, links: Iterable[Link]) -> bool:
    """Whether some link leads to mail that is no more."""
    return any(link.is_mail and not _exists(tx, link) for link in links)


def set_links(tx: Transaction, memory: int, links: Sequence[Link], text: str) -> None:
    """Replace the links of a memory, and with them the contacts that it is tied to."""
    for table in ("memory_links", "memory_ties", "memory_shingles"):
        tx.run(f"DELETE FROM {table} WHERE memory = :memory", memory=memory)
    if not links:
        return
    tx.many(
        INSERT_LINK,
        [
            {
                "memory": memory,
                "position": position,
                "type": link.type,
                "target": target_of(tx, link.to),
                "shown": link.to,
                "weight": link.weight,
            }
            for position, link in enumerate(links)
        ],
    )
    ties = sorted({address for link in links for address in _contacts(tx, link)})
    if ties:
        tx.many(
            "INSERT INTO memory_ties (memory, address) VALUES (:memory, :address)",
            [{"memory": memory, "address": address} for address in ties],
        )
        tx.many(
            "INSERT INTO memory_shingles (shingle, memory) VALUES (:shingle, :memory)",
            [{"shingle": shingle, "memory": memory} for shingle in kept_shingles(text)],
        )


def _contacts(tx: Transaction, link: Link) -> Iterator[str]:
    """The people behind a link: an address itself, or who else took part in the mail."""
    if link.is_address:
        yield link.to.lower()
    if not link.is_mail:
        return
    if link.is_message:
        rows = tx.all(PEOPLE_OF_MESSAGE, id=link.to)
    else:
        rows = tx.all(PEOPLE_OF_THREAD, id=link.to, limit=_MOST_MESSAGES)
    for addresses, own in rows:
        for _, _, address in from_text(addresses):
            if address and address.lower() != own.lower():
                yield address.lower()


def learnt_from(tx: Transaction, which: str, **params: object) -> list[int]:
    """The memories that link to some messages, or to their threads, as long as these exist.

    *which* is a condition on the table `messages`, of one `:inbox`.
    """
    rows = tx.all(
        f"""SELECT memory FROM memory_links WHERE target IN (
                SELECT id FROM messages WHERE {which}
                UNION SELECT t.id FROM threads t
                 WHERE +t.inbox = :inbox
                   AND t.number IN (SELECT thread FROM messages WHERE {which}))""",
        **params,
    )
    return sorted({row[0] for row in rows})


def without_mail(tx: Transaction, memories: Sequence[int]) -> list[tuple[int, int]]:
    """Mark as stale those of the memories of which some mail is gone.

    Returns the shelf and number of those to be removed: none of their mail is left, and it was
    not the owner who wrote them.
    """
    gone: list[tuple[int, int]] = []
    for memory in memories:
        row = tx.one("SELECT shelf, is_owners FROM memories WHERE number = :n", n=memory)
        left = [_exists(tx, link) for link in links_of(tx, memory) if link.is_mail]
        if row is None or all(left):
            continue
        if row[1] or any(left):
            tx.run("UPDATE memories SET is_stale = 1 WHERE number = :n", n=memory)
        else:
            gone.append((row[0], memory))
    return gone


def _exists(tx: Transaction, link: Link) -> bool:
    return tx.one(SEEN_MESSAGE if link.is_message else SEEN_THREAD, id=link.to) is not None


def follow_threads(tx: Transaction, inbox: int, into: int, others: Sequence[int]) -> None:
    """Let links to threads that become part of another lead there."""
    among, params = any_of("thread", others)
    there = "SELECT id FROM threads WHERE +inbox = :inbox AND number"
    tx.run(
        f"""UPDATE memory_links SET target = ({there} = :into), shown = ({there} = :into)
             WHERE target IN ({there} {among})""",
        inbox=inbox,
        into=into,
        **params,
    )


RECALLED = """
    SELECT s.name, m.key, m.summary, m.text, m.trust, m.is_stale, m.updated_at, x.target
      FROM ({found}) x JOIN memories m ON m.number = x.memory JOIN shelves s ON s.number = m.shelf
     WHERE {where} ORDER BY m.updated_at DESC, m.number DESC, x.target LIMIT :most
"""


def recall_about(
    tx: Transaction,
    addresses: Sequence[str],
    mail: Sequence[str],
    namespaces: Namespaces,
    *,
    now: datetime,
    limit: int,
) -> tuple[RecalledMemory, ...]:
    """Memories that are tied to some people or linked to some mail, the newest first."""
    people, params = any_of("address", sorted({a.lower() for a in addresses})[:_AT_ONCE])
    targets, more = any_of("target", mail)
    found = f"""SELECT memory, address AS target FROM memory_ties WHERE address {people}
          UNION SELECT memory, target FROM memory_links WHERE target {targets}"""
    where = Conditions()
    where.add("(m.expires_at IS NULL OR m.expires_at > :now)", now=seconds(now))
    if namespaces is not None:
        where.among("s.name", "namespace", sorted(namespaces))
    sql = RECALLED.format(found=found, where=where.sql)
    rows = tx.all(sql, **params, **more, **where.params, most=limit * _AT_ONCE)
    unique: dict[tuple[str, str], Row] = {}
    for row in rows:
        unique.setdefault((row[0], row[1]), row)
    return tuple(_recalled(row) for row in islice(unique.values(), limit))


def _recalled(row: Row) -> RecalledMemory:
    return RecalledMemory(
        namespace=row[0],
        key=row[1],
        summary=summary_of(row[3]) if row[2] is None else row[2],
        about=row[7],
        trust=row[4],
        updated_at=moment(row[6]),
        stale=bool(row[5]) or None,
    )
