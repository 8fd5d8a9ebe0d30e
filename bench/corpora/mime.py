"""Difficult mail from other projects, compared with their expected results."""

from __future__ import annotations

import html as entities
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from bench.corpora.files import Case, read_jsonl, squeezed
from bench.corpora.scoreboard import Scoreboard
from postroom.mail.message import ParsedAttachment, ParsedMessage


def score_mime(folder: Path, scoreboard: Scoreboard) -> None:
    for case in read_jsonl(folder / "manifest.jsonl"):
        parsed = scoreboard.parse((folder / case["file"]).read_bytes(), case["id"])
        path = folder / "expected" / f"{case['id']}.json"
        if parsed is None or not path.exists():
            continue
        wrong = list(mime_differences(json.loads(path.read_text()), parsed))
        scoreboard.score("fully right", case["id"], right=not wrong, why="; ".join(wrong))


def mime_differences(expected: Case, parsed: ParsedMessage) -> Iterator[str]:
    """The differences between the expected result of the project and ours."""
    simple: dict[str, tuple[object, object]] = {
        "subject": (expected.get("subject"), parsed.subject),
        "message_id": (expected.get("message_id"), parsed.internet_message_id),
        # a repeated id counts once
        "references": (
            list(dict.fromkeys(expected.get("references") or ())),
            list(parsed.references),
        ),
    }
    for key, (wanted, found) in simple.items():
        if key in expected and squeezed(str(wanted or "")) != squeezed(str(found or "")):
            yield f"{key}: wanted {wanted!r}, found {found!r}"
    if "in_reply_to" in expected and parsed.in_reply_to not in (expected["in_reply_to"] or [None]):
        yield f"in_reply_to: wanted {expected['in_reply_to']}, found {parsed.in_reply_to}"
    if expected.get("date") and datetime.fromisoformat(expected["date"]) != parsed.date:
        yield f"date: wanted {expected['date']}, found {parsed.date}"
    for role in ("from", "to", "cc"):
        if role in expected:
            yield from address_differences(role, expected[role] or [], parsed)
    yield from fragment_differences(expected, parsed)
    yield from attachment_differences(expected, parsed.attachments)


def address_differences(role: str, wanted: list[Case], parsed: ParsedMessage) -> Iterator[str]:
    """Recipients are compared as sets, authors by the first ones that the source lists."""
    found = [address for address in parsed.addresses if address.role == role]
    if role == "from":
        found = found[: len(wanted)]
    if {want.get("address") or "" for want in wanted} != {address.address for address in found}:
        yield f"{role}: wanted {wanted}, found {found}"
        return
    names = {(squeezed(address.name), address.address) for address in found}
    for want in wanted:
        pair = (squeezed(want.get("name") or ""), want.get("address") or "")
        if want.get("name") and pair not in names:
            yield f"{role}: wanted {want['name']!r}, found {names}"


def fragment_differences(expected: Case, parsed: ParsedMessage) -> Iterator[str]:
    text = squeezed(parsed.text)
    html = parsed.html or ""
    stripped = squeezed(entities.unescape(re.sub(r"<[^>]*+>", "", html)))
    for fragment in expected.get("text_contains") or ():
        if squeezed(fragment) not in text:
            yield f"text lacks {fragment[:200]!r}"
    for fragment in expected.get("html_contains") or ():
        if squeezed(fragment) not in stripped:
            yield f"html lacks {fragment[:200]!r}"
    for fragment in expected.get("html_raw_contains") or ():
        if squeezed(fragment) not in squeezed(html):
            yield f"raw html lacks {fragment[:200]!r}"


def attachment_differences(expected: Case, found: tuple[ParsedAttachment, ...]) -> Iterator[str]:
    """Missing files; whether an unnamed text is a file is not compared."""
    left = list(found)
    for want in expected.get("attachments") or expected.get("attachments_include") or ():
        if not want.get("filename") and (want.get("content_type") or "text/").startswith(
            ("text/", "multipart/")
        ):
            continue
        match = next((a for a in left if is_attachment(want, a)), None)
        if match is None:
            have = [(a.filename, a.content_type, a.size) for a in left]
            yield f"attachment: wanted {want}, found {have}"
        else:
            left.remove(match)


def is_attachment(wanted: Case, found: ParsedAttachment) -> bool:
    return (
        (not wanted.get("filename") or wanted["filename"] == found.filename)
        and (not wanted.get("content_type") or wanted["content_type"] == found.content_type)
        and (wanted.get("size") is None or wanted["size"] == found.size)
        and (not wanted.get("sha256") or wanted["sha256"] == found.sha256)
    )
