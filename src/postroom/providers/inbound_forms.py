"""Inbound webhooks that post forms: Mailgun and SendGrid.

A route of Mailgun forwards mail raw if its URL ends in `mime`, else in fields. Its signature covers
a timestamp and a token, but not the mail. So a token is valid once, as Mailgun asks: for one mail,
since Mailgun retries failed requests. Tokens are remembered in the store. Nothing else of a form is
read before its signature is verified.

SendGrid Inbound Parse posts the raw mail (`send_raw`), or its fields. A security policy must turn
on signatures; unsigned requests are refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import load_der_public_key

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, Malformed, Unauthenticated
from postroom.mail.compose import Header, OutgoingAttachment, rebuild
from postroom.mail.mime.forms import Form, read_form
from postroom.model.limits import TOO_DEEP, is_shallow
from postroom.ports.provider import InboundMail, InboundRequest, Leases

INVALID_SIGNATURE = "the signature is invalid"
INVALID_TIMESTAMP = "its timestamp is missing or invalid"
NOTICE_BYTES = 1_048_576
"""The limit of a notification that does not contain the mail."""


def refuse(provider: str, reason: str) -> Unauthenticated:
    """The error for a request that is not authenticated."""
    return Unauthenticated(f"not a request of {provider}: {reason}")


def check_time(provider: str, timestamp: str, now: datetime, window: timedelta) -> None:
    """Refuse a timestamp outside of the window. Raises Unauthenticated."""
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 11:
        raise refuse(provider, INVALID_TIMESTAMP)
    check_age(provider, datetime.fromtimestamp(int(timestamp), UTC), now, window)


def check_age(provider: str, signed_at: datetime, now: datetime, window: timedelta) -> None:
    """Refuse a time outside of the window. Raises Unauthenticated."""
    if abs(now - signed_at) > window:
        raise refuse(provider, "its timestamp is too old or in the future; check the clocks")


def check_hmac(provider: str, key: bytes, signed: bytes, signatures: list[bytes]) -> None:
    """Refuse data unless one of the signatures is valid. Raises Unauthenticated."""
    expected = hmac.digest(key, signed, hashlib.sha256)
    if not any(hmac.compare_digest(expected, signature) for signature in signatures):
        raise refuse(provider, INVALID_SIGNATURE)


def decode_base64(text: str) -> bytes:
    """Decode base64; empty if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def decode_content(text: str, what: str) -> bytes:
    """Decode base64 that may have line breaks. Raises Malformed."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise Malformed(f"{what}: not valid base64") from None


def encode_mail(text: str) -> bytes:
    """Encode a mail from JSON; lone surrogates become question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def decode_hex(text: str) -> bytes:
    """Decode hexadecimal digits; empty if they are invalid."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def read_json(body: bytes | str) -> dict[str, Any]:
    """Parse a JSON object. Raises Malformed, InvalidInput."""
    try:
        value = json.loads(body)
    except RecursionError:
        raise InvalidInput(f"the body is {TOO_DEEP}") from None
    except ValueError:
        raise Malformed("the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise Malformed("the body must be a JSON object")
    if not is_shallow(value):
        raise InvalidInput(f"the body is {TOO_DEEP}")
    return value


def form_parts(form: Form, ids_field: str) -> list[OutgoingAttachment]:
    """The files of a form; the field *ids_field* maps content ids of the HTML to files."""
    ids = read_json(form.text(ids_field) or "{}")
    of_file = {str(name): str(content_id) for content_id, name in ids.items()}
    return [
        OutgoingAttachment(f.filename, f.content_type, f.content, of_file.get(f.name))
        for f in form.files
    ]


def text_of(value: object) -> str:
    """A JSON value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def objects_of(value: object) -> list[dict[str, Any]]:
    """The objects in a JSON value if it is a list, else none."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def object_of(value: object) -> dict[str, Any]:
    """A JSON value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def texts_of(value: object) -> tuple[str, ...]:
    """The values in a JSON list as strings; none if it is not a list."""
    return tuple(map(text_of, value)) if isinstance(value, list) else ()


_SIGNATURE = ("timestamp", "token", "signature")


@dataclass(frozen=True, slots=True)
class Mailgun:
    """Reads forwarded mail of a Mailgun route."""

    signing_key: str = field(repr=False)
    window: timedelta
    leases: Leases

    def max_bytes(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """Accept any headers: the signature is in the form."""
        return None

    async def read(self, request: InboundRequest) -> Sequence[InboundMail]:
        kind = request.headers.get("content-type", "")
        token = self._check(await in_thread(read_form, kind, request.body, _SIGNATURE), request.at)
        form = await in_thread(read_form, kind, request.body)
        name = f"mailgun:{hashlib.sha256(token.encode()).hexdigest()}"
        mail = await in_thread(_fingerprint, form)
        if not await self.leases.claim(name, mail, now=request.at, lifetime=2 * self.window):
            raise refuse("Mailgun", "its token was used for another mail")
        raw = form.fields.get("body-mime")
        if raw is None:
            raw = await in_thread(_mail_of_mailgun, form)
        return (InboundMail(raw, tuple(form.text("recipient").split(","))),)

    def _check(self, form: Form, at: datetime) -> str:
        """Verify the signature and return the token."""
        timestamp, token = form.text("timestamp"), form.text("token")
        signature = decode_hex(form.text("signature"))
        signed = f"{timestamp}{token}".encode("utf-8", "replace")
        check_hmac("Mailgun", self.signing_key.encode(), signed, [signature])
        check_time("Mailgun", timestamp, at, self.window)
        return token


def _fingerprint(form: Form) -> str:
    """A hash of the content of a form, independent of its encoding."""
    digest = hashlib.sha256()
    for name, value in sorted(form.fields.items()):
        digest.update(f"{name!r} {len(value)} ".encode())
        digest.update(value)
    for file in form.files:
        digest.update(f"{file.name!r} {file.filename!r} {len(file.content)} ".encode())
        digest.update(file.content)
    return digest.hexdigest()


def _mail_of_mailgun(form: Form) -> bytes:
    """Rebuild a mail from fields; `message-headers` is a list of pairs, as JSON."""
    pairs = read_json(f'{{"pairs": {form.text("message-headers") or "[]"}}}')["pairs"]
    if not isinstance(pairs, list):
        raise Malformed("message-headers: must be a list of pairs")
    pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    headers = [(str(name), str(value)) for name, value in pairs]
    if not headers:
        named = (("From", "from"), ("To", "recipient"), ("Subject", "subject"))
        headers = [(header, form.text(name)) for header, name in named]
    text, html = form.text("body-plain") or None, form.text("body-html") or None
    return rebuild(headers, text, html, form_parts(form, "content-id-map"))


SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"


def load_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """Load the public key of a security policy, DER in base64. Raises ValueError."""
    try:
        key = load_der_public_key(decode_base64(text))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("must be the public key of SendGrid's security policy, in base64")
    return key


@dataclass(frozen=True, slots=True)
class SendGrid:
    """Reads mail of Inbound Parse."""

    public_key: ec.EllipticCurvePublicKey
    window: timedelta

    def max_bytes(self, headers: Mapping[str, str], at: datetime) -> int | None:
        check_time("SendGrid", headers.get(TIMESTAMP, ""), at, self.window)
        return None

    async def read(self, request: InboundRequest) -> Sequence[InboundMail]:
        self.max_bytes(request.headers, request.at)
        return (await in_thread(self._read, request),)

    def _read(self, request: InboundRequest) -> InboundMail:
        signature = decode_base64(request.headers.get(SIGNATURE, ""))
        signed = hashlib.sha256(request.headers.get(TIMESTAMP, "").encode("utf-8", "replace"))
        signed.update(request.body)
        try:
            self.public_key.verify(signature, signed.digest(), ec.ECDSA(Prehashed(hashes.SHA256())))
        except InvalidSignature:
            raise refuse("SendGrid", INVALID_SIGNATURE) from None
        form = read_form(request.headers.get("content-type", ""), request.body)
        recipients = texts_of(read_json(form.text("envelope") or "{}").get("to"))
        raw = form.fields.get("email")
        return InboundMail(raw if raw is not None else _mail_of_sendgrid(form), recipients)


def _mail_of_sendgrid(form: Form) -> bytes:
    """Rebuild a mail from fields, whose charsets are in `charsets`."""
    charsets = read_json(form.text("charsets") or "{}")
    text, html = (
        form.text(name, text_of(charsets.get(name)) or "utf-8") or None for name in ("text", "html")
    )
    headers = _unfolded(form.text("headers"))
    return rebuild(headers, text, html, form_parts(form, "content-ids"))


def _unfolded(block: str) -> list[Header]:
    """The headers in a block, unfolded."""
    headers: list[Header] = []
    for line in block.replace("\r\n", "\n").split("\n"):
        if line[:1] in (" ", "\t") and headers:
            name, value = headers.pop()
            headers.append((name, f"{value} {line.strip()}"))
        elif ":" in line:
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
    return headers
