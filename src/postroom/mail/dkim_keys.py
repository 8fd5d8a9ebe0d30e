"""Public keys of DKIM signers, as DNS publishes them and as a file can keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

DkimKeys = Mapping[str, str]
"""From `selector._domainkey.domain`, in lower case, to the record that DNS has there."""

_QUOTED = re.compile(r'"([^"]*+)"')
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\._domainkey\.[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_RECORD = re.compile(r"(?:^|[\s;])[vkp]\s{0,9}=")


def read_keys(text: str) -> dict[str, str]:
    """Read lines such as `dig TXT` and zone files have: a name, then its record.

    Raises:
        ValueError: naming the line that is none.
    """
    keys: dict[str, str] = {}
    for number, line in _entries(text):
        name, _, rest = line.partition(" ")
        name = name.rstrip(".").lower()
        pieces = _QUOTED.findall(rest)
        record = "".join(pieces) if pieces else _bare(rest)
        if not _NAME.fullmatch(name) or "p" not in tags(record):
            raise ValueError(
                f"line {number} must be like "
                "mail._domainkey.example.com v=DKIM1; k=rsa; p=MIIB…, as `dig TXT` shows it"
            )
        keys[name] = record
    return keys


def _bare(rest: str) -> str:
    """A record that stands there without quotation marks."""
    match = _RECORD.search(rest)
    return rest[match.start() :].strip() if match else ""


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments; what stands in parentheses counts as one."""
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


def tags(value: str) -> dict[str, str]:
    """The tags of a signature or a key record (§3.2); of one that is there twice, the first."""
    found: dict[str, str] = {}
    for piece in value[:20_000].split(";"):
        name, is_tag, content = piece.partition("=")
        if is_tag:
            found.setdefault(name.strip().lower(), "".join(content.split()))
    return found
