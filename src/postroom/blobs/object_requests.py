"""Requests to a bucket: errors, a queue with a circuit breaker, and the owner mark."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from time import monotonic

import obstore
from obstore import exceptions
from obstore.store import S3Store

from postroom.blobs.files import OWNER_FILES, owner_in, owner_mark
from postroom.errors import MailError, StorageFull, Unavailable

log = logging.getLogger(__name__)

NO_RESPONSE = "the object store does not respond; try again"
_NO_BUCKET = "the bucket does not exist; create it, or correct POSTROOM_BLOBS_URL"
_FULL = "the object store is full; free some space or raise its quota, and try again"
_UNEXPECTED = "unexpected response from the object store; the log has the details"

_EXPLANATIONS = (
    (r"<Code>NoSuchBucket<", _NO_BUCKET),
    (r"<Code>\w*(QuotaExceeded|StorageFull)<|code: 507", _FULL),
    (
        r"<Code>(ExpiredToken|TokenRefreshRequired|InvalidToken)<",
        "the session token of the object store expired; renew AWS_SESSION_TOKEN",
    ),
    (
        r"<Code>RequestTimeTooSkewed<",
        "the clocks of the object store and of this machine differ; set the clock",
    ),
    (
        r"<Code>AuthorizationHeaderMalformed<|redirect without LOCATION|code: 30\d",
        "the bucket is in another region; correct AWS_REGION or AWS_ENDPOINT_URL",
    ),
    (
        r"//169\.254\.169\.254/",
        "no credentials for the object store; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        r"builder error",
        "the object store URL is not HTTPS; set AWS_ALLOW_HTTP=true to allow that",
    ),
    (
        r"code: 400",
        "the object store refused the request; check AWS_REGION, AWS_ENDPOINT_URL and the token",
    ),
    (
        r"code: 40[13]",
        "the object store refused the credentials; check the access key and its policy",
    ),
    (
        r"Unable to extract metadata|Got invalid",
        "the server is not an object store; correct AWS_ENDPOINT_URL",
    ),
    (r"code: (408|429|5\d\d)|HTTP error", NO_RESPONSE),
)
"""Messages by a pattern in the response; the first match counts."""


class NoResponse(Unavailable):
    """The object store does not respond, or responds that it is unavailable."""


@contextmanager
def object_errors() -> Iterator[None]:
    """Translate errors of the object store; FileNotFoundError of an object is passed on.

    All of them are retryable, since the bucket can be repaired.
    """
    try:
        yield
    except TimeoutError as error:
        raise object_store_error(NO_RESPONSE, error) from error
    except (FileNotFoundError, exceptions.BaseError) as error:
        reason = _reason(error)
        found = (text for pattern, text in _EXPLANATIONS if re.search(pattern, reason))
        message = next(found, _UNEXPECTED)
        if isinstance(error, FileNotFoundError) and message != _NO_BUCKET:
            raise
        raise object_store_error(message, error) from error


def no_bucket(error: Exception) -> MailError:
    """The error for a bucket that does not exist."""
    return object_store_error(_NO_BUCKET, error)


def object_store_error(message: str, error: Exception) -> MailError:
    """The error for the caller; the log gets the reason in full."""
    log.warning("objects.refused", extra={"error": _reason(error)[:1000] or message})
    if message == _FULL:
        return StorageFull(message)
    kind = NoResponse if message == NO_RESPONSE else Unavailable
    return kind(message, retry_after=2)


def _reason(error: Exception) -> str:
    return str(error).partition("\n\nDebug")[0]


_STALLED_S = 10.0
"""The longest wait in a queue that does not progress."""

_LONG_QUEUE = 64
_LONG_QUEUE_STALLED_S = 2.0
"""From this length on (half of the concurrency limit), the wait is shorter."""

_CIRCUIT_OPEN_S = 5.0


class RequestQueue:
    """Limits concurrent requests to a server, with a circuit breaker.

    After a request without response, the circuit is open: requests fail at once for a while. Then
    one request is let through, and its outcome decides for the others.
    """

    def __init__(self, max_concurrent: int) -> None:
        self._free = asyncio.Semaphore(max_concurrent)
        self._waiting: dict[asyncio.Timeout, float] = {}
        self._progressed_s = self._open_until_s = -math.inf

    @contextmanager
    def circuit(self) -> Iterator[None]:
        """Run requests that belong together. Raises NoResponse at once if the circuit is open."""
        self._check_circuit()
        if math.isfinite(self._open_until_s):
            self._open_until_s = monotonic() + _CIRCUIT_OPEN_S
        try:
            yield
        except NoResponse:
            self.open_circuit()
            raise
        self._open_until_s = -math.inf

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot for a request. Raises Unavailable if the queue does not progress."""
        await self._wait()
        self._progressed()
        try:
            yield
        finally:
            self._free.release()
            self._progressed()

    def open_circuit(self) -> None:
        """Refuse requests for a while, including those that wait."""
        self._open_until_s = monotonic() + _CIRCUIT_OPEN_S
        for timeout in self._waiting:
            _reschedule(timeout, 0)

    async def _wait(self) -> None:
        is_long = len(self._waiting) >= _LONG_QUEUE
        stalled_s = _LONG_QUEUE_STALLED_S if is_long else _STALLED_S
        left_s = self._progressed_s + stalled_s - monotonic() if is_long else stalled_s
        timeout = asyncio.timeout(max(left_s, 0))
        self._waiting[timeout] = stalled_s
        try:
            async with timeout:
                await self._free.acquire()
        except TimeoutError as error:
            self._check_circuit()
            raise Unavailable("the object store is too slow; try again", retry_after=2) from error
        finally:
            del self._waiting[timeout]

    def _check_circuit(self) -> None:
        left_s = self._open_until_s - monotonic()
        if left_s > 0:
            raise NoResponse(NO_RESPONSE, retry_after=math.ceil(left_s))

    def _progressed(self) -> None:
        self._progressed_s = monotonic()
        for timeout, stalled_s in self._waiting.items():
            _reschedule(timeout, stalled_s)


def _reschedule(timeout: asyncio.Timeout, more_s: float) -> None:
    if not timeout.expired():
        timeout.reschedule(asyncio.get_running_loop().time() + more_s)


_FOLDER = re.compile(r"(gone|[0-9a-f]{2})/?")


class ObjectInstallationMark:
    """The owner mark: the object `installation.json` below the prefix."""

    def __init__(self, store: S3Store, reading: S3Store, place: str) -> None:
        self._store, self._reading, self.place = store, reading, place
        self.is_outdated = False

    async def read(self) -> str | None:
        for name in OWNER_FILES:
            with suppress(FileNotFoundError), object_errors():
                found = await obstore.get_async(self._reading, name)
                owner = owner_in(bytes(await found.bytes_async()))
                self.is_outdated = name != OWNER_FILES[0]
                return owner
        return None

    async def write(self, installation: str) -> None:
        try:
            with object_errors():
                await obstore.put_async(
                    self._store, OWNER_FILES[0], owner_mark(installation), use_multipart=False
                )
                if self.is_outdated:
                    await obstore.delete_async(self._store, OWNER_FILES[1])
                    self.is_outdated = False
        except FileNotFoundError as error:
            raise no_bucket(error) from error

    async def remove(self) -> None:
        for name in OWNER_FILES:
            with suppress(FileNotFoundError), object_errors():
                await obstore.delete_async(self._store, name)

    async def has_blobs(self) -> bool:
        """Whether a top-level folder has the name of one of ours; a full listing could take very
        long.
        """
        with object_errors():
            found = await obstore.list_with_delimiter_async(self._reading)
        return any(_FOLDER.fullmatch(path.rpartition("/")[2]) for path in found["common_prefixes"])
