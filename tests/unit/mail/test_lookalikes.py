"""Look-alike senders: 500 generated imitations are found, thousands of ordinary senders are not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from postroom.mail.parse import parse_message
from postroom.mail.senders import find_imitated_domain, organizational_domain, skeleton_keys

KNOWN = (
    "paypal.com", "amazon.com", "microsoft.com", "google.com", "wikipedia.org", "deutschebank.de",
    "barclays.co.uk", "openstreetmap.org", "salesforce.com", "dropbox.com", "linkedin.com",
    "stripe.com", "northwind.example", "contoso.example", "acme-corp.example", "sparkasse.de",
    "mastercard.com", "docusign.net", "fidelity.com", "coinbase.com", "raiffeisen.ch",
    "telekom.de", "instagram.com", "wellsfargo.com", "commerzbank.de",
)  # fmt: skip
LATIN_TO_OTHER = {"a": "а", "e": "е", "o": "о", "p": "р", "c": "с", "i": "і", "s": "ѕ", "t": "τ"}
GLYPHS = (("l", "1"), ("o", "0"), ("m", "rn"), ("w", "vv"), ("d", "cl"), ("e", "3"), ("s", "5"))


def tricks(known: str) -> Iterator[str]:
    """Senders that imitate a domain, each in another way."""
    name, dot, rest = known.partition(".")
    middle = len(name) // 2
    swapped = name[:middle] + name[middle + 1] + name[middle] + name[middle + 2 :]
    names = [
        name[:middle] + name[middle] + name[middle:],
        name[:middle] + name[middle + 1 :],
        name + "s",
        name[1:],
        swapped if swapped != name else name + "x",
        name[:middle] + "x" + name[middle + 1 :],
        f"{name}-support",
        f"secure-{name}",
        *(name.replace(*pair, 1) for pair in GLYPHS if pair[0] in name),
    ]
    for made in names:
        yield f"x@{made}{dot}{rest}"
        yield f"x@mail.{made}{dot}{rest}"
    for latin, other in LATIN_TO_OTHER.items():
        if latin in name:
            made = name.replace(latin, other, 1)
            yield f"x@{made}{dot}{rest}"
            yield f"x@xn--{made.encode('punycode').decode()}{dot}{rest}"
    yield f'"help@{known}" <x@elsewhere.example>'


PAIRS = [(known, sender) for known in KNOWN for sender in tricks(known)]


def is_flagged(sender: str, known: str) -> bool:
    parsed = parse_message(f"From: {sender}\n\nHi".encode())
    address = parsed.sender.address if parsed.sender else ""
    domain = address.rpartition("@")[2]
    return bool(parsed.security.lookalike) or (
        bool(skeleton_keys(domain) & skeleton_keys(known))
        and find_imitated_domain(domain, [known]) == known
    )


def test_nearly_every_imitation_is_found() -> None:
    missed = [(known, sender) for known, sender in PAIRS if not is_flagged(sender, known)]

    assert len(PAIRS) >= 500
    assert len(missed) <= 0.05 * len(PAIRS), missed


WORDS = (
    "amber", "bridge", "copper", "delta", "oyster", "falcon", "garden", "harbour", "indigo",
    "jasmin", "kepler", "lumen", "meadow", "nimbus", "orchard", "pioneer", "quartz", "river",
    "summit", "timber", "urban", "velvet", "willow", "yonder", "zephyr", "anchor", "beacon",
    "canyon", "dynamo", "eclipse", "forge", "glacier", "horizon", "island", "jupiter", "kindle",
)  # fmt: skip
ENDINGS = (".com", ".org", ".de", ".co.uk")
ORDINARY = [f"{a}{b}{end}" for a, b, end in product(WORDS, WORDS, ENDINGS) if a != b]


def test_ordinary_senders_imitate_nobody() -> None:
    by_shape: dict[str, set[str]] = {}
    flagged = []
    for domain in ORDINARY:
        similar = {known for shape in skeleton_keys(domain) for known in by_shape.get(shape, ())}
        if find_imitated_domain(domain, sorted(similar)):
            flagged.append(domain)
        for shape in skeleton_keys(domain):
            by_shape.setdefault(shape, set()).add(organizational_domain(domain))

    assert len(ORDINARY) >= 5_000
    assert len(flagged) <= 0.01 * len(ORDINARY), flagged
