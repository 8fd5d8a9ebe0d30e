"""Why a mail was not delivered, from what the servers said."""

from __future__ import annotations

import re
from functools import lru_cache

from postroom.mail.bounce_words import AFTER_DATA, EXPIRED, REASONS, SPAM, UNKNOWN_USER
from postroom.mail.message import ReportRecipient

# By the last two numbers of an enhanced status code (RFC 3463).
_BY_STATUS = {
    "1.0": "user_unknown", "1.1": "user_unknown", "1.3": "user_unknown", "1.2": "host_unknown",
    "4.4": "host_unknown", "1.6": "moved", "2.1": "suspended", "2.2": "mailbox_full",
    "1.10": "not_accepting", "3.2": "not_accepting", "4.7": "expired", "2.3": "rejected",
    "1.7": "rejected", "1.8": "rejected",
}  # fmt: skip
# Codes that say more than any words that come with them.
_TELLING = frozenset(("mailbox_full", "moved", "not_accepting", "rejected"))
_HARD = frozenset(("user_unknown", "host_unknown", "moved", "not_accepting"))
_VAGUE = re.compile(r"$|[45]\.(?:0\.0|2\.|3\.0|7\.)")
_POLICY = re.compile(r"[45]\.(?:2\.[01]$|7\.)")
_ABOUT_THE_MAIL = re.compile(r"[45]\.(?:[67]\.|3\.[014])")
_DELIVERED = frozenset(("delivered", "relayed", "expanded"))
_MOST = 2_000


def find_reason(diagnostic: str, status: str, transcript: str = "") -> str:
    """One word for why: what the words say, else what the code says, else `undefined`."""
    text = " ".join(diagnostic[:_MOST].split())
    by_status = _BY_STATUS.get(status[2:], "")
    if by_status == "mailbox_full" or (by_status in _TELLING and status[0] == "5"):
        return by_status
    reason = _told_reason(text, status) or by_status
    if reason == "user_unknown" and _is_pretext(status, f"{text} {transcript}"):
        return "filtered"
    return reason or ("expired" if EXPIRED.search(text) else "undefined")


@lru_cache(maxsize=32)
def _told_reason(text: str, status: str) -> str:
    if UNKNOWN_USER.search(text) and not SPAM.search(text):
        return "user_unknown"
    for reason, words in REASONS:
        if reason == "user_unknown" and _ABOUT_THE_MAIL.match(status):
            return "rejected"
        if words.search(text):
            return reason
    return ""


def _is_pretext(status: str, transcript: str) -> bool:
    """True if "user unknown" is what a filter says.

    A server that took the address, then the mail, and then says so, filters; so does one whose
    own code speaks of policy and who does not answer the address.
    """
    transcript = transcript[: 4 * _MOST]
    if _VAGUE.match(status) and AFTER_DATA.search(transcript):
        return True
    return bool(_POLICY.match(status)) and "rcpt" not in transcript.lower()


def verdict(
    address: str, *, action: str, status: str, diagnostic: str, reason: str
) -> ReportRecipient:
    """What became of the mail for one recipient.

    Hard is only what will never work: a dead address, said for good.
    """
    is_final = action == "failed" and not status.startswith("4")
    return ReportRecipient(
        address=address,
        action=action,
        status=status,
        diagnostic=" ".join(diagnostic[:_MOST].split())[:2_000],
        reason="delivered" if action in _DELIVERED else reason,
        hard=is_final and reason in _HARD,
    )
