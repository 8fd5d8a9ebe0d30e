"""Verifying what a webhook was sent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from postroom.client.value import ABSENT
from postroom.client.values.mail import MessageRow
from postroom.client.values.outgoing import Event
from postroom.errors import Forbidden, InvalidInput, Malformed

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
    """Check the signature and the time of a request, and read it.

    Pass the body as it came, byte for byte. After `renew_webhook`, pass the old secret too.

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
