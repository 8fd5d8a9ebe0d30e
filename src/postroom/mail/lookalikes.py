"""Senders who are not who they seem to be."""

from __future__ import annotations

import re
import unicodedata

from postroom.mail.message import Address

_ADDRESS = re.compile(r"[\w.+-]{1,64}@((?:[\w-]{1,63}\.){1,9}[A-Za-z]{2,24})")
_SECOND_LEVEL = frozenset(("co", "com", "org", "net", "ac", "gov", "edu", "or", "ne", "go"))


def find_lookalikes(addresses: tuple[Address, ...]) -> tuple[str, ...]:
    """What about the sender does not fit together, in words."""
    senders = [address for address in addresses if address.role == "from"]
    found: list[str] = []
    if len(senders) > 1:
        found.append("more than one From address")
    for sender in senders[:1]:
        found += _name_claims(sender)
        found += _domain_tricks(sender)
        found += _reply_elsewhere(sender, addresses)
    return tuple(found)


def _name_claims(sender: Address) -> list[str]:
    claimed = _ADDRESS.search(sender.name[:500])
    if claimed and site(claimed[1]) != site(_domain(sender.address)):
        return [f"the name says {claimed[0]}, the address is {sender.address}"]
    return []


def _domain_tricks(sender: Address) -> list[str]:
    domain = _domain(sender.address)
    if domain.isascii() and "xn--" not in domain:
        return []
    shown = _unpunycoded(domain)
    scripts = {s for label in shown.split(".") for s in _scripts(label)}
    mixed = any(_is_mixed(label) for label in shown.split("."))
    if mixed:
        return [f"the domain {shown} mixes scripts"]
    if shown != domain and scripts - {"LATIN"} and shown.rpartition(".")[2].isascii():
        return [f"the domain {domain} reads as {shown}"]
    return []


def _reply_elsewhere(sender: Address, addresses: tuple[Address, ...]) -> list[str]:
    replies = [a for a in addresses if a.role == "reply_to" and "@" in a.address]
    own = site(_domain(sender.address))
    if own and replies and all(site(_domain(a.address)) != own for a in replies):
        return [f"replies go to {replies[0].address}, another domain than the sender's"]
    return []


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower().rstrip(".") if "@" in address else ""


def site(domain: str) -> str:
    """The part of a domain that one owner holds, by a rule of thumb."""
    labels = domain.lower().split(".")
    size = 3 if len(labels) > 2 and labels[-2] in _SECOND_LEVEL and len(labels[-1]) == 2 else 2
    return ".".join(labels[-size:])


def _unpunycoded(domain: str) -> str:
    if "xn--" not in domain:
        return domain
    labels = []
    for label in domain.split("."):
        try:
            readable = (
                label[4:].encode().decode("punycode")
                if label.startswith("xn--") and len(label) < 64
                else label
            )
        except (UnicodeError, ValueError):
            readable = label
        labels.append(readable if len(readable) < 64 else label)
    return ".".join(labels)


def _is_mixed(label: str) -> bool:
    scripts = _scripts(label)
    japanese = {"LATIN", "CJK", "HIRAGANA", "KATAKANA"}
    return (
        len(scripts) > 1 and not scripts <= japanese and not scripts <= {"LATIN", "CJK", "HANGUL"}
    )


def _scripts(label: str) -> set[str]:
    return {unicodedata.name(c, "?").split(" ")[0] for c in label[:100] if c.isalpha()}
