"""SendGrid Inbound Parse: a form with the raw mail (`send_raw`), or with its fields.

A security policy must turn on signatures; unsigned requests are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import load_der_public_key

from postroom.blocking import in_thread
from postroom.mail.composing.compose import Header, rebuild
from postroom.ports.inbound import Handed, Posting
from postroom.providers.inbound.forms import (
    INVALID_SIGNATURE,
    Form,
    check_time,
    decode_base64,
    form_parts,
    read_form,
    read_json,
    refuse,
    text_of,
)

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

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        check_time("SendGrid", headers.get(TIMESTAMP, ""), at, self.window)
        return None

    async def read(self, posting: Posting) -> Sequence[Handed]:
        self.expect(posting.headers, posting.at)
        return (await in_thread(self._read, posting),)

    def _read(self, posting: Posting) -> Handed:
        self._check(posting)
        form = read_form(posting.headers.get("content-type", ""), posting.body)
        envelope = read_json(form.text("envelope") or "{}").get("to")
        recipients = tuple(map(text_of, envelope)) if isinstance(envelope, list) else ()
        raw = form.fields.get("email")
        return Handed(raw if raw is not None else _rebuilt(form), recipients)

    def _check(self, posting: Posting) -> None:
        signature = decode_base64(posting.headers.get(SIGNATURE, ""))
        signed = hashlib.sha256(posting.headers.get(TIMESTAMP, "").encode("utf-8", "replace"))
        signed.update(posting.body)
        try:
            self.public_key.verify(signature, signed.digest(), ec.ECDSA(Prehashed(hashes.SHA256())))
        except InvalidSignature:
            raise refuse("SendGrid", INVALID_SIGNATURE) from None


def _rebuilt(form: Form) -> bytes:
    """Rebuild a mail from fields, whose charsets are in `charsets`."""
    charsets = read_json(form.text("charsets") or "{}")

    def field(name: str) -> str | None:
        return form.text(name, text_of(charsets.get(name)) or "utf-8") or None

    return rebuild(
        _headers(form.text("headers")),
        field("text"),
        field("html"),
        form_parts(form, "content-ids"),
    )


def _headers(block: str) -> list[Header]:
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
