"""The fingerprint that tells a second copy of a mail from another mail."""

from __future__ import annotations

import hashlib

from postroom.mail.message import ParsedMessage


def fingerprint(parsed: ParsedMessage) -> bytes:
    """A hash over from, date, subject, bodies and attachments: what the reader gets.

    Headers that grow on the way (Received, DKIM…) are left out, so that one mail that came
    by two routes has one fingerprint.
    """
    digest = hashlib.sha256()
    sender = [f"{a.name}\0{a.address.lower()}" for a in parsed.addresses if a.role == "from"]
    date = parsed.date.isoformat() if parsed.date else ""
    for piece in (*sender, date, parsed.subject, parsed.text, parsed.html or ""):
        data = piece.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    for attachment in parsed.attachments:
        name = attachment.filename.encode()
        digest.update(b"%d:%d:" % (len(name), attachment.size))
        digest.update(name)
        digest.update(attachment.content)
    return digest.digest()
