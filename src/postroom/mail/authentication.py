"""Who vouches for a sender: the Authentication-Results of servers that we trust (RFC 8601)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

from postroom.mail.lookalikes import site

_RESULT = re.compile(r"\b(spf|dkim|dmarc|arc)\s?=\s?([a-z]{1,20})", re.IGNORECASE)
_PROPERTY = re.compile(
    r"\b(header\.d|header\.i|smtp\.mailfrom|smtp\.mail|smtp\.helo|header\.from)\s?=\s?\"?([^\s;\"]+)",
    re.IGNORECASE,
)
_MOST_CHARS = 20_000
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Auth:
    """What trusted servers found; `aligned` is True if it speaks for the From address."""

    spf: str = UNKNOWN
    dkim: str = UNKNOWN
    dmarc: str = UNKNOWN
    arc: str = UNKNOWN
    aligned: bool = False


def read_auth(headers: Iterable[tuple[str, str]], *, trusted: Set[str], from_address: str) -> Auth:
    """The verdict of the newest header that a trusted server wrote.

    Only the topmost one of a trusted name counts: whoever sends a mail can put such headers
    below it, under any name.
    """
    for name, value in headers:
        if name.lower() != "authentication-results":
            continue
        value = without_comments(value[:_MOST_CHARS])
        server, _, results = value.partition(";")
        if server.split(None, 1)[:1] and server.split()[0].lower() in trusted:
            return _read(results, site(from_address.rpartition("@")[2]))
    return Auth()


def _read(results: str, own: str) -> Auth:
    verdicts: dict[str, str] = {}
    aligned = False
    for result in results.split(";"):
        match = _RESULT.search(result)
        if match is None:
            continue
        method, verdict = match[1].lower(), match[2].lower()
        if verdicts.get(method) != "pass":  # one good signature of several is enough
            verdicts[method] = verdict
        aligned = aligned or (verdict == "pass" and _speaks_for(own, method, result))
    return Auth(**verdicts, aligned=aligned)


def _speaks_for(own: str, method: str, result: str) -> bool:
    """True if the domain that passed is the one in From."""
    if method == "dmarc":
        return True
    wanted = {"dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom", "smtp.mail")}
    return any(
        name.lower() in wanted.get(method, ()) and site(value.rpartition("@")[2]) == own
        for name, value in _PROPERTY.findall(result)
    )


def without_comments(value: str) -> str:
    """A header value without its parentheses, in one pass."""
    pieces: list[str] = []
    depth = 0
    for piece in re.split(r"([()])", value):
        if piece == "(":
            depth += 1
        elif piece == ")":
            depth = max(depth - 1, 0)
        elif depth == 0:
            pieces.append(piece)
    return "".join(pieces)
