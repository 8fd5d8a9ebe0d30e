"""Senders that look like others: domains that imitate known ones, and misleading names."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from postroom.mail.sender_authentication import organizational_domain
from postroom.model.message import AddressLine
from postroom.model.values import late_pattern

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
