"""What a bucket says, in our words."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore import exceptions as said

from postroom.errors import MailError, StorageFull, Unavailable

log = logging.getLogger(__name__)

SILENT = "the object store does not answer; try again"
_NO_BUCKET = "there is no such bucket; make it, or correct POSTROOM_BLOBS_URL"
_FULL = "the object store is full; free some space or raise its quota, and try again"
_STRANGE = "the object store answers what we do not understand; the log has it"

_WORDS = (
    (r"<Code>NoSuchBucket<", _NO_BUCKET),
    (r"<Code>\w*(QuotaExceeded|StorageFull)<|code: 507", _FULL),
    (
        r"<Code>(ExpiredToken|TokenRefreshRequired|InvalidToken)<",
        "the object store takes our token no longer; renew AWS_SESSION_TOKEN",
    ),
    (
        r"<Code>RequestTimeTooSkewed<",
        "the object store has another time than we; set the clock of this machine",
    ),
    (
        r"<Code>AuthorizationHeaderMalformed<|redirect without LOCATION|code: 30\d",
        "the bucket is elsewhere; correct AWS_REGION, or AWS_ENDPOINT_URL",
    ),
    (
        r"//169\.254\.169\.254/",
        "there is no login for the object store; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        r"builder error",
        "the object store is not reached without TLS; set AWS_ALLOW_HTTP=true if it shall be",
    ),
    (
        r"code: 400",
        "the object store refused our request; check AWS_REGION, AWS_ENDPOINT_URL and the token",
    ),
    (r"code: 40[13]", "the object store refused our login; check its key and policy"),
    (
        r"Unable to extract metadata|Got invalid",
        "what answers is no object store; correct AWS_ENDPOINT_URL",
    ),
    (r"code: (408|429|5\d\d)|HTTP error", SILENT),
)
"""What to say if something is in the bucket's answer; the first that fits."""


class Silent(Unavailable):
    """The bucket does not answer, or says that it cannot."""


@contextmanager
def object_errors() -> Iterator[None]:
    """Turn what the bucket says into what we say; that something is missing is for the caller.

    All of it passes once somebody has mended the bucket, so whoever asks may come again.
    """
    try:
        yield
    except TimeoutError as error:
        raise refused(SILENT, error) from error
    except (FileNotFoundError, said.BaseError) as error:
        words = _words(_reason(error))
        if isinstance(error, FileNotFoundError) and words != _NO_BUCKET:
            raise
        raise refused(words, error) from error


def no_bucket(error: Exception) -> MailError:
    """That there is nothing where the bucket should be."""
    return refused(_NO_BUCKET, error)


def refused(words: str, error: Exception) -> MailError:
    """What to do, for the caller; the reason, which goes on for pages, for the log."""
    log.warning("objects.refused", extra={"error": _reason(error)[:1000] or words})
    if words == _FULL:
        return StorageFull(words)
    kind = Silent if words == SILENT else Unavailable
    return kind(words, retry_after=2)


def _words(reason: str) -> str:
    return next((words for pattern, words in _WORDS if re.search(pattern, reason)), _STRANGE)


def _reason(error: Exception) -> str:
    return str(error).partition("\n\nDebug")[0]
