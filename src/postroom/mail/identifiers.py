"""Message-IDs, and fingerprints that recognise the same mail."""

from __future__ import annotations

import hashlib
import re

from postroom.mail.message import ParsedMessage
from postroom.mail.text.fold import as_key

_BRACKETED = re.compile(r"<([^<>]{1,2000})>")
_SPACE = re.compile(r"\s+")
_MOST = 1_000


def parse_ids(value: str) -> list[str]:
    """The Message-IDs in a header value, in order, each once."""
    if not value:
        return []
    found = _BRACKETED.findall(value)
    if not found:
        found = [word.strip("<>,;\"'") for word in value.split() if "@" in word]
    ids = (_SPACE.sub("", found_id) if " " in found_id or "\t" in found_id else found_id
           for found_id in found[:_MOST])  # fmt: skip
    return list(dict.fromkeys(as_key(found_id) for found_id in ids if found_id))


def parse_references(values: list[str]) -> list[str]:
    """The Message-IDs of the References headers; ids that lost their brackets count too."""
    ids: list[str] = []
    # odd pieces are inside brackets, even ones between them
    for number, piece in enumerate(_BRACKETED.split(" ".join(values), maxsplit=_MOST)):
        if number % 2:
            ids.append(_SPACE.sub("", piece))
        elif "@" in piece:
            ids += [word.strip(",;\"'<>") for word in piece.split() if "@" in word]
    return list(dict.fromkeys(as_key(found_id) for found_id in ids if found_id))[:_MOST]


def parse_message_id(value: str) -> str | None:
    """The one Message-ID of a Message-ID header, also if it lacks its brackets or its @."""
    ids = parse_ids(value)
    if ids:
        return ids[0]
    bare = _SPACE.sub("", value.strip("<> \t"))
    return as_key(bare) or None


def parse_in_reply_to(value: str) -> str | None:
    """The Message-ID answered; old programs put a sentence with an address before it."""
    ids = parse_ids(value)
    if not ids:
        return None
    is_sentence = not value.lstrip().startswith("<")
    return ids[-1] if is_sentence else ids[0]


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
