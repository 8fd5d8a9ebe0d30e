"""Finding the signature of a mail."""

from __future__ import annotations

import re

from postroom.mail.data import load, pattern
from postroom.mail.quoting.attributions import is_rule

_WORDS = load("quotations")
_MAX_LINES = 40
_MAX_CLOSING_LINES = 12
_SENT_FROM = pattern(_WORDS["sent_from"])
_CLOSING = pattern(_WORDS["closing"])
_MAX_CONTACT_LINES = 24
_SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,}[.!]$")
_CONTACT = re.compile(
    r"\+?\(?\d[\d ().-]{6,20}\d|\w@\w|https?://|www\.|\b(?:skype|twitter|linkedin|icq)\b",
    re.IGNORECASE,
)
_FOOTER_RULE = re.compile(r"\s{0,3}(?:_{2,80}|-{5,80}|={5,80})\s{0,9}$")
_LIST_FOOTER = pattern(_WORDS["list_footer"])


def find_signature(lines: list[str]) -> int:
    """The index of the first line of the signature; len(lines) if there is none."""
    end = len(lines)
    for find in (_delimiter, _footer, _sent_from, _closing, _contacts):
        found = find(lines[:end])
        # whoever writes only "Thanks" has written something
        if found < end and (find is _delimiter or any(line.strip() for line in lines[:found])):
            end = found
    return end


def _delimiter(lines: list[str]) -> int:
    """The line that is just two dashes (RFC 3676 §4.3)."""
    first = max(0, len(lines) - _MAX_LINES)
    for index in range(first, len(lines)):
        if lines[index].rstrip() in ("--", "—", "––") and lines[index][:1] in "-—–":
            return index
    return len(lines)


def _footer(lines: list[str]) -> int:
    """What a mailing list appends under a rule."""
    first = max(0, len(lines) - _MAX_LINES)
    for index in range(first, len(lines)):
        if lines[index][:1] in "_-= " and _FOOTER_RULE.match(lines[index]):
            below = " ".join(lines[index + 1 : index + 9])
            if _LIST_FOOTER.search(below[:600]):
                return index
    return len(lines)


def _sent_from(lines: list[str]) -> int:
    """`Sent from my phone` as the last words."""
    for index in range(len(lines) - 1, max(-1, len(lines) - 8), -1):
        if _SENT_FROM.match(lines[index][:200]) and len(lines[index]) < 200:
            return index
    return len(lines)


def _closing(lines: list[str]) -> int:
    """`Regards,` on a line of its own, with nothing below it but a name and its trimmings."""
    below: list[str] = []
    for index in range(len(lines) - 1, max(-1, len(lines) - _MAX_CLOSING_LINES), -1):
        line = lines[index].strip()
        if line and len(line) <= 60 and _CLOSING.match(line):
            most = 3 if line.endswith((".", "!")) else 7  # "Thanks!" may go on
            return (
                index
                if below and all(_is_name(words, most=most) for words in below)
                else len(lines)
            )
        if line:
            below.append(line)
    return len(lines)


def _is_name(line: str, *, most: int) -> bool:
    """A name, a position, a company: a few words that are no question."""
    return len(line) <= 70 and len(line.split()) <= most and not line.endswith(("?", ":"))


def _contacts(lines: list[str]) -> int:
    """A last block of short lines with a phone number, an address or a link in several."""
    contacts = 0
    index = len(lines)
    for line in reversed(lines[-_MAX_CONTACT_LINES:]):
        stripped = line.strip()
        if "<" in stripped or not _is_name(stripped, most=7) or _SENTENCE.search(stripped):
            break
        index -= 1
        contacts += bool(_CONTACT.search(stripped))
    return _block_start(lines, index) if contacts >= 2 else len(lines)


def _block_start(lines: list[str], first: int) -> int:
    """The first line after an empty one or on a rule, unless a colon announces the block."""
    for index in range(first, len(lines) - 1):
        above = lines[index - 1].strip() if index else ""
        if is_rule(lines[index]) or (not above and index and lines[index].strip()):
            before = next((line for line in reversed(lines[:index]) if line.strip()), "")
            return len(lines) if before.rstrip().endswith((":", "：")) or not before else index
    return len(lines)
