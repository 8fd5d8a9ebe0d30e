"""Signed and encrypted mail: recognised, not opened."""

from __future__ import annotations

from typing import Literal

from postroom.mail.mime import Part

Protection = Literal["pgp-signed", "pgp-encrypted", "smime-signed", "smime-encrypted"]


def find_protection(root: Part, text: str) -> Protection | None:
    """How the mail is signed or encrypted, None if it is neither."""
    protocol = root.parameters.get("protocol", "").lower()
    if root.content_type == "multipart/encrypted":
        return "pgp-encrypted"
    if root.content_type == "multipart/signed":
        return "pgp-signed" if "pgp" in protocol else "smime-signed"
    if root.content_type in ("application/pkcs7-mime", "application/x-pkcs7-mime"):
        kind = root.parameters.get("smime-type", "").lower()
        return "smime-signed" if "signed" in kind else "smime-encrypted"
    start = text[:200].lstrip()
    if start.startswith("-----BEGIN PGP MESSAGE-----"):
        return "pgp-encrypted"
    return "pgp-signed" if start.startswith("-----BEGIN PGP SIGNED MESSAGE-----") else None
