"""Inbound webhooks that post forms: Mailgun and SendGrid.

A route of Mailgun forwards mail raw if its URL ends in `mime`, else in fields. Its signature covers
a timestamp and a token, but not the mail. So a token is valid once, as Mailgun asks: for one mail,
since Mailgun retries failed requests. Tokens are remembered in the store. Nothing else of a form is
read before its signature is verified.

SendGrid Inbound Parse posts the raw mail (`send_raw`), or its fields. A security policy must turn
on signatures; unsigned requests are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import load_der_public_key

from postroom.blocking import in_thread
from postroom.errors import Malformed
from postroom.mail.composing.compose import Header, rebuild
from postroom.mail.mime.forms import Form, read_form
from postroom.ports.inbound import InboundMail, InboundRequest, Leases
from postroom.providers.inbound import forms
from postroom.providers.inbound.forms import read_json, refuse, text_of

_SIGNATURE = ("timestamp", "token", "signature")


@dataclass(frozen=True, slots=True)
class Mailgun:
    """Reads forwarded mail of a Mailgun route."""

    signing_key: str = field(repr=False)
    window: timedelta
    leases: Leases

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """Accept any headers: the signature is in the form."""
        return None

    async def read(self, posting: InboundRequest) -> Sequence[InboundMail]:
        kind = posting.headers.get("content-type", "")
        token = self._check(await in_thread(read_form, kind, posting.body, _SIGNATURE), posting.at)
        form = await in_thread(read_form, kind, posting.body)
        name = f"mailgun:{hashlib.sha256(token.encode()).hexdigest()}"
        mail = await in_thread(_fingerprint, form)
        if not await self.leases.claim(name, mail, now=posting.at, lasting=2 * self.window):
            raise refuse("Mailgun", "its token was used for another mail")
        raw = form.fields.get("body-mime")
        if raw is None:
            raw = await in_thread(_mail_of_mailgun, form)
        return (InboundMail(raw, tuple(form.text("recipient").split(","))),)

    def _check(self, form: Form, at: datetime) -> str:
        """Verify the signature and return the token."""
        timestamp, token = form.text("timestamp"), form.text("token")
        signature = forms.decode_hex(form.text("signature"))
        signed = f"{timestamp}{token}".encode("utf-8", "replace")
        forms.check_hmac("Mailgun", self.signing_key.encode(), signed, [signature])
        forms.check_time("Mailgun", timestamp, at, self.window)
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
    return rebuild(headers, text, html, forms.form_parts(form, "content-id-map"))


SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"


def load_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """Load the public key of a security policy, DER in base64. Raises ValueError."""
    try:
        key = load_der_public_key(forms.decode_base64(text))
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
        forms.check_time("SendGrid", headers.get(TIMESTAMP, ""), at, self.window)
        return None

    async def read(self, posting: InboundRequest) -> Sequence[InboundMail]:
        self.expect(posting.headers, posting.at)
        return (await in_thread(self._read, posting),)

    def _read(self, posting: InboundRequest) -> InboundMail:
        signature = forms.decode_base64(posting.headers.get(SIGNATURE, ""))
        signed = hashlib.sha256(posting.headers.get(TIMESTAMP, "").encode("utf-8", "replace"))
        signed.update(posting.body)
        try:
            self.public_key.verify(signature, signed.digest(), ec.ECDSA(Prehashed(hashes.SHA256())))
        except InvalidSignature:
            raise refuse("SendGrid", forms.INVALID_SIGNATURE) from None
        form = read_form(posting.headers.get("content-type", ""), posting.body)
        recipients = forms.texts_of(read_json(form.text("envelope") or "{}").get("to"))
        raw = form.fields.get("email")
        return InboundMail(raw if raw is not None else _mail_of_sendgrid(form), recipients)


def _mail_of_sendgrid(form: Form) -> bytes:
    """Rebuild a mail from fields, whose charsets are in `charsets`."""
    charsets = read_json(form.text("charsets") or "{}")
    text, html = (
        form.text(name, text_of(charsets.get(name)) or "utf-8") or None for name in ("text", "html")
    )
    headers = _unfolded(form.text("headers"))
    return rebuild(headers, text, html, forms.form_parts(form, "content-ids"))


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
