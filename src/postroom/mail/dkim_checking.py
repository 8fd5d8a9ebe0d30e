"""DKIM signatures checked by ourselves, with keys that we have at hand (RFC 6376, 8301, 8463)."""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from postroom.mail.canonical import (
    relaxed_body,
    relaxed_field,
    simple_body,
    simple_field,
    split_fields,
    with_crlf,
)
from postroom.mail.dkim_keys import DkimKeys, tags

_MOST_SIGNATURES = 5
_MOST_HEADER_BYTES = 262_144
_LEAST_RSA_BITS = 1024
# A mail has each of these once; a second one that nobody signed is what a reader would see.
_ONCE = frozenset(
    ("from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to",
     "references", "mime-version", "content-type", "content-transfer-encoding")
)  # fmt: skip
_FIELD_FORMS = {"simple": simple_field, "relaxed": relaxed_field}
_BODY_FORMS = {"simple": simple_body, "relaxed": relaxed_body}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one signature, in the words of RFC 8601: pass, fail, policy or neutral."""

    result: str
    domain: str


def check_signatures(raw: bytes, keys: DkimKeys) -> list[Verdict]:
    """A verdict for each signature whose key is at hand; the others say nothing."""
    if not keys or b"dkim-signature" not in raw[:_MOST_HEADER_BYTES].lower():
        return []
    header, _, body = with_crlf(raw).partition(b"\r\n\r\n")
    if len(header) > _MOST_HEADER_BYTES:
        return []
    fields = split_fields(header)
    return [_check(*found, fields, body) for found in _signatures(fields, keys)]


def _signatures(
    fields: list[tuple[str, bytes]], keys: DkimKeys
) -> Iterator[tuple[bytes, dict[str, str], dict[str, str]]]:
    found = [field for name, field in fields if name == "dkim-signature"]
    for field in found[:_MOST_SIGNATURES]:
        signature = tags(field.partition(b":")[2].decode("latin-1"))
        place = f"{signature.get('s', '')}._domainkey.{signature.get('d', '')}".lower()
        if place in keys:
            yield field, signature, tags(keys[place])


def _check(
    field: bytes,
    signature: dict[str, str],
    key: dict[str, str],
    fields: list[tuple[str, bytes]],
    body: bytes,
) -> Verdict:
    domain = signature["d"].lower()
    names = [name.strip().lower() for name in signature.get("h", "").split(":")]
    field_form, _, body_form = signature.get("c", "simple/simple").partition("/")
    forms = (_FIELD_FORMS.get(field_form), _BODY_FORMS.get(body_form or "simple"))
    kind, _, digest = signature.get("a", "").partition("-")
    if signature.get("v") != "1" or "from" not in names or None in forms:
        return Verdict("neutral", domain)
    if digest != "sha256" or "l" in signature or _is_other_site(signature, domain):
        return Verdict("policy", domain)
    if _has_unsigned_double(fields, names):
        return Verdict("fail", domain)
    assert forms[0] is not None
    assert forms[1] is not None
    hashed = hashlib.sha256(forms[1](body)).digest()
    signed = b"".join(forms[0](f) + b"\r\n" for f in _signed(fields, names))
    signed += forms[0](_without_value(field))
    is_good = hashed == _decoded(signature.get("bh", "")) and _is_signed(
        kind, key, signed, _decoded(signature.get("b", ""))
    )
    return Verdict("pass" if is_good else "fail", domain)


def _is_other_site(signature: dict[str, str], domain: str) -> bool:
    """The identity of a signer lies within his domain (§6.1.1)."""
    identity = signature.get("i", f"@{domain}").rpartition("@")[2].lower()
    return identity != domain and not identity.endswith(f".{domain}")


def _has_unsigned_double(fields: list[tuple[str, bytes]], names: list[str]) -> bool:
    there, covered = Counter(name for name, _ in fields), Counter(names)
    return any(there[name] > max(covered[name], 1) for name in _ONCE)


def _signed(fields: list[tuple[str, bytes]], names: list[str]) -> Iterator[bytes]:
    """The fields that are signed; of several with one name, from the last upwards (§5.4.2)."""
    stacks: dict[str, list[bytes]] = {}
    for name, field in fields:
        stacks.setdefault(name, []).append(field)
    for name in names:
        if stacks.get(name):
            yield stacks[name].pop()


def _without_value(field: bytes) -> bytes:
    """The signature's own field with nothing in its b= tag, the rest to the byte."""
    name, colon, value = field.partition(b":")
    pieces = value.split(b";")
    for at, piece in enumerate(pieces):
        tag, equals, _ = piece.partition(b"=")
        if tag.strip().lower() == b"b" and equals:
            pieces[at] = tag + equals
    return name + colon + b";".join(pieces)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_signed(kind: str, key: dict[str, str], signed: bytes, signature: bytes) -> bool:
    """Whether the key made this signature. A record with an empty p= is a key that was revoked."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    if key.get("k", "rsa") != kind or not key.get("p") or not signature:
        return False
    try:
        if kind == "ed25519":
            return _is_signed_ed25519(_decoded(key["p"]), signed, signature)
        return kind == "rsa" and _is_signed_rsa(_decoded(key["p"]), signed, signature)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False


def _is_signed_ed25519(key: bytes, signed: bytes, signature: bytes) -> bool:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    digest = hashlib.sha256(signed).digest()
    Ed25519PublicKey.from_public_bytes(key).verify(signature, digest)
    return True


def _is_signed_rsa(key: bytes, signed: bytes, signature: bytes) -> bool:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    public = load_der_public_key(key)
    if not isinstance(public, RSAPublicKey) or public.key_size < _LEAST_RSA_BITS:
        return False
    public.verify(signature, signed, PKCS1v15(), SHA256())
    return True
