"""Authentication of senders: SPF, DKIM and DMARC, as trusted servers and our own checks say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import field, replace
from typing import TYPE_CHECKING

from postroom.mail.message import ParsedMessage
from postroom.model.values import dataclass, late_pattern

if TYPE_CHECKING:
    from postroom.mail.dkim import DkimKeys, Verdict

_SECOND_LEVEL = frozenset(("co", "com", "org", "net", "ac", "gov", "edu", "or", "ne", "go"))
_PIECE = late_pattern(
    r'"(?P<quoted>(?:[^"\\]|\\.)*+)"?|(?P<bracket>[()])|(?P<plain>[^"()]++)', re.DOTALL
)
_SAFE = late_pattern(r"[^\w.@+=/-]++")
_RESULT = late_pattern(r"\s*+(spf|dkim|dmarc|arc)\s?=\s?([a-z]{1,20})(?![\w.])", re.IGNORECASE)
_PROPERTY = late_pattern(
    r"(?<!\S)(header\.d|header\.i|smtp\.mailfrom|smtp\.mail|header\.from)\s?=\s?([^\s;]+)",
    re.IGNORECASE,
)
_DOMAINS = {
    "dkim": ("header.d", "header.i"),
    "spf": ("smtp.mailfrom", "smtp.mail"),
    "dmarc": ("header.from",),
}
_MAX_CHARS = 20_000
_BEST_FIRST = ("pass", "fail", "policy", "neutral")
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Trust:
    """Trusted servers, by the name in their Authentication-Results, and DKIM keys.

    Empty by default, because anybody can write such headers.
    """

    servers: frozenset[str] = frozenset()
    keys: DkimKeys = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Auth:
    """The results; `aligned` is True if a passed check covers the domain of From."""

    spf: str = UNKNOWN
    dkim: str = UNKNOWN
    dmarc: str = UNKNOWN
    arc: str = UNKNOWN
    aligned: bool = False


def authenticate(raw: bytes, parsed: ParsedMessage, trust: Trust) -> Auth:
    """The authentication of a mail's sender, from trusted sources only.

    A mail with several From addresses is aligned with none of them.
    """
    headers = [name for name, _ in parsed.headers if len(name) == 4 and name.lower() == "from"]
    authors = [a.address for a in parsed.addresses if a.role == "from"]
    author = authors[0] if len(authors) == 1 and len(headers) == 1 else ""
    auth = read_auth(parsed.headers, trusted=trust.servers, from_address=author)
    if not trust.keys:
        return auth
    from postroom.mail.dkim import check_signatures  # late, because few installations have keys

    return _with_signatures(auth, check_signatures(raw, trust.keys), author)


def _with_signatures(auth: Auth, verdicts: Sequence[Verdict], author: str) -> Auth:
    """Add our own checks. A trusted server may have seen the mail before it was modified."""
    if not verdicts:
        return auth
    results = {verdict.result for verdict in verdicts}
    best = next(result for result in _BEST_FIRST if result in results)
    from_domain = organizational_domain(author.rpartition("@")[2])
    aligned = any(
        v.result == "pass" and from_domain and organizational_domain(v.domain) == from_domain
        for v in verdicts
    )
    dkim = best if best == "pass" or auth.dkim == UNKNOWN else auth.dkim
    return replace(auth, dkim=dkim, aligned=auth.aligned or aligned)


def read_auth(headers: Iterable[tuple[str, str]], *, trusted: Set[str], from_address: str) -> Auth:
    """The verdict of the newest header that a trusted server wrote.

    Only the topmost one of a trusted name counts: whoever sends a mail can put such headers
    below it, under any name.
    """
    if not trusted:
        return Auth()
    for name, value in headers:
        if name.lower() != "authentication-results":
            continue
        server, _, results = plain_results(value[:_MAX_CHARS]).partition(";")
        if server.split()[:1] and server.split()[0].lower() in trusted:
            return _parse_results(results, organizational_domain(from_address.rpartition("@")[2]))
    return Auth()


def _parse_results(results: str, from_domain: str) -> Auth:
    verdicts: dict[str, str] = {}
    aligned = False
    for result in results.split(";"):
        match = _RESULT.match(result)
        if match is None:
            continue
        method, verdict = match[1].lower(), match[2].lower()
        if verdicts.get(method) != "pass":  # one good signature of several is enough
            verdicts[method] = verdict
        aligned = aligned or (verdict == "pass" and _is_aligned(from_domain, method, result))
    return Auth(**verdicts, aligned=aligned)


def _is_aligned(from_domain: str, method: str, result: str) -> bool:
    """True if the domain that passed is the one in From; DMARC passes for no other."""
    properties = [(name.lower(), value) for name, value in _PROPERTY.findall(result)]
    domains = [
        value.rpartition("@")[2] for name, value in properties if name in _DOMAINS.get(method, ())
    ]
    if method == "dmarc" and not domains:
        return bool(from_domain)
    return bool(from_domain) and any(
        organizational_domain(domain) == from_domain for domain in domains
    )


def plain_results(value: str) -> str:
    """The header without comments, in one pass; what is quoted loses whatever could mislead.

    The sender chooses the words that a server quotes: `smtp.mailfrom="a; dkim=pass"@evil.example`.
    """
    pieces: list[str] = []
    depth = 0
    for match in _PIECE.finditer(value):
        if match["bracket"]:
            depth = depth + 1 if match["bracket"] == "(" else max(depth - 1, 0)
        elif depth == 0:
            quoted = match["quoted"]
            pieces.append(match["plain"] if quoted is None else _SAFE.sub("_", quoted))
    return "".join(pieces)


def organizational_domain(domain: str) -> str:
    """The part of a domain that one owner holds, by a rule of thumb."""
    labels = domain.lower().split(".")
    size = 3 if len(labels) > 2 and labels[-2] in _SECOND_LEVEL and len(labels[-1]) == 2 else 2
    return ".".join(labels[-size:])
