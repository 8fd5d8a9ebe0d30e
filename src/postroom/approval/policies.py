"""Policies: their lists of recipients, what they say of a mail, and which is stricter."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from postroom.approval.risks import RISKS, is_listed, named
from postroom.errors import Forbidden, InvalidInput
from postroom.mail.addresses import canonical_address, parse_address
from postroom.model.approval import (
    APPROVALS,
    OPEN_POLICY,
    Asked,
    LeavingMail,
    Policy,
    SenderLists,
)

_DOMAIN = re.compile(r"@[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_EVERY_MAIL = "every mail of this {} waits for approval"


def parse_pattern(text: str, field: str) -> str:
    """An address or an `@domain` in the form in which it is compared. Raises InvalidInput."""
    if text.startswith("@"):
        domain = canonical_address(f"x{text.strip()}")[1:]
        if not _DOMAIN.fullmatch(domain):
            raise InvalidInput(f"{field}: {text[:100]!r} is neither an address nor an @domain")
        return domain
    if "@" not in text:
        raise InvalidInput(
            f"{field}: {text[:100]!r} is neither an address nor an @domain; write ana@example.com "
            "or @example.com"
        )
    name, address = parse_address(text, field=field)
    if name or address != text.strip():
        raise InvalidInput(f"{field}: give a bare address, such as ana@example.com")
    return canonical_address(address)


def is_blocked(lists: SenderLists, senders: Iterable[str]) -> bool:
    """Whether an inbox does not take mail of these senders: of the envelope and of the header.

    An address on the allow list is taken, also if its domain is blocked.
    """
    addresses = [canonical_address(sender) for sender in senders if sender]
    if any(is_listed(a, lists.block) and a not in lists.allow for a in addresses):
        return True
    return bool(lists.allow) and not all(is_listed(a, lists.allow) for a in addresses)


def refuse_denied(policies: Iterable[Policy], addresses: Iterable[str]) -> None:
    """Refuse recipients that a policy denies. Raises Forbidden."""
    canonical = [canonical_address(address) for address in addresses]
    for policy in policies:
        denied = [a for a in canonical if is_listed(a, policy.recipients.deny)]
        if denied:
            raise Forbidden(f"{named(denied)}: a policy denies mail to this address")


def refuse_unlisted(policies: Iterable[Policy], outside: Sequence[str]) -> None:
    """Refuse recipients that are not on the allow list of a policy that never asks."""
    for policy in policies:
        if not _is_limit(policy):
            continue
        others = [a for a in outside if not is_listed(a, policy.recipients.allow)]
        if others:
            raise Forbidden(
                f"{named(others)}: not on the allow list, and this policy has no approval by a "
                "person; write to an address on the list, or ask the owner"
            )


def hold_reasons(policy: Policy, mail: LeavingMail, owner_of_policy: str) -> tuple[str, ...]:
    """Why a policy holds a mail that would leave; empty if it may leave."""
    if not mail.outside or policy.approval == "never":
        return ()
    if policy.approval == "always":
        return (_EVERY_MAIL.format(owner_of_policy),)
    return tuple(reason for risk in RISKS for reason in risk(mail, policy))


def is_as_strict(policy: Policy, other: Policy) -> bool:
    """Whether a policy lets nothing leave that the other one would hold or refuse."""
    if other == OPEN_POLICY:
        return True
    if _is_limit(other) and not (policy.approval == "always" or _is_limit(policy)):
        return False
    is_strict = APPROVALS.index(policy.approval) >= APPROVALS.index(other.approval)
    denies = set(policy.recipients.deny) >= set(other.recipients.deny)
    allows = set(policy.recipients.allow) <= set(other.recipients.allow)
    return is_strict and denies and allows


def _is_limit(policy: Policy) -> bool:
    """Whether the allow list of a policy is a limit; if the policy asks, it exempts from holds."""
    return policy.approval == "never" and bool(policy.recipients.allow)


def digest_of(mail: Asked) -> str:
    """The digest of a mail that asks to leave."""
    return mail_digest(mail.raw, mail.sender, mail.recipients)


def mail_digest(raw: str, sender: str, recipients: Iterable[str]) -> str:
    """The digest of a mail: the SHA-256 of its bytes, in hexadecimal, and its envelope."""
    envelope = "\n".join((raw, sender, *sorted(recipients)))
    return hashlib.sha256(envelope.encode("utf-8", "surrogatepass")).hexdigest()
