"""What becomes of the bytes of mail that was removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from postroom.errors import MailError
from postroom.model.attachment import BlobKey
from postroom.pipeline.house import House
from postroom.pipeline.ownership import own_blobs

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0


async def discard_unused(house: House, keys: Sequence[BlobKey]) -> None:
    """Remove blobs whose mail is gone; those that cannot go now go with a later sweep.

    The mail is removed whatever becomes of them, so this neither fails nor takes long.
    """
    if not keys:
        return
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await own_blobs(house.store, house.blobs)
            await house.blobs.discard(keys, house.store.used_blobs)
    except (MailError, OSError) as error:
        reason = str(error) or "this takes too long"
        log.warning("blobs.left", extra={"blobs": len(keys), "error": reason})
