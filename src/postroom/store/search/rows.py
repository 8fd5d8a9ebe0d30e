"""Sets of messages as they are written in rows: the places, or a bit for each message."""

from __future__ import annotations

import numpy as np

from postroom.store.search.arrays import U16, Bools


def encode_places(places: U16, size: int) -> bytes:
    """Some places, in order, of a segment with so many messages."""
    if 16 * len(places) <= size:
        return b"\0" + places.astype("<u2").tobytes()
    mask = np.zeros(size, np.bool_)
    mask[places] = True
    return b"\1" + np.packbits(mask, bitorder="little").tobytes()


def encode_mask(mask: Bools) -> bytes:
    """The same, from a mask of the segment."""
    if 16 * int(np.count_nonzero(mask)) <= len(mask):
        return b"\0" + np.flatnonzero(mask).astype("<u2").tobytes()
    return b"\1" + np.packbits(mask, bitorder="little").tobytes()
