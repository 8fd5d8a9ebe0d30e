"""Blobs that messages and attachments use."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.model.message import BlobKey
from postroom.store.sql.values import any_of, batches
from postroom.store.transaction import Transaction

BLOBS_AFTER = """
    SELECT raw, size_bytes FROM messages WHERE raw > :after
    UNION
    SELECT sha256, size FROM attachments WHERE sha256 > :after
    ORDER BY 1 LIMIT :limit
"""


def used_blobs(tx: Transaction, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
    """The keys that a message or an attachment uses."""
    used: set[BlobKey] = set()
    for batch in batches(keys):
        among, params = any_of("key", batch)
        rows = tx.all(
            f"""SELECT raw FROM messages WHERE raw {among}
                UNION SELECT sha256 FROM attachments WHERE sha256 {among}""",
            **params,
        )
        used.update(row[0] for row in rows)
    return frozenset(used)


def unused_of(tx: Transaction, keys: Sequence[BlobKey]) -> tuple[BlobKey, ...]:
    """The keys that nothing uses."""
    used = used_blobs(tx, keys)
    return tuple(key for key in dict.fromkeys(keys) if key not in used)


def blobs_after(tx: Transaction, after: BlobKey, limit: int) -> list[tuple[BlobKey, int]]:
    """The next used blobs in the order of their keys, with their sizes."""
    return [(row[0], row[1]) for row in tx.all(BLOBS_AFTER, after=after, limit=limit)]
