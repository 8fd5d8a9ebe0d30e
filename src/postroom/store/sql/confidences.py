"""Memories about somebody that are noticed in a mail to somebody else."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from postroom.model.memory import Namespaces, TiedMemory
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

_FEWEST_WORDS, _SHINGLE_WORDS = 2, 4
_MOST_WORDS, _MOST_SENT_WORDS = 16_000, 20_000
"""How many words of a memory, more than 64 KB of prose have, and of a mail are compared."""

_ENOUGH_SHINGLES = 3
"""That many runs of four words in common, or all of a shorter text, are no accident."""

_MOST_LOOKED_AT, _MOST_TOLD = 500, 20
"""Of those with most in common: what is about the recipients does not stand before the others."""

_AT_ONCE = 500

OF_MEMORY = """
    SELECT s.name, m.key, (SELECT count(*) FROM (
               SELECT 1 FROM memory_shingles x WHERE x.memory = :memory LIMIT :enough) AS few)
      FROM memories m JOIN shelves s ON s.number = m.shelf WHERE m.number = :memory
"""


def kept_shingles(text: str) -> set[int]:
    """Each run of four words of a text as a number; a shorter text is one run, a word is none."""
    terms = _terms(text, _MOST_WORDS)
    return _runs(terms, min(len(terms), _SHINGLE_WORDS)) if len(terms) >= _FEWEST_WORDS else set()


def _sent_shingles(text: str) -> set[int]:
    """Each run of words of a mail that a memory may be recognised by."""
    terms = _terms(text, _MOST_SENT_WORDS)
    lengths = range(_FEWEST_WORDS, _SHINGLE_WORDS + 1)
    return set().union(*(_runs(terms, length) for length in lengths))


def _terms(text: str, most: int) -> list[str]:
    from postroom.mail.terms import words

    return list(islice((term for word in words(text) for term in word.terms), most))


def _runs(terms: Sequence[str], length: int) -> set[int]:
    starts = range(len(terms) - length + 1)
    return {_hash(run) for run in {"\x1f".join(terms[at : at + length]) for at in starts}}


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def tied_memories(
    tx: Transaction, text: str, recipients: Iterable[str], namespaces: Namespaces
) -> list[TiedMemory]:
    """Memories whose text is in a mail, though it goes to somebody they are not tied to."""
    if tx.one("SELECT 1 FROM memory_ties LIMIT 1") is None:
        return []
    matches = _matches(tx, _sent_shingles(text))
    wanted = {address.lower() for address in recipients}
    found = (
        _tied(tx, memory, count, wanted) for memory, count in matches.most_common(_MOST_LOOKED_AT)
    )
    told = (
        tied
        for tied in found
        if tied is not None and (namespaces is None or tied.namespace in namespaces)
    )
    return list(islice(told, _MOST_TOLD))


def _matches(tx: Transaction, asked: set[int]) -> Counter[int]:
    matches: Counter[int] = Counter()
    left = iter(asked)
    while batch := list(islice(left, _AT_ONCE)):
        among, params = any_of("shingle", batch)
        rows = tx.all(f"SELECT memory FROM memory_shingles WHERE shingle {among}", **params)
        matches.update(row[0] for row in rows)
    return matches


def _tied(tx: Transaction, memory: int, count: int, recipients: set[str]) -> TiedMemory | None:
    row = tx.one(OF_MEMORY, memory=memory, enough=_ENOUGH_SHINGLES)
    if row is None or count < row[2]:
        return None
    ties = [r[0] for r in tx.all("SELECT address FROM memory_ties WHERE memory = :m", m=memory)]
    others = sorted(recipients - set(ties))
    return TiedMemory(row[0], row[1], tuple(sorted(ties)), tuple(others)) if others else None
