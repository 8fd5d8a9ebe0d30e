"""Policies: recipients, decisions, which is stricter; the risks for which `risky` holds a mail."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence

from postroom.errors import Forbidden, InvalidInput
from postroom.mail.addresses import base_address, canonical_address, parse_address
from postroom.model.mail.approval import (
    APPROVALS,
    OPEN_POLICY,
    GateRequest,
    Policy,
    RiskFacts,
    SenderLists,
)

MAX_RECIPIENTS = 5
"""More recipients outside are held."""

USUAL_PER_HOUR = 20
"""So many mails in an hour are never unusual."""

UNUSUAL_FACTOR = 3
"""How many times the busiest hour of the last week is unusual."""

_MAX_NAMED = 3

Risk = Callable[[RiskFacts, Policy], tuple[str, ...]]


def list_some(addresses: Sequence[str]) -> str:
    """Some addresses for a sentence: the first three, and how many more."""
    more = len(addresses) - _MAX_NAMED
    first = ", ".join(addresses[:_MAX_NAMED])
    return f"{first} and {more} more" if more > 0 else first


def is_listed(address: str, patterns: Sequence[str]) -> bool:
    """Whether a canonical address is on a list; a domain does not include its subdomains."""
    return address in patterns or address[address.rfind("@") :] in patterns


def new_recipients(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """Recipients that the inbox has neither written to nor heard from."""
    allowed = policy.recipients.allow
    new = [a for a in mail.external_recipients if a not in mail.known and not is_listed(a, allowed)]
    if not new:
        return ()
    them = "this address" if len(new) == 1 else "these addresses"
    return (f"{list_some(new)}: this inbox has neither written to nor heard from {them}",)


def attachments(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """Attached files for recipients outside."""
    if not mail.attachments or not mail.external_recipients:
        return ()
    files = "an attachment" if mail.attachments == 1 else f"{mail.attachments} attachments"
    return (f"it has {files} for {list_some(mail.external_recipients)}",)


def many_recipients(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """More recipients outside than an ordinary mail has."""
    count = len(mail.external_recipients)
    if count <= MAX_RECIPIENTS:
        return ()
    return (f"it has {count} external recipients, which is more than {MAX_RECIPIENTS}",)


def hidden_text(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """Text that leaves with the mail, but that nobody who looks at it sees."""
    if not mail.hidden_chars or not mail.external_recipients:
        return ()
    return (f"its HTML has {mail.hidden_chars} characters of text that its reader would not see",)


def suspicious_mail(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """Mail with security findings that was read before, for recipients who have no part in it."""
    reasons = []
    for read in mail.suspicious:
        others = [a for a in mail.external_recipients if a not in read.participants]
        if others:
            found = " and ".join(read.findings)
            reasons.append(
                f"{read.name}, which was read before, has {found}, and {list_some(others)} is "
                "neither its sender nor among its recipients"
            )
    return tuple(reasons)


def disclosure(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """Memories about somebody else that the mail repeats.

    They are not named, because a person who sees the mail may not see their namespace. The sender
    sees them.
    """
    return ("it repeats a memory about somebody else",) if mail.disclosures else ()


def unusual_rate(mail: RiskFacts, policy: Policy) -> tuple[str, ...]:
    """Far more mail within an hour than this sender usually sends."""
    usual = max(USUAL_PER_HOUR, UNUSUAL_FACTOR * mail.busiest_hour)
    if mail.sent_last_hour < usual:
        return ()
    now, before = mail.sent_last_hour, mail.busiest_hour
    return (f"{now} mails within an hour, but at most {before} per hour in the week before",)


RISKS: tuple[Risk, ...] = (
    new_recipients,
    attachments,
    many_recipients,
    hidden_text,
    suspicious_mail,
    disclosure,
    unusual_rate,
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
    """Refuse recipients that a policy denies, also with a plus-tag. Raises Forbidden."""
    canonical = [canonical_address(address) for address in addresses]
    for policy in policies:
        deny = policy.recipients.deny
        denied = [a for a in canonical if is_listed(a, deny) or base_address(a) in deny]
        if denied:
            raise Forbidden(f"{list_some(denied)}: a policy denies mail to this address")


def refuse_unlisted(policies: Iterable[Policy], external_recipients: Sequence[str]) -> None:
    """Refuse recipients that are not on the allow list of a policy that never asks."""
    for policy in policies:
        if not _is_limit(policy):
            continue
        others = [a for a in external_recipients if not is_listed(a, policy.recipients.allow)]
        if others:
            raise Forbidden(
                f"{list_some(others)}: not on the allow list, and this policy has no approval by a "
                "person; write to an address on the list, or ask the owner"
            )


def hold_reasons(policy: Policy, mail: RiskFacts, owner_of_policy: str) -> tuple[str, ...]:
    """Why a policy holds a mail that would leave; empty if it may leave."""
    if not mail.external_recipients or policy.approval == "never":
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


def digest_of(mail: GateRequest) -> str:
    """The digest of a mail that asks to leave."""
    return mail_digest(mail.raw, mail.sender, mail.recipients)


def mail_digest(raw: str, sender: str, recipients: Iterable[str]) -> str:
    """The digest of a mail: the SHA-256 of its bytes, in hexadecimal, and its envelope."""
    envelope = "\n".join((raw, sender, *sorted(recipients)))
    return hashlib.sha256(envelope.encode("utf-8", "surrogatepass")).hexdigest()
