"""Delivery failures told in prose: whose mail came back, and why."""

from __future__ import annotations

import re

from postroom.mail.headers import Fields
from postroom.mail.words import decode_words

_DAEMONS = re.compile(
    r"mailer-?daemon|postmaster@|mail-?daemon|mail delivery (?:sub)?system|maildaemon|<>|mdaemon"
    r"|delivery (?:service|notification|status)|mail administrator|double-bounce|mail system",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"undeliver(?:ed|able)|returned mail|delivery (?:status|failure|failed|has failed|report"
    r"|error|problem|notification|unsuccessful)|mail delivery|failure (?:notice|delivery)"
    r"|mail (?:system )?(?:error|failure)|non ?delivery|not delivered|could not be delivered"
    r"|unable to deliver|returned to sender|message (?:delayed|status|not delivered|you sent)"
    r"|warning: could not send|bounce|unzustellbar|non remis|no entregado|mancato recapito"
    r"|devuelto|zustellung|niet bezorgd|entrega|olevererbart|недостав|配信|送信できません|退信"
    r"|無法|受信拒否|mail undelivered|errors from|delivery$",
    re.IGNORECASE,
)
_BODY = re.compile(
    r"(?:could|can|was|were) ?n.t (?:be )?(?:deliver|able to deliver|reach)|could not be delivered"
    r"|cannot be delivered|unable to deliver|delivery .{0,60}fail|failed permanently|not delivered"
    r"|did not reach|following (?:address|recipient)|permanent (?:fatal )?error|error delivering"
    r"|undeliverable|returned (?:to sender|message)|user unknown|unknown user|failed to deliver"
    r"|transcript of session|has not been delivered|non remis|was not delivered|mailbox .{0,20}full"
    r"|rejected|expir|delivery to the following|original message follows|not a member"
    r"|duplicated message-id|mailbox exceeded|exceeded the local limit",
    re.IGNORECASE,
)
_ORIGINAL = re.compile(
    r"^[ \t>]{0,9}(?:-{1,30}[ \t]{0,9})?(?:this is a copy of|below this line is a copy|original m"
    r"|original mail|unsent message follows|message headers? follow|enclosed is a copy|returned"
    r" message|the (?:headers|body) of|copy of (?:the )?message|here is the message|message text"
    r" follows|attached is a copy|undelivered message|begin (?:message|returned)|included is a copy"
    r"|your message (?:was|follows)|return-path:|received: |-----original message|forwarded message"
    r"|the original message (?:is over|headers)|\*{3,9} original)",
    re.IGNORECASE | re.MULTILINE,
)
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,253}")
_STATUS = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]|\.\d)")
_MOST_CHARS = 50_000
_MOST_ABOUT = 5_000
_MOST_RECIPIENTS = 30


def is_bounce(fields: Fields, text: str) -> bool:
    """True if a mail system wrote this because a mail could not be delivered."""
    if "x-failed-recipients" in fields or "x-bounced-address" in fields:
        return True
    sender = fields.first("from") + fields.first("return-path")[:200]
    subject = decode_words(fields.first("subject"))[:200]
    if _DAEMONS.search(sender[:400]) or not fields.first("from").strip():
        return bool(_SUBJECT.search(subject) or _BODY.search(text[:_MOST_CHARS]))
    may_be = "x-mlserver" in fields or bool(_SUBJECT.match(subject))
    return may_be and bool(_BODY.search(text[:_MOST_CHARS]))


def notification(text: str) -> str:
    """The part of the text that the mail system wrote, without the mail it returns."""
    text = text[:_MOST_CHARS]
    original = _ORIGINAL.search(text)
    return text[: original.start()] if original and original.start() > 20 else text.strip()


def failed_addresses(fields: Fields, told: str) -> list[str]:
    """Who did not get the mail, as far as it says."""
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
    return list(dict.fromkeys(address.rstrip(".") for address in found))[:_MOST_RECIPIENTS]


def about_address(told: str, address: str) -> str:
    """What a notification says about one address: from there to the next address, or all."""
    start = told.lower().find(address.lower()) if address else -1
    if start < 0:
        return told[:_MOST_ABOUT]
    at = start + len(address)
    start = told.rfind("\n", 0, start) + 1
    end = min(len(told), at + _MOST_ABOUT)
    for other in _ADDRESS.finditer(told, at, end):
        if other[0].lower() != address.lower() and _opens_line(told, other.start()):
            return told[start : other.start()] if other.start() - at > 40 else told[:_MOST_ABOUT]
    return told[start:end]


def _opens_line(told: str, at: int) -> bool:
    line = told.rfind("\n", 0, at) + 1
    return not told[line:at].strip(" \t<")


def find_status(diagnostic: str) -> str:
    """The enhanced status code (RFC 3463) that says most: the last one that is not general."""
    found: list[str] = _STATUS.findall(diagnostic[:_MOST_CHARS])
    telling = [status for status in found if not status.endswith(".0.0")]
    return (telling or found or [""])[-1]
