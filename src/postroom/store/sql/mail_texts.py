"""What came out of mail, known again by its words, whatever has become of the memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from postroom.mail.fold import fold
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

_LONG_RUN = 8
"""So many words in a row are no accident."""

_SHORT_TEXT = 4
"""A text of so many words is known again inside another; a shorter one only if it is all."""

_AT_ONCE = 500


def mark_as_mail(tx: Transaction, texts: Sequence[str], *, with_parts: bool) -> None:
    """Note that texts came out of mail: as a whole, or also each part of some length."""
    digests: set[bytes] = set()
    for terms in map(_terms, texts):
        digests.add(_digest(terms))
        if with_parts:
            digests.update(_digest(run) for run in _runs(terms, _LONG_RUN))
    tx.many(
        "INSERT INTO mail_texts (digest) VALUES (:digest) ON CONFLICT DO NOTHING",
        [{"digest": digest} for digest in sorted(digests)],
    )


def is_from_mail(tx: Transaction, texts: Sequence[str]) -> bool:
    """Whether one of the texts, or a part of it, came out of mail before.

    Only words count: writing it down again with other marks, or more around it, does not make it
    true.
    """
    asked: set[bytes] = set()
    for terms in map(_terms, texts):
        asked.add(_digest(terms))
        for length in range(_SHORT_TEXT, _LONG_RUN + 1):
            asked.update(_digest(run) for run in _runs(terms, length))
    every = sorted(asked)
    starts = range(0, len(every), _AT_ONCE)
    return any(_is_known(tx, every[start : start + _AT_ONCE]) for start in starts)


def _is_known(tx: Transaction, digests: Sequence[bytes]) -> bool:
    among, params = any_of("digest", digests)
    return tx.one(f"SELECT 1 FROM mail_texts WHERE digest {among} LIMIT 1", **params) is not None


def _terms(text: str) -> list[str]:
    from postroom.mail.terms import words

    folded = fold(text)
    return [term for word in words(folded) for term in word.terms] or [folded]


def _runs(terms: list[str], length: int) -> Iterator[list[str]]:
    return (terms[at : at + length] for at in range(len(terms) - length + 1))


def _digest(terms: Sequence[str]) -> bytes:
    text = "\x1f".join(terms).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()
