"""Senders: their authentication, look-alikes, and the signed mark of what our rules forward."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from postroom.mail.message import ParsedMessage, parse_message_id
from postroom.model.mail.message import AddressLine
from postroom.model.rule import OWN_MARK
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
    if not (trust.servers or trust.keys):
        return Auth()
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


_ADDRESS = late_pattern(r"[\w.+-]{1,64}@((?:[\w-]{1,63}\.){1,9}[A-Za-z]{2,24})")
_COMPATIBLE_SCRIPTS = (
    frozenset(("LATIN", "CJK", "HIRAGANA", "KATAKANA")),
    frozenset(("LATIN", "CJK", "HANGUL")),
    frozenset(("LATIN", "CJK", "BOPOMOFO")),
)
# Letters of other scripts that look like a Latin one (after Unicode's confusables).
_LATIN = str.maketrans(
    "аеорсухіјѕԁһӏԛԝѵмтвкнгᴦзбοανρτυικχωγηεßɑɡıǀ∣ｌ",
    "aeopcyxijsdhlqwvmtbkhrr36oavptuikxwynebagilll",
)
_ALTERED = "the address has characters that do not show, and is not "
_SHORTEST, _LONGEST = 5, 100
_DIGITS = str.maketrans("0135$@", "olessa")


def find_lookalikes(addresses: tuple[AddressLine, ...], *, is_list: bool) -> tuple[str, ...]:
    """Findings about a sender whose name, address and Reply-To do not match."""
    senders = [address for address in addresses if address.role == "from"]
    if not senders:
        return ()
    found = ["more than one From address"] if len(senders) > 1 else []
    sender = senders[0]
    found += [*_name_findings(sender), *_domain_findings(sender)]
    if not is_list:
        found += _reply_to_findings(sender, addresses)
    return tuple(found)


def find_altered(addresses: Iterable[str]) -> tuple[str, ...]:
    """The finding for addresses that contained invisible characters."""
    return tuple(dict.fromkeys(f"{_ALTERED}{address}" for address in addresses))


def is_altered(address: str, security: Mapping[str, Any]) -> bool:
    """Whether an address differs from what is displayed, according to the findings."""
    return find_altered((address,))[0] in security.get("lookalike", ())


def find_imitated_domain(domain: str, known: Iterable[str]) -> str | None:
    """The known domain that this one imitates, or None."""
    own = skeleton(organizational_domain(domain))
    for other in known:
        seen = skeleton(organizational_domain(other))
        if organizational_domain(other) != organizational_domain(domain) and (
            _is_similar(own, seen) or _first_label(seen) in _words_in_label(own)
        ):
            return other
    return None


def _first_label(domain: str) -> str:
    """The name of a domain: `paypal` for paypal.com."""
    return domain.partition(".")[0]


def _words_in_label(domain: str) -> list[str]:
    """The names inside a name: `paypal` of secure-paypal.example."""
    words = _first_label(domain).split("-")
    return [word for word in words if len(word) >= _SHORTEST] if len(words) > 1 else []


def skeleton_keys(domain: str) -> frozenset[str]:
    """Index keys that two look-alike domains have in common.

    Two domains can share a key without being alike; `find_imitated_domain` decides.
    """
    whole = skeleton(organizational_domain(domain))[:_LONGEST]
    short = {whole[:at] + whole[at + 1 :] for at in range(len(whole))}
    return frozenset({whole, _first_label(whole), *_words_in_label(whole), *short})


def skeleton(text: str) -> str:
    """The skeleton (UTS #39): confusable letters and digits as Latin letters."""
    seen = unicodedata.normalize("NFKD", decode_punycode(text.lower())).translate(_LATIN)
    letters = "".join(c for c in seen if not unicodedata.combining(c)).translate(_DIGITS)
    return letters.replace("rn", "m").replace("vv", "w").replace("cl", "d")


def _is_similar(one: str, other: str) -> bool:
    """The same, or one letter more, less, other or swapped."""
    if one == other:
        return True
    if min(len(one), len(other)) < 6 or abs(len(one) - len(other)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if start is None:
        return True
    rest, other_rest = one[start:], other[start:]
    return (
        rest[1:] == other_rest[1:]
        or rest[1:] == other_rest
        or rest == other_rest[1:]
        or (rest[:2][::-1] == other_rest[:2] and rest[2:] == other_rest[2:])
    )


def _name_findings(sender: AddressLine) -> list[str]:
    name = sender.name[:500]
    claimed = _ADDRESS.search(name) if "@" in name else None
    if claimed and organizational_domain(claimed[1]) != organizational_domain(
        _domain(sender.address)
    ):
        return [f"the name says {claimed[0]}, the address is {sender.address}"]
    if not name.isascii() and any(_is_mixed(word) for word in name.split()):
        return ["the name mixes scripts"]
    return []


def _domain_findings(sender: AddressLine) -> list[str]:
    domain = _domain(sender.address)
    if domain.isascii() and "xn--" not in domain:
        return []
    shown = decode_punycode(domain)
    if any(_is_mixed(label) for label in shown.split(".")):
        return [f"the domain {shown} mixes scripts"]
    if any(_is_disguise(label) for label in shown.split(".")):
        return [f"the domain {shown} only looks like {skeleton(domain)}"]
    return []


def _is_disguise(label: str) -> bool:
    """A word of another script in which every letter looks like a Latin one."""
    return not label.isascii() and "LATIN" not in _scripts(label) and skeleton(label).isascii()


def _reply_to_findings(sender: AddressLine, addresses: tuple[AddressLine, ...]) -> list[str]:
    """Replies that go to somebody else's domain, unless it is the same person or a recipient."""
    own = organizational_domain(_domain(sender.address))
    local = sender.address.partition("@")[0].lower()
    others = {a.address.lower() for a in addresses if a.role in ("to", "cc", "sender")}
    replies = [a for a in addresses if a.role == "reply_to" and "@" in a.address]
    for reply in replies:
        is_known = reply.address.lower() in others or reply.address.lower().startswith(f"{local}@")
        is_same = bool(reply.name) and reply.name == sender.name
        if not own or organizational_domain(_domain(reply.address)) == own or is_known or is_same:
            return []
    if not replies:
        return []
    return [f"replies go to {replies[0].address}, which is not in the sender's domain"]


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower().rstrip(".") if "@" in address else ""


def decode_punycode(domain: str) -> str:
    """A domain with its punycode labels spelled out."""
    if "xn--" not in domain:
        return domain
    return ".".join(_decode_label(label) for label in domain.split("."))


def _decode_label(label: str) -> str:
    if not label.startswith("xn--") or len(label) > 63:
        return label
    try:
        return label[4:].encode().decode("punycode")
    except (UnicodeError, ValueError):
        return label


def _is_mixed(word: str) -> bool:
    scripts = _scripts(word)
    return len(scripts) > 1 and not any(scripts <= compatible for compatible in _COMPATIBLE_SCRIPTS)


def _scripts(word: str) -> set[str]:
    return {unicodedata.name(c, "?").partition(" ")[0] for c in word[:100] if c.isalpha()}


_RULE_MARK_PURPOSE = b"postroom rule mark"
_MAX_RULE_MARKS = 20


def mark_key(secret: bytes) -> bytes:
    """The signing key, derived from the secret of the installation."""
    return hmac.digest(secret, _RULE_MARK_PURPOSE, hashlib.sha256)


def rule_mark(key: bytes, kind: str, message_id: str) -> str:
    """The value of the signed header of mail that a rule sends, which prevents mail loops.

        X-Postroom-Rule: t=forward; s=<signature over type and Message-ID>

    The signature covers the Message-ID (without brackets), so a copied header is invalid on another
    mail. Recipients do not learn which rule it was; we find it by the Message-ID of the stored
    mail. Only forwards are recognised by it; replies carry `Auto-Submitted: auto-replied`.
    Otherwise the recipient of a reply could disable forwarding by sending its header back.
    """
    signed = f"{kind}\n{message_id}".encode("utf-8", "surrogatepass")
    signature = base64.urlsafe_b64encode(hmac.digest(key, signed, hashlib.sha256)[:18]).decode()
    return f"t={kind}; s={signature}"


def is_own_forward(key: bytes, headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a mail was forwarded by a rule of this installation, proven by the signature."""
    found = [(name.lower(), value) for name, value in headers]
    marks = [value for name, value in found if name == OWN_MARK.lower()]
    ids = [value for name, value in found if name == "message-id"]
    message_id = parse_message_id(ids[0]) if marks and len(ids) == 1 else None
    if not key or message_id is None:
        return False
    wanted = rule_mark(key, "forward", message_id).encode()
    return any(hmac.compare_digest(_unfolded(mark), wanted) for mark in marks[:_MAX_RULE_MARKS])


def _unfolded(mark: str) -> bytes:
    return " ".join(mark.split()).encode("utf-8", "surrogatepass")
