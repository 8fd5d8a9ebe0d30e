"""What a bucket says, in our words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as said

from postroom.errors import Unavailable

log = logging.getLogger(__name__)

SILENT = "the object store does not answer; try again"


@contextmanager
def object_errors() -> Iterator[None]:
    """Turn what the bucket says into what we say; that something is missing is for the caller.

    All of it passes once somebody has mended the bucket, so whoever asks may come again.
    """
    try:
        yield
    except (said.PermissionDeniedError, said.UnauthenticatedError) as error:
        words = "the object store refused our login; check its key and policy"
        raise refused(words, error) from error
    except (FileNotFoundError, said.BaseError) as error:
        if "NoSuchBucket" in str(error):
            raise no_bucket(error) from error
        if isinstance(error, FileNotFoundError):
            raise
        raise refused(SILENT, error) from error


def no_bucket(error: Exception) -> Unavailable:
    """That there is nothing where the bucket should be."""
    return refused("there is no such bucket; make it, or correct POSTROOM_BLOBS_URL", error)


def refused(words: str, error: Exception) -> Unavailable:
    """What to do, for the caller; the reason, which goes on for pages, for the log."""
    log.warning("objects.refused", extra={"error": str(error).partition("\n\nDebug")[0][:1000]})
    return Unavailable(words, retry_after=2)
