"""Replies, compared with their expected new text."""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path

from bench.corpora.files import Case, read_jsonl, squeezed
from bench.corpora.scoreboard import Scoreboard
from postroom.mail.html.html import html_to_text
from postroom.mail.quoting import split_reply
from postroom.mail.quoting.html_quotes import mark_quotes


def score_replies(folder: Path, scoreboard: Scoreboard) -> None:
    for case in read_jsonl(folder / "manifest.jsonl"):
        kind = case["kind"]
        if kind == "eml":
            parsed = scoreboard.parse((folder / case["input_file"]).read_bytes(), case["id"])
            if parsed is None:
                continue
            new, signature = parsed.new_text, parsed.signature
        else:
            text = case["input"].replace("#sig#", "")
            text = html_to_text(mark_quotes(text)).text if kind == "html" else text
            reply = split_reply(text)
            new, signature = reply.new_text, reply.signature
        right = is_right_reply(case, new, signature)
        scoreboard.score(kind, case["id"], right=right, why=f"\n{new}\n~~~\n{signature}\n~~~")
        if kind in ("text", "eml"):
            scoreboard.score("text and eml", case["id"], right=right)
        if case.get("expected") is not None and kind != "signature":
            lost, left = lost_and_left(wanted_text(case), new, signature)
            scoreboard.add("characters lost", lost)
            scoreboard.add("characters left", left)


def wanted_text(case: Case) -> str:
    wanted: str = case["expected"]
    return html_to_text(wanted).text if case["kind"] == "html" else wanted


def lost_and_left(wanted: str, new: str, signature: str) -> tuple[int, int]:
    """The number of missing characters of the writer, and of remaining characters of others.

    The signature belongs to the writer, so it may be in the text or separate.
    """
    found = (squeezed(new), squeezed(new) + squeezed(signature))
    return min(_differences(squeezed(wanted), one) for one in found)


def _differences(wanted: str, found: str) -> tuple[int, int]:
    blocks = SequenceMatcher(None, wanted, found, autojunk=False).get_matching_blocks()
    same = sum(block.size for block in blocks)
    return len(wanted) - same, len(found) - same


def is_right_reply(case: Case, new: str, signature: str) -> bool:
    with_signature = squeezed(new) + squeezed(signature)
    if case["kind"] == "signature":
        return squeezed(case["expected"].replace("#sig#", "")) == squeezed(signature)
    if case.get("expected") is not None:
        return squeezed(wanted_text(case)) in (squeezed(new), with_signature)
    return all(squeezed(part) in with_signature for part in case.get("must_contain", ())) and all(
        squeezed(part) not in squeezed(new) for part in case.get("must_not_contain", ())
    )
