"""Mail that programs write: automatic replies, lists, bounces and delivery reports."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from postroom.mail.data import load, pattern
from postroom.mail.header_values import parse_ids
from postroom.mail.message import ParsedAttachment, Report, ReportRecipient
from postroom.mail.mime.decoding import decode_words
from postroom.mail.mime.parts import Fields, decoded_pairs, split_header
from postroom.mail.rule_marks import is_own_forward
from postroom.model.limits import Limits
from postroom.model.rule import Head

_NAMES = load("headers")
_VACATION_HEADERS, _LIST_HEADERS = frozenset(_NAMES["vacation"]), frozenset(_NAMES["list"])
_MACHINE_HEADERS = _VACATION_HEADERS.union(_NAMES["machine"])
_VACATION = pattern(load("subjects")["vacation"])
_COMMENT = re.compile(r"\([^()]{0,998}\)")
_DAEMON = re.compile(r"(?:^|[<\s\"])mailer-daemon@", re.IGNORECASE)
_LIST_ID = re.compile(r"<([^<>\s]{1,255})>")
_TARGET = re.compile(r"<\s{0,9}((?:https?|mailto):[^<>\s]{1,2000})\s{0,9}>", re.IGNORECASE)


def is_auto_submitted(fields: Fields) -> bool:
    """Whether a program sent it, so that an automatic reply could loop (RFC 3834).

    `X-Auto-Response-Suppress` is no proof: programs set it on mail that people write.
    """
    if _auto_submitted(fields) not in ("", "no"):
        return True
    if _DAEMON.search(fields.first("from")[:998]) or fields.first("return-path").strip() == "<>":
        return True
    if fields.first("precedence").strip().lower() in ("bulk", "list", "junk", "auto_reply"):
        return True
    if _VACATION.match(decode_words(fields.first("subject"))[:200]):
        return True
    names = fields.names()
    return not _MACHINE_HEADERS.isdisjoint(names) or any(n.startswith("list-") for n in names)


def _auto_submitted(fields: Fields) -> str:
    """The keyword of the field, without comments and parameters (RFC 3834 §5)."""
    return _COMMENT.sub("", fields.first("auto-submitted")).partition(";")[0].strip().lower()


def is_auto_reply(fields: Fields) -> bool:
    """True if it is an out-of-office note or another automatic answer."""
    if _auto_submitted(fields) in ("auto-replied", "auto-notified"):
        return True
    if _VACATION_HEADERS & fields.names():
        return True
    return bool(_VACATION.match(decode_words(fields.first("subject"))[:200]))


def is_list_mail(fields: Fields) -> bool:
    """True if a list passed it on; then Reply-To and Sender are the list's business."""
    if not _LIST_HEADERS.isdisjoint(fields.names()):
        return True
    return fields.first("precedence").strip().lower() in ("bulk", "list")


def list_id(fields: Fields) -> str | None:
    """The identifier of the mailing list, without its description (RFC 2919)."""
    value = decode_words(fields.first("list-id"))
    match = _LIST_ID.search(value)
    return (match[1] if match else value.strip()[:255]) or None


def list_unsubscribe(fields: Fields) -> tuple[str, ...]:
    """Where to unsubscribe, in the list's order of preference (RFC 2369)."""
    return tuple(_TARGET.findall(fields.first("list-unsubscribe")))[:10]


_DEFAULT_LIMITS = Limits()


def read_head(raw: bytes, limits: Limits = _DEFAULT_LIMITS, rule_key: bytes = b"") -> Head:
    """What the beginning of a mail says; the rest need not be there."""
    fields = split_header(raw, 0, len(raw), limits=limits).fields
    kind = fields.first("content-type").strip().lower()
    headers = tuple(decoded_pairs(fields))
    return Head(
        headers=headers,
        list_id=list_id(fields),
        is_automatic=is_auto_submitted(fields),
        is_report=kind.startswith("multipart/report") or is_auto_reply(fields),
        is_ours=is_own_forward(rule_key, headers),
    )


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
_MAX_NAMED = 30


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
    return list(dict.fromkeys(address.rstrip(".") for address in found))[:_MAX_NAMED]


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
            is_far = other.start() - at > 40
            return told[start : other.start()] if is_far else told[:_MAX_CONTEXT_CHARS]
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
    to = address[1] if address else ""
    status = find_status(said)
    return (verdict(to, action="delivered", status=status, diagnostic=said, reason="delivered"),)


_MAX_RECIPIENTS = 200
_MAX_GROUPS = 1_000
_BLANK_LINE = re.compile(rb"(?<=\n)(?:\r?\n)++")
_MACHINE_READABLE = re.compile(r"^(?:final|original)-recipient:", re.IGNORECASE | re.MULTILINE)
_QUOTE = re.compile(r"^>+ ?", re.MULTILINE)


def read_deliveries(
    fields: Fields, text: str, statuses: list[bytes], limits: Limits
) -> tuple[ReportRecipient, ...]:
    """The recipients of the status parts, else those that the text tells of."""
    told = notification(text)
    found = [r for content in statuses for r in _recipients(content, told, limits)]
    found = found or _embedded_recipients(text, limits) or _recipients_in_text(fields, told)
    return tuple(found[:_MAX_RECIPIENTS])


def _recipients(content: bytes, told: str, limits: Limits) -> list[ReportRecipient]:
    """One group of fields per recipient, after one for the whole message (RFC 3464)."""
    found: list[ReportRecipient] = []
    for group in _BLANK_LINE.split(content.lstrip(), maxsplit=_MAX_GROUPS):
        fields = split_header(group, 0, len(group), limits=limits).fields
        if "final-recipient" in fields or "original-recipient" in fields:
            found.append(_recipient(fields, told))
        if len(found) >= _MAX_RECIPIENTS:
            break
    return found


def _recipient(fields: Fields, told: str) -> ReportRecipient:
    original = _address(fields.first("original-recipient"))
    address = _address(fields.first("final-recipient")) or original
    diagnostic = fields.first("diagnostic-code")
    diagnostic = diagnostic.partition(";")[2].strip() or diagnostic
    status = find_status(fields.first("status"))
    if not status or status.endswith(".0.0"):
        status = find_status(diagnostic) or find_status(about_address(told, address)) or status
    found = verdict(
        address,
        action=fields.first("action").partition(" ")[0].lower() or "failed",
        status=status,
        diagnostic=diagnostic,
        reason=find_reason(diagnostic or about_address(told, address), status, told),
    )
    return replace(found, original="" if original.lower() == address.lower() else original)


def _address(value: str) -> str:
    """An address without its type (RFC 3464 §2.3)."""
    return (value.partition(";")[2] or value).strip().strip("<>")


def _embedded_recipients(text: str, limits: Limits) -> list[ReportRecipient]:
    """A machine-readable report that lost its MIME, or was forwarded."""
    unquoted = _QUOTE.sub("", text) if "\n>" in text else text
    start = _MACHINE_READABLE.search(unquoted)
    if start is None:
        return []
    block = unquoted[start.start() :].encode()
    return _recipients(block, unquoted[: start.start()], limits)


def _recipients_in_text(fields: Fields, told: str) -> list[ReportRecipient]:
    """What a report in prose says; each address with the words that follow it."""
    found = []
    for address in failed_addresses(fields, told) or [""]:
        about = about_address(told, address)
        status = find_status(about)
        reason = find_reason(about, status, told)
        found.append(
            verdict(address, action="failed", status=status, diagnostic=about, reason=reason)
        )
    return found


_COMPLAINT = re.compile(r"\s{0,9}(?:complaint about message from|abuse report)", re.IGNORECASE)
_CLOUD_NOTICE = re.compile(r"\s{0,9}\{\s{0,9}\"notificationType\"")
_ID = re.compile(r"^[> \t]{0,9}message-id:\s{0,9}(<[^<>\s]{1,900}>)", re.IGNORECASE | re.MULTILINE)
_KINDS: dict[str, Literal["feedback", "disposition"]] = {
    "message/feedback-report": "feedback",
    "message/disposition-notification": "disposition",
}
_ORIGINALS = ("message/rfc822", "text/rfc822-headers", "message/global")


def read_report(
    fields: Fields, text: str, attachments: list[ParsedAttachment], limits: Limits
) -> Report | None:
    """The report that a mail is, None if it is no report.

    The vocabulary of mail servers is large, and only loaded for mail that is one.
    """
    statuses = [a.content for a in attachments if a.content_type.endswith("delivery-status")]
    kinds = [_KINDS[a.content_type] for a in attachments if a.content_type in _KINDS]
    if not statuses and (kinds or _COMPLAINT.match(fields.first("subject"))):
        kind = kinds[0] if kinds else "feedback"
        return Report(kind, (), _original_id(attachments, text, limits))
    if _CLOUD_NOTICE.match(text):
        return read_cloud_notice(text)
    if statuses or is_bounce(fields, text):
        recipients = read_deliveries(fields, text, statuses, limits)
        return Report("delivery", recipients, _original_id(attachments, text, limits))
    return Report("auto_reply") if is_auto_reply(fields) else None


def _original_id(attachments: list[ParsedAttachment], text: str, limits: Limits) -> str | None:
    """The Message-ID of the mail that the report is about."""
    for attachment in attachments:
        if attachment.content_type in _ORIGINALS:
            content = attachment.content
            fields = split_header(content, 0, len(content), limits=limits).fields
            if ids := parse_ids(fields.first("message-id")):
                return ids[0]
    told = _ID.search(text)
    return parse_ids(told[1])[0] if told else None
