"""DKIM (RFC 6376): canonical forms, public keys, signing and verification."""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_FOLD = re.compile(rb"\r\n(?=[ \t])")
_FIELD_END = re.compile(rb"\r\n(?![ \t])")


def with_crlf(raw: bytes) -> bytes:
    """The mail with the line ends it travelled with; files often keep bare LFs."""
    return raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def split_fields(header: bytes) -> list[tuple[str, bytes]]:
    """Each header field with its name in lower case, still folded and without its line end."""
    fields = (field for field in _FIELD_END.split(header) if b":" in field)
    return [
        (field.partition(b":")[0].decode("ascii", "replace").strip().lower(), field)
        for field in fields
    ]


def relaxed_field(field: bytes) -> bytes:
    """A field on one line, its name in lower case, runs of blanks as one (§3.4.2)."""
    name, _, value = _FOLD.sub(b"", field).partition(b":")
    return name.strip().lower() + b":" + _collapse_blanks(value).strip(b" ")


def relaxed_body(body: bytes) -> bytes:
    """The body with runs of blanks as one, none before a line end, no blank lines at its end."""
    lines = _collapse_blanks(body).replace(b" \r\n", b"\r\n").rstrip(b"\r\n ")
    return lines + b"\r\n" if lines else b""


def simple_body(body: bytes) -> bytes:
    """The body as it came, but for blank lines at its end (§3.4.3)."""
    return body.rstrip(b"\r\n") + b"\r\n"


def _collapse_blanks(value: bytes) -> bytes:
    """Halving the runs each time keeps the cost linear for a megabyte of blanks."""
    value = value.replace(b"\t", b" ")
    while b"  " in value:
        value = value.replace(b"  ", b" ")
    return value


SIGNED = (
    "from", "to", "cc", "reply-to", "subject", "date", "message-id", "in-reply-to", "references",
    "mime-version", "content-type", "content-transfer-encoding",
)  # fmt: skip


def add_signature(
    raw: bytes, sign: Callable[[bytes], bytes], *, algorithm: str, domain: str, selector: str
) -> bytes:
    """Put a DKIM-Signature in front of a mail whose lines end in CR LF; relaxed/relaxed."""
    header, _, body = raw.partition(b"\r\n\r\n")
    fields = split_fields(header)
    names = [name for name in SIGNED if any(found == name for found, _ in fields)]
    # Listing From once more than it occurs prevents the addition of a second one.
    listed = [*names, "from"]
    body_hash = b64encode(hashlib.sha256(relaxed_body(body)).digest()).decode()
    value = (
        f" v=1; a={algorithm}; c=relaxed/relaxed; d={domain}; s={selector};\r\n"
        f"\th={':'.join(listed)};\r\n\tbh={body_hash};\r\n\tb="
    )
    own = b"DKIM-Signature:" + value.encode()
    signed = _signed_bytes(fields, listed, own, relaxed_field)
    signature = b64encode(sign(signed)).decode()
    lines = "\r\n\t".join(signature[at : at + 72] for at in range(0, len(signature), 72))
    return f"DKIM-Signature:{value}{lines}\r\n".encode() + raw


def _signed_bytes(
    fields: list[tuple[str, bytes]], names: list[str], own: bytes, form: Callable[[bytes], bytes]
) -> bytes:
    """The fields that are signed, and the signature's own field, in a canonical form.

    Of several fields with one name, they are taken from the last upwards (§5.4.2).
    """
    stacks: dict[str, list[bytes]] = {}
    for name, field in fields:
        stacks.setdefault(name, []).append(field)
    taken = [stacks[name].pop() for name in names if stacks.get(name)]
    return b"".join(form(field) + b"\r\n" for field in taken) + form(own)


DkimKeys = Mapping[str, str]
"""From `selector._domainkey.domain`, in lower case, to the record that DNS has there."""

_QUOTED = re.compile(r'"([^"]*+)"')
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\._domainkey\.[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_RECORD = re.compile(r"(?:^|[\s;])[vkp]\s{0,9}=")


def read_keys(text: str) -> dict[str, str]:
    """Read lines such as `dig TXT` and zone files have: a name, then its record.

    Raises:
        ValueError: naming the invalid line.
    """
    keys: dict[str, str] = {}
    for number, line in _entries(text):
        name, _, rest = line.partition(" ")
        name = name.rstrip(".").lower()
        pieces = _QUOTED.findall(rest)
        record = "".join(pieces) if pieces else _without_quotes(rest)
        if not _NAME.fullmatch(name) or "p" not in parse_tags(record):
            raise ValueError(
                f"line {number} must be like "
                "mail._domainkey.example.com v=DKIM1; k=rsa; p=MIIB…, as `dig TXT` shows it"
            )
        keys[name] = record
    return keys


def _without_quotes(rest: str) -> str:
    """A record without quotation marks."""
    match = _RECORD.search(rest)
    return rest[match.start() :].strip() if match else ""


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; the content of parentheses counts as one."""
    open_line, started = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = " ".join(_without_comment(line).split())
        if not open_line:
            started = number
        open_line = f"{open_line} {line}".strip()
        if "(" in open_line and ")" not in open_line:
            continue
        if open_line:
            yield started, open_line
        open_line = ""
    if open_line:
        yield started, open_line


def _without_comment(line: str) -> str:
    """`#` begins a comment; `;` does at the start and, in a zone file, after a record."""
    if line.lstrip().startswith(("#", ";")):
        return ""
    return re.sub(r'(["\)])\s*;[^"]*$', r"\1", line)


def parse_tags(value: str) -> dict[str, str]:
    """The tags of a signature or a key record (§3.2); of one that is there twice, the first."""
    found: dict[str, str] = {}
    for piece in value[:20_000].split(";"):
        name, is_tag, content = piece.partition("=")
        if is_tag:
            found.setdefault(name.strip().lower(), "".join(content.split()))
    return found


_MAX_SIGNATURES = 5
_MAX_HEADER_BYTES = 262_144
_LEAST_RSA_BITS = 1024
# A mail has each of these once; a second one that nobody signed is what a reader would see.
_SINGLE_FIELDS = frozenset((*SIGNED, "sender"))
# A simple field is as it came (§3.4.1).
_FIELD_FORMS: dict[str, Callable[[bytes], bytes]] = {"simple": bytes, "relaxed": relaxed_field}
_BODY_FORMS = {"simple": simple_body, "relaxed": relaxed_body}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one signature as in RFC 8601: pass, fail, policy or neutral."""

    result: str
    domain: str


def check_signatures(raw: bytes, keys: DkimKeys) -> list[Verdict]:
    """A result for each signature whose key is known; others are skipped."""
    if b"dkim-signature" not in raw[:_MAX_HEADER_BYTES].lower():
        return []
    header, _, body = with_crlf(raw).partition(b"\r\n\r\n")
    if len(header) > _MAX_HEADER_BYTES:
        return []
    fields = split_fields(header)
    return [_check(*found, fields, body) for found in _signatures(fields, keys)]


def _signatures(
    fields: list[tuple[str, bytes]], keys: DkimKeys
) -> Iterator[tuple[bytes, dict[str, str], dict[str, str]]]:
    found = [field for name, field in fields if name == "dkim-signature"]
    for field in found[:_MAX_SIGNATURES]:
        signature = parse_tags(field.partition(b":")[2].decode("latin-1"))
        place = f"{signature.get('s', '')}._domainkey.{signature.get('d', '')}".lower()
        if place in keys:
            yield field, signature, parse_tags(keys[place])


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
    fields_as, body_as = _FIELD_FORMS.get(field_form), _BODY_FORMS.get(body_form or "simple")
    kind, _, digest = signature.get("a", "").partition("-")
    if signature.get("v") != "1" or "from" not in names or not fields_as or not body_as:
        return Verdict("neutral", domain)
    if digest != "sha256" or "l" in signature or _is_other_domain(signature, domain):
        return Verdict("policy", domain)
    if _has_unsigned_duplicate(fields, names):
        return Verdict("fail", domain)
    hashed = hashlib.sha256(body_as(body)).digest()
    signed = _signed_bytes(fields, names, _without_value(field), fields_as)
    is_good = hashed == _decode_base64(signature.get("bh", "")) and _is_signed(
        kind, key, signed, _decode_base64(signature.get("b", ""))
    )
    return Verdict("pass" if is_good else "fail", domain)


def _is_other_domain(signature: dict[str, str], domain: str) -> bool:
    """The identity of a signer lies within his domain (§6.1.1)."""
    identity = signature.get("i", f"@{domain}").rpartition("@")[2].lower()
    return identity != domain and not identity.endswith(f".{domain}")


def _has_unsigned_duplicate(fields: list[tuple[str, bytes]], names: list[str]) -> bool:
    there, covered = Counter(name for name, _ in fields), Counter(names)
    return any(there[name] > max(covered[name], 1) for name in _SINGLE_FIELDS)


def _without_value(field: bytes) -> bytes:
    """The signature's own field with nothing in its b= tag, the rest to the byte."""
    name, colon, value = field.partition(b":")
    pieces = value.split(b";")
    for at, piece in enumerate(pieces):
        tag, equals, _ = piece.partition(b"=")
        if tag.strip().lower() == b"b" and equals:
            pieces[at] = tag + equals
    return name + colon + b";".join(pieces)


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_signed(kind: str, key: dict[str, str], signed: bytes, signature: bytes) -> bool:
    """Whether the key made this signature. A record with an empty p= is a key that was revoked."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if key.get("k", "rsa") != kind or not key.get("p") or not signature:
        return False
    try:
        if kind == "ed25519":
            public = Ed25519PublicKey.from_public_bytes(_decode_base64(key["p"]))
            public.verify(signature, hashlib.sha256(signed).digest())
            return True
        return kind == "rsa" and _is_signed_rsa(_decode_base64(key["p"]), signed, signature)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False


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
