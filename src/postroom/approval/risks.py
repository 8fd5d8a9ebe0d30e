"""The risks for which `risky` holds a mail: each a function, with its reason in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroom.model.approval import LeavingMail, Policy

MAX_RECIPIENTS = 5
"""More recipients outside are held."""

USUAL_PER_HOUR = 20
"""So many mails in an hour are never unusual."""

UNUSUAL_FACTOR = 3
"""How many times the busiest hour of the last week is unusual."""

_MAX_NAMED = 3

Risk = Callable[[LeavingMail, Policy], tuple[str, ...]]


def named(addresses: Sequence[str]) -> str:
    """Some addresses for a sentence: the first three, and how many more."""
    more = len(addresses) - _MAX_NAMED
    first = ", ".join(addresses[:_MAX_NAMED])
    return f"{first} and {more} more" if more > 0 else first


def is_listed(address: str, patterns: Sequence[str]) -> bool:
    """Whether a canonical address is on a list; a domain does not include its subdomains."""
    return address in patterns or address[address.rfind("@") :] in patterns


def strangers(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """Recipients that the inbox has neither written to nor heard from."""
    allowed = policy.recipients.allow
    new = [a for a in mail.outside if a not in mail.known and not is_listed(a, allowed)]
    if not new:
        return ()
    them = "this address" if len(new) == 1 else "these addresses"
    return (f"{named(new)}: this inbox has neither written to nor heard from {them}",)


def attachments(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """Attached files for recipients outside."""
    if not mail.attachments or not mail.outside:
        return ()
    files = "an attachment" if mail.attachments == 1 else f"{mail.attachments} attachments"
    return (f"it has {files} for {named(mail.outside)}",)


def many_recipients(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """More recipients outside than an ordinary mail has."""
    count = len(mail.outside)
    if count <= MAX_RECIPIENTS:
        return ()
    return (f"it has {count} recipients outside, which is more than {MAX_RECIPIENTS}",)


def hidden_text(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """Text that leaves with the mail, but that nobody who looks at it sees."""
    if not mail.hidden_chars or not mail.outside:
        return ()
    return (f"its HTML has {mail.hidden_chars} characters of text that its reader would not see",)


def suspicious_mail(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """Mail with security findings that was read before, for recipients who have no part in it."""
    reasons = []
    for read in mail.suspicious:
        others = [a for a in mail.outside if a not in read.participants]
        if others:
            found = " and ".join(read.findings)
            reasons.append(
                f"{read.name}, which was read before, has {found}, and {named(others)} is "
                "neither its sender nor among its recipients"
            )
    return tuple(reasons)


def disclosure(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """Memories about somebody else that the mail repeats.

    They are not named: whoever sees the mail may not see their namespace. The sender is told.
    """
    return ("it repeats a memory about somebody else",) if mail.disclosures else ()


def unusual_rate(mail: LeavingMail, policy: Policy) -> tuple[str, ...]:
    """Far more mail within an hour than this sender usually sends."""
    usual = max(USUAL_PER_HOUR, UNUSUAL_FACTOR * mail.busiest_hour)
    if mail.sent_last_hour < usual:
        return ()
    now, before = mail.sent_last_hour, mail.busiest_hour
    return (f"{now} mails within the hour, but never more than {before} in the week before",)


RISKS: tuple[Risk, ...] = (
    strangers,
    attachments,
    many_recipients,
    hidden_text,
    suspicious_mail,
    disclosure,
    unusual_rate,
)
