"""The key that signs outgoing mail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.mail.dkim import add_signature

Signer = Callable[[bytes], bytes]


def load_signer(path: Path | None, selector: str, domains: tuple[str, ...]) -> Signer:
    """What signs a mail with the key in a file, for the domain it is sent from.

    Raises:
        InvalidInput: the key cannot be read.
    """
    if path is None:
        return lambda raw: raw
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"POSTROOM_DKIM_KEY: {path} cannot be read: {error}") from None
    if isinstance(key, rsa.RSAPrivateKey):
        algorithm, rsa_key = "rsa-sha256", key

        def sign(data: bytes) -> bytes:
            return rsa_key.sign(data, padding.PKCS1v15(), hashes.SHA256())

    elif isinstance(key, ed25519.Ed25519PrivateKey):
        algorithm, edward_key = "ed25519-sha256", key

        def sign(data: bytes) -> bytes:
            digest = hashes.Hash(hashes.SHA256())
            digest.update(data)
            return edward_key.sign(digest.finalize())

    else:
        raise InvalidInput("POSTROOM_DKIM_KEY: the key must be RSA or Ed25519")

    def add(raw: bytes) -> bytes:
        return add_signature(
            raw, sign, algorithm=algorithm, domain=_domain(raw, domains), selector=selector
        )

    return add


def _domain(raw: bytes, domains: tuple[str, ...]) -> str:
    """The domain of ours in From; the first of our domains if there is none."""
    head = raw[: raw.find(b"\r\n\r\n")].lower().replace(b"\r\n ", b" ")
    line = next((x for x in head.split(b"\r\n") if x.startswith(b"from:")), b"")
    own = line.rpartition(b"@")[2].rstrip(b"> \t").decode("ascii", "replace")
    return own if own in domains else domains[0]
