"""Mailgun: a route forwards mail as a form, whole if the URL ends in `mime`, else in fields.

The signature is over a time and a token and not over the mail. So, as Mailgun's documentation
asks, a token is good once: here for one mail, since Mailgun posts again what we could not take. It
is kept in the store, so that another process and one that starts anew know it, too.

Whoever posts is unknown until the signature is read, so nothing else of the form is read before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postroom.blocking import in_thread
from postroom.errors import Malformed
from postroom.mail.rebuild import Header, Part, rebuild
from postroom.ports.inbound import Handed, Posting
from postroom.ports.store import GrantsLeases
from postroom.providers.inbound.form import Form, read_form
from postroom.providers.inbound.trust import check_hmac, check_time, read_json, refuse, unhex

_SIGNATURE = ("timestamp", "token", "signature")


@dataclass(frozen=True, slots=True)
class Mailgun:
    """Reads what a route of Mailgun forwards."""

    signing_key: str = field(repr=False)
    window: timedelta
    leases: GrantsLeases

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """The headers say nothing: the signature is in the form."""
        return None

    async def read(self, posting: Posting) -> Sequence[Handed]:
        kind = posting.headers.get("content-type", "")
        token = self._check(await in_thread(read_form, kind, posting.body, _SIGNATURE), posting.at)
        form = await in_thread(read_form, kind, posting.body)
        await self._spend(token, form, posting.at)
        recipients = tuple(form.text("recipient").split(","))
        raw = form.fields.get("body-mime")
        if raw is None:
            raw = await in_thread(_rebuilt, form)
        return (Handed(raw, recipients),)

    def _check(self, form: Form, at: datetime) -> str:
        """The token, if it is signed, and not too long ago."""
        timestamp, token = form.text("timestamp"), form.text("token")
        signature = unhex(form.text("signature"))
        signed = f"{timestamp}{token}".encode("utf-8", "replace")
        check_hmac("Mailgun", self.signing_key.encode(), signed, [signature])
        check_time("Mailgun", timestamp, at, self.window)
        return token

    async def _spend(self, token: str, form: Form, at: datetime) -> None:
        name = f"mailgun:{hashlib.sha256(token.encode()).hexdigest()}"
        mail = await in_thread(_fingerprint, form)
        if not await self.leases.claim(name, mail, now=at, lasting=2 * self.window):
            raise refuse("Mailgun", "its token was used for another mail")


def _fingerprint(form: Form) -> str:
    """What makes two forms the same: what they say, however they are written down."""
    said = hashlib.sha256()
    for name, value in sorted(form.fields.items()):
        said.update(f"{name!r} {len(value)} ".encode())
        said.update(value)
    for file in form.files:
        said.update(f"{file.name!r} {file.filename!r} {len(file.content)} ".encode())
        said.update(file.content)
    return said.hexdigest()


def _rebuilt(form: Form) -> bytes:
    text, html = form.text("body-plain"), form.text("body-html")
    return rebuild(_headers(form), text or None, html or None, _files(form))


def _headers(form: Form) -> list[Header]:
    """`message-headers` is a list of pairs, as JSON."""
    listed = read_json(f'{{"pairs": {form.text("message-headers") or "[]"}}}')["pairs"]
    if not isinstance(listed, list):
        raise Malformed("message-headers: it must be a list of pairs")
    pairs = [pair for pair in listed if isinstance(pair, list) and len(pair) == 2]
    headers = [(str(name), str(value)) for name, value in pairs]
    if headers:
        return headers
    named = (("From", "from"), ("To", "recipient"), ("Subject", "subject"))
    return [(header, form.text(name)) for header, name in named]


def _files(form: Form) -> list[Part]:
    """`content-id-map` says which file a content id of the HTML means."""
    ids = read_json(form.text("content-id-map") or "{}")
    of_file = {str(name): str(content_id) for content_id, name in ids.items()}
    return [Part(f.filename, f.content_type, f.content, of_file.get(f.name)) for f in form.files]
