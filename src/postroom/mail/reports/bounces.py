"""Delivery failures: whose mail came back, and why."""

from __future__ import annotations

import re
from functools import lru_cache

from postroom.mail.data import load, pattern
from postroom.mail.message import Report, ReportRecipient
from postroom.mail.mime.charsets import decode_words
from postroom.mail.mime.headers import Fields

_DATA = load("bounces")
_BY_STATUS: dict[str, str] = _DATA["by_status"]
REASONS: dict[str, re.Pattern[str]] = {
    reason: re.compile("|".join(parts), re.IGNORECASE) for reason, parts in _DATA["reasons"].items()
}
UNKNOWN_USER, SPAM = pattern(_DATA["unknown_user"]), pattern(_DATA["spam"])
EXPIRED = pattern(_DATA["expired"])
AFTER_DATA = re.compile(r"end of data|final data|>>> data\s{1,9}<<< [45]", re.IGNORECASE)

# Codes that say more than any words that come with them.
_DECISIVE = frozenset(("mailbox_full", "moved", "not_accepting", "rejected"))
_HARD = frozenset(("user_unknown", "host_unknown", "moved", "not_accepting"))
_VAGUE = re.compile(r"$|[45]\.(?:0\.0|2\.|3\.0|7\.)")
_POLICY = re.compile(r"[45]\.(?:2\.[01]$|7\.)")
_ABOUT_THE_MAIL = re.compile(r"[45]\.(?:[67]\.|3\.[014])")
_DELIVERED = frozenset(("delivered", "relayed", "expanded"))
_MAX_REASON_CHARS = 2_000


def find_reason(diagnostic: str, status: str, transcript: str = "") -> str:
    """The reason in one word: by the diagnostic, else by the status code, else `undefined`."""
    text = " ".join(diagnostic[:_MAX_REASON_CHARS].split())
    by_status = _BY_STATUS.get(status[2:], "")
    if by_status == "mailbox_full" or (by_status in _DECISIVE and status[0] == "5"):
        return by_status
    reason = _reason_of(text, status) or by_status
    if reason == "user_unknown" and _is_pretext(status, f"{text} {transcript}"):
        return "filtered"
    return reason or ("expired" if EXPIRED.search(text) else "undefined")


@lru_cache(maxsize=32)
def _reason_of(text: str, status: str) -> str:
    if UNKNOWN_USER.search(text) and not SPAM.search(text):
        return "user_unknown"
    for reason, words in REASONS.items():
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
    transcript = transcript[: 4 * _MAX_REASON_CHARS]
    if _VAGUE.match(status) and AFTER_DATA.search(transcript):
        return True
    return bool(_POLICY.match(status)) and "rcpt" not in transcript.lower()


def verdict(
    address: str, *, action: str, status: str, diagnostic: str, reason: str
) -> ReportRecipient:
    """The outcome for one recipient. Only permanent failures of the address are hard."""
    is_final = action == "failed" and not status.startswith("4")
    return ReportRecipient(
        address=address,
        action=action,
        status=status,
        diagnostic=" ".join(diagnostic[:_MAX_REASON_CHARS].split())[:2_000],
        reason="delivered" if action in _DELIVERED else reason,
        hard=is_final and reason in _HARD,
    )


_DAEMONS, _SUBJECT = pattern(_DATA["daemons"]), pattern(_DATA["subject"])
_BODY = pattern(_DATA["body"])
_ORIGINAL = pattern(_DATA["original"], re.IGNORECASE | re.MULTILINE)
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,253}")
_STATUS = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]|\.\d)")
_MAX_CHARS = 50_000
_MAX_CONTEXT_CHARS = 5_000
_MAX_RECIPIENTS = 30


def is_bounce(fields: Fields, text: str) -> bool:
    """True if a mail system wrote this because a mail could not be delivered."""
    if "x-failed-recipients" in fields or "x-bounced-address" in fields:
        return True
    sender = fields.first("from") + fields.first("return-path")[:200]
    subject = decode_words(fields.first("subject"))[:200]
    if _DAEMONS.search(sender[:400]) or not fields.first("from").strip():
        return bool(_SUBJECT.search(subject) or _BODY.search(text[:_MAX_CHARS]))
    may_be = "x-mlserver" in fields or bool(_SUBJECT.match(subject))
    return may_be and bool(_BODY.search(text[:_MAX_CHARS]))


def notification(text: str) -> str:
    """The part of the text that the mail system wrote, without the mail it returns."""
    text = text[:_MAX_CHARS]
    original = _ORIGINAL.search(text)
    return text[: original.start()] if original and original.start() > 20 else text.strip()


def failed_addresses(fields: Fields, told: str) -> list[str]:
    """The recipients that the report names."""
    header = f"{fields.first('x-failed-recipients')} {fields.first('x-bounced-address')}"
    found = _ADDRESS.findall(header[:20_000])
    if not found:
        own = {address.lower() for address in _ADDRESS.findall(fields.first("to")[:2_000])}
        daemons = ("mailer-daemon@", "postmaster@")
        found = [
            address
            for address in _ADDRESS.findall(told)
            if address.lower() not in own and not address.lower().startswith(daemons)
        ]
    return list(dict.fromkeys(address.rstrip(".") for address in found))[:_MAX_RECIPIENTS]


def about_address(told: str, address: str) -> str:
    """What a notification says about one address: from there to the next address, or all."""
    start = told.lower().find(address.lower()) if address else -1
    if start < 0:
        return told[:_MAX_CONTEXT_CHARS]
    at = start + len(address)
    start = told.rfind("\n", 0, start) + 1
    end = min(len(told), at + _MAX_CONTEXT_CHARS)
    for other in _ADDRESS.finditer(told, at, end):
        if other[0].lower() != address.lower() and _opens_line(told, other.start()):
            return (
                told[start : other.start()]
                if other.start() - at > 40
                else told[:_MAX_CONTEXT_CHARS]
            )
    return told[start:end]


def _opens_line(told: str, at: int) -> bool:
    line = told.rfind("\n", 0, at) + 1
    return not told[line:at].strip(" \t<")


def find_status(diagnostic: str) -> str:
    """The enhanced status code (RFC 3463) that says most: the last one that is not general."""
    found: list[str] = _STATUS.findall(diagnostic[:_MAX_CHARS])
    telling = [status for status in found if not status.endswith(".0.0")]
    return (telling or found or [""])[-1]


_TYPE = re.compile(r'\s{0,9}\{\s{0,9}"notificationType"\s?:\s?"(Bounce|Complaint|Delivery)"')
# Read field by field: the JSON is wrapped in transit, and then it is no JSON any more.
_RECIPIENT = re.compile(r'\{\s{0,9}"emailAddress"\s?:\s?"([^"]{1,320})"([^{}]{0,2000})\}')
_FIELD = re.compile(r'"(action|status|diagnosticCode)"\s?:\s?"([^"]{0,1000})"')
_DELIVERED_TO = re.compile(r'"recipients"\s?:\s?\["([^"]{1,320})"')
_RESPONSE = re.compile(r'"smtpResponse"\s?:\s?"([^"]{0,500})"')
_MAX_NOTICE_CHARS = 100_000
_MAX_NOTICE_RECIPIENTS = 500


def read_cloud_notice(text: str) -> Report | None:
    """The report in an Amazon SES notification, None if the text is none."""
    kind = _TYPE.match(text[:200])
    if kind is None:
        return None
    text = text[:_MAX_NOTICE_CHARS]
    if kind[1] == "Complaint":
        return Report("feedback")
    if kind[1] == "Delivery":
        return Report("delivery", _delivered(text))
    found = [_bounced(match[1], match[2]) for match in _RECIPIENT.finditer(text)]
    return Report("delivery", tuple(found[:_MAX_NOTICE_RECIPIENTS]))


def _bounced(address: str, rest: str) -> ReportRecipient:
    fields = dict(_FIELD.findall(rest))
    diagnostic = fields.get("diagnosticCode", "")
    status = find_status(fields.get("status", "")) or find_status(diagnostic)
    reason = find_reason(diagnostic, status)
    action = fields.get("action", "failed")
    return verdict(address, action=action, status=status, diagnostic=diagnostic, reason=reason)


def _delivered(text: str) -> tuple[ReportRecipient, ...]:
    address, response = _DELIVERED_TO.search(text), _RESPONSE.search(text)
    said = response[1] if response else ""
    return (
        verdict(
            address[1] if address else "",
            action="delivered",
            status=find_status(said),
            diagnostic=said,
            reason="delivered",
        ),
    )
