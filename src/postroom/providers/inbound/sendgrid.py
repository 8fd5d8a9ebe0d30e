"""SendGrid Inbound Parse: a form with the whole mail (`send_raw`), or with its fields.

A security policy must ask for signatures; unsigned postings are refused.
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
from postroom.mail.rebuild import Header, Part, rebuild
from postroom.ports.inbound import Handed, Posting
from postroom.providers.inbound.form import Form, read_form
from postroom.providers.inbound.trust import check_time, read_json, refuse, unbase64, words

SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"


def load_public_key(written: str) -> ec.EllipticCurvePublicKey:
    """The key as SendGrid shows it: base64 of DER. Raises ValueError."""
    try:
        key = load_der_public_key(unbase64(written))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("must be the public key of SendGrid's security policy, in base64")
    return key


@dataclass(frozen=True, slots=True)
class SendGrid:
    """Reads what Inbound Parse posts."""

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
        recipients = tuple(map(words, envelope)) if isinstance(envelope, list) else ()
        raw = form.fields.get("email")
        return Handed(raw if raw is not None else _rebuilt(form), recipients)

    def _check(self, posting: Posting) -> None:
        signature = unbase64(posting.headers.get(SIGNATURE, ""))
        signed = hashlib.sha256(posting.headers.get(TIMESTAMP, "").encode("utf-8", "replace"))
        signed.update(posting.body)
        try:
            self.public_key.verify(signature, signed.digest(), ec.ECDSA(Prehashed(hashes.SHA256())))
        except InvalidSignature:
            raise refuse("SendGrid", "the signature does not fit") from None


def _rebuilt(form: Form) -> bytes:
    """The fields are in the charsets that `charsets` names."""
    charsets = read_json(form.text("charsets") or "{}")

    def field(name: str) -> str | None:
        return form.text(name, words(charsets.get(name)) or "utf-8") or None

    return rebuild(_headers(form.text("headers")), field("text"), field("html"), _files(form))


def _headers(block: str) -> list[Header]:
    """The header block as it was, with folded lines joined."""
    headers: list[Header] = []
    for line in block.replace("\r\n", "\n").split("\n"):
        if line[:1] in (" ", "\t") and headers:
            name, value = headers.pop()
            headers.append((name, f"{value} {line.strip()}"))
        elif ":" in line:
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
    return headers


def _files(form: Form) -> list[Part]:
    """`content-ids` says which file a content id of the HTML means."""
    ids = read_json(form.text("content-ids") or "{}")
    of_file = {str(name): str(content_id) for content_id, name in ids.items()}
    return [Part(f.filename, f.content_type, f.content, of_file.get(f.name)) for f in form.files]
