"""Mailgun: a route forwards mail as a form, raw if the URL ends in `mime`, else in fields.

The signature covers a timestamp and a token, but not the mail. So a token is valid once, as Mailgun
asks: for one mail, since Mailgun retries failed requests. Tokens are remembered in the store.
Nothing else of a form is read before its signature is verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroom.blocking import in_thread
from postroom.errors import Malformed
from postroom.mail.composing.compose import Header, rebuild
from postroom.ports.inbound import Handed, Posting
from postroom.ports.store import LeaseStore
from postroom.providers.inbound.forms import (
    Form,
    check_hmac,
    check_time,
    decode_hex,
    form_parts,
    read_form,
    read_json,
    refuse,
)

_SIGNATURE = ("timestamp", "token", "signature")


@dataclass(frozen=True, slots=True)
class Mailgun:
    """Reads forwarded mail of a Mailgun route."""

    signing_key: str = field(repr=False)
    window: timedelta
    leases: LeaseStore

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """Accept any headers: the signature is in the form."""
        return None

    async def read(self, posting: Posting) -> Sequence[Handed]:
        kind = posting.headers.get("content-type", "")
        token = self._check(await in_thread(read_form, kind, posting.body, _SIGNATURE), posting.at)
        form = await in_thread(read_form, kind, posting.body)
        await self._claim_token(token, form, posting.at)
        recipients = tuple(form.text("recipient").split(","))
        raw = form.fields.get("body-mime")
        if raw is None:
            raw = await in_thread(_rebuilt, form)
        return (Handed(raw, recipients),)

    def _check(self, form: Form, at: datetime) -> str:
        """Verify the signature and return the token."""
        timestamp, token = form.text("timestamp"), form.text("token")
        signature = decode_hex(form.text("signature"))
        signed = f"{timestamp}{token}".encode("utf-8", "replace")
        check_hmac("Mailgun", self.signing_key.encode(), signed, [signature])
        check_time("Mailgun", timestamp, at, self.window)
        return token

    async def _claim_token(self, token: str, form: Form, at: datetime) -> None:
        name = f"mailgun:{hashlib.sha256(token.encode()).hexdigest()}"
        mail = await in_thread(_fingerprint, form)
        if not await self.leases.claim(name, mail, now=at, lasting=2 * self.window):
            raise refuse("Mailgun", "its token was used for another mail")


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


def _rebuilt(form: Form) -> bytes:
    text, html = form.text("body-plain"), form.text("body-html")
    return rebuild(_headers(form), text or None, html or None, form_parts(form, "content-id-map"))


def _headers(form: Form) -> list[Header]:
    """`message-headers` is a list of pairs, as JSON."""
    pairs = read_json(f'{{"pairs": {form.text("message-headers") or "[]"}}}')["pairs"]
    if not isinstance(pairs, list):
        raise Malformed("message-headers: must be a list of pairs")
    pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    headers = [(str(name), str(value)) for name, value in pairs]
    if headers:
        return headers
    named = (("From", "from"), ("To", "recipient"), ("Subject", "subject"))
    return [(header, form.text(name)) for header, name in named]
