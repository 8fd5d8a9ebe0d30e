"""Blind copies for providers that read the recipients from the mail itself, and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from email.parser import BytesHeaderParser
from email.utils import getaddresses


def with_bcc(raw: bytes, recipients: Sequence[str]) -> bytes:
    """A mail with a Bcc header for whoever is not in its other headers."""
    headers = BytesHeaderParser().parsebytes(raw)
    fields = [*headers.get_all("To", []), *headers.get_all("Cc", [])]
    open_ones = {address.lower() for _, address in getaddresses([str(f) for f in fields])}
    hidden = [address for address in recipients if address.lower() not in open_ones]
    if not hidden:
        return raw
    return b"Bcc: " + ",\r\n ".join(hidden).encode() + b"\r\n" + raw
