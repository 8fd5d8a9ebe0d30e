"""Events: in requests to webhooks, and as a stream that reconnects."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Self

import msgspec
from msgspec import DecodeError, ValidationError
from msgspec.json import decode

from postroom.client.responses import ABSENT
from postroom.client.values.mail import MessageRow
from postroom.client.values.records import Event
from postroom.errors import Forbidden, InvalidInput, MailError, Malformed, Unavailable

_PREFIX = "whsec_"


class WebhookEvent(Event, frozen=True, kw_only=True):
    """An event with the message it is about, as it was listed when the webhook was called."""

    message: MessageRow | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A verified request of a webhook. `id` is the same in every attempt of one event."""

    id: str = ""
    type: str = ""
    timestamp: datetime = ABSENT
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def event(self) -> WebhookEvent | None:
        """The event; None for a ping."""
        if self.type == "webhook.ping":
            return None
        return msgspec.convert(self.data, WebhookEvent)


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    *secrets: str,
    tolerance_s: int = 300,
    now: float | None = None,
) -> Webhook:
    """Verify the signature and the time of a request, and parse it.

    Pass the body exactly as received. After `renew_webhook`, pass the old secret too.

    Raises:
        Forbidden: the request was not signed with one of the secrets, or too long ago.
        Malformed: the body is not what Postroom sends.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    identifier, sent_at = lower.get("webhook-id", ""), lower.get("webhook-timestamp", "")
    if not sent_at.isascii() or not sent_at.isdigit() or len(sent_at) > 12:
        raise Forbidden("webhook: the header webhook-timestamp is missing or not a number")
    if abs((time.time() if now is None else now) - int(sent_at)) > tolerance_s:
        raise Forbidden(f"webhook: it was signed more than {tolerance_s} s ago; check the clocks")
    signed = f"{identifier}.{sent_at}.".encode() + body
    given = [part.encode() for part in lower.get("webhook-signature", "").split()]
    expected = [_signature(secret, signed) for secret in secrets]
    if not any(hmac.compare_digest(good, one) for good in expected for one in given):
        raise Forbidden("webhook: the signature does not match; is it the secret of this webhook?")
    try:
        found = msgspec.json.decode(body, type=Webhook)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"webhook: the body is not an event ({error})") from None
    return msgspec.structs.replace(found, id=identifier)


def _signature(secret: str, signed: bytes) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not key:
        raise InvalidInput("webhook: the secret is not one that create_webhook returned (whsec_…)")
    return b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))


_MOST_ATTEMPTS = 10
"""How often in a row a stream is opened again before it gives up, after about two minutes."""

_LONGEST_WAIT_S = 30.0


class Position:
    """Where a stream is: after which event, and how often it failed since."""

    def __init__(self) -> None:
        self.since: str | None = None
        self._failures = 0

    def read(self, line: str) -> Event | None:
        """The event in a line, if there is one. Raises Unavailable for invalid data."""
        if line.startswith(":"):
            self._failures = 0
        if not line.startswith("data:"):
            return None
        try:
            event = decode(line[5:], type=Event)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            raise Unavailable("the event stream is malformed", retry_after=1) from None
        self.since, self._failures = event.id, 0
        return event

    def wait_after(self, error: MailError) -> float:
        """The seconds until the next attempt. Raises the error if there is none."""
        self._failures += 1
        if not isinstance(error, Unavailable) or self._failures > _MOST_ATTEMPTS:
            raise error
        return min(0.25 * (1 << self._failures), _LONGEST_WAIT_S)


CUT = Unavailable("the server ended the stream of events", retry_after=1)


class EventStream:
    """Iterate over it for events; it ends when it is closed. It is open when you get it.

    If the connection breaks, it reconnects and continues with the next event.
    """

    def __init__(self, connect: Callable[[str | None], Any], position: Position) -> None:
        self._connect, self._position, self._is_open = connect, position, True
        self._response: Any = connect(position.since)
        self._lines: Iterator[str] = self._response.lines()

    def __iter__(self) -> Iterator[Event]:
        while self._is_open:
            try:
                for line in self._lines:
                    if event := self._position.read(line):
                        yield event
                raise CUT
            except MailError as error:
                if self._is_open:
                    self._reconnect(error)

    def _reconnect(self, error: MailError) -> None:
        while True:
            self._response.close()
            time.sleep(self._position.wait_after(error))
            try:
                self._response = self._connect(self._position.since)
            except Unavailable as again:
                error = again
            else:
                self._lines = self._response.lines()
                return

    def close(self) -> None:
        """End the stream."""
        self._is_open = False
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncEventStream:
    """The same, for `async for`. It opens when it is entered by `async with` or iterated over."""

    def __init__(self, connect: Callable[[str | None], Awaitable[Any]], position: Position) -> None:
        self._connect, self._position, self._is_open = connect, position, True
        self._response: Any = None

    async def _opened(self) -> Any:
        if self._response is None:
            self._response = await self._connect(self._position.since)
        return self._response

    async def __aiter__(self) -> AsyncIterator[Event]:
        from anyio import sleep  # late, for a quick import

        while self._is_open:
            try:
                async for line in (await self._opened()).lines():
                    if event := self._position.read(line):
                        yield event
                raise CUT
            except MailError as error:
                if self._is_open:
                    await self._drop()
                    await sleep(self._position.wait_after(error))

    async def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.close()

    async def close(self) -> None:
        """End the stream."""
        self._is_open = False
        await self._drop()

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
