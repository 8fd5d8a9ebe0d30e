"""Sets of messages as they are written in rows: the places, or a bit for each message."""

from __future__ import annotations

from collections.abc import Iterable

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


def mark(mask: Bools, values: Iterable[bytes]) -> None:
    """Set the mask of a segment where one of some written sets has a place."""
    places: list[bytes] = []
    bits: list[bytes] = []
    for value in values:
        (bits if value[0] else places).append(value[1:])
    mask[np.frombuffer(b"".join(places), "<u2")] = True
    if bits:
        union = np.frombuffer(bits[0], np.uint8)
        for more in bits[1:]:
            union = union | np.frombuffer(more, np.uint8)
        mask |= np.unpackbits(union, count=len(mask), bitorder="little").view(np.bool_)


def unmark(mask: Bools, value: bytes) -> None:
    """Clear the mask of a segment where a written set has a place."""
    if value[0]:
        bits = np.frombuffer(value, np.uint8, offset=1)
        mask &= ~np.unpackbits(bits, count=len(mask), bitorder="little").view(np.bool_)
    else:
        mask[np.frombuffer(value, "<u2", offset=1)] = False
