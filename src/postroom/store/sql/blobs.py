"""Which blobs are needed."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.model.attachment import BlobKey
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

_AT_ONCE = 500

BLOBS_AFTER = """
    SELECT raw, size_bytes FROM messages WHERE raw > :after
    UNION
    SELECT sha256, size FROM attachments WHERE sha256 > :after
    ORDER BY 1 LIMIT :limit
"""


def used_blobs(tx: Transaction, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
    """Those of the keys that some message or attachment needs."""
    used: set[BlobKey] = set()
    for start in range(0, len(keys), _AT_ONCE):
        among, params = any_of("key", keys[start : start + _AT_ONCE])
        rows = tx.all(
            f"""SELECT raw FROM messages WHERE raw {among}
                UNION SELECT sha256 FROM attachments WHERE sha256 {among}""",
            **params,
        )
        used.update(row[0] for row in rows)
    return frozenset(used)


def unused_of(tx: Transaction, keys: Sequence[BlobKey]) -> tuple[BlobKey, ...]:
    """Those of the keys that nothing needs."""
    used = used_blobs(tx, keys)
    return tuple(key for key in dict.fromkeys(keys) if key not in used)


def blobs_after(tx: Transaction, after: BlobKey, limit: int) -> list[tuple[BlobKey, int]]:
    """The next needed blobs in order of their keys, with their sizes."""
    return [(row[0], row[1]) for row in tx.all(BLOBS_AFTER, after=after, limit=limit)]
