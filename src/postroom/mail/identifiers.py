"""Message-IDs, also damaged ones. We keep them without their angle brackets, as keys."""

from __future__ import annotations

import re

from postroom.mail.keying import as_key

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
    # odd pieces stood in brackets, the others between them
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
