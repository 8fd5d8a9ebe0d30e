"""Delivery reports: who did not get a mail, and why, in fields or in prose."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from postroom.mail.data import load, pattern
from postroom.mail.message import Report, ReportRecipient
from postroom.mail.mime.decoding import decode
from postroom.mail.mime.parts import Fields, split_header
from postroom.model.limits import Limits

_DATA = load("bounces")
_BY_STATUS: dict[str, str] = _DATA["by_status"]
REASONS: dict[str, re.Pattern[str]] = {
    reason: re.compile("|".join(parts), re.IGNORECASE) for reason, parts in _DATA["reasons"].items()
}
UNKNOWN_USER, SPAM = pattern(_DATA["unknown_user"]), pattern(_DATA["spam"])
EXPIRED = pattern(_DATA["expired"])
GIVEN_UP, ROUTING = pattern(_DATA["given_up"]), pattern(_DATA["routing"])
AFTER_DATA = re.compile(
    r"end of data|final data|>>> data\s{1,9}<<< [45]"
    r"|(?:command|cmd|phase|stage)\s?[:=]\s?\"?data\b",
    re.IGNORECASE,
)

# Codes that are more precise than the text that comes with them.
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
    if reason in ("host_unknown", "not_accepting") and GIVEN_UP.search(
        f"{text} {transcript[:_MAX_REASON_CHARS]}"
    ):
        return "expired"
    if reason == "user_unknown" and _hides_spam_rejection(status, f"{text} {transcript}"):
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
            # that a route is missing says nothing about the recipient
            return "" if reason == "user_unknown" and ROUTING.search(text) else reason
    return ""


def _hides_spam_rejection(status: str, transcript: str) -> bool:
    """Whether "user unknown" probably hides a spam rejection.

    It does if the server rejected after DATA, or if its status code is about policy and it did
    not reject at RCPT.
    """
    transcript = transcript[: 4 * _MAX_REASON_CHARS]
    if _VAGUE.match(status) and AFTER_DATA.search(transcript):
        return True
    return bool(_POLICY.match(status)) and "rcpt" not in transcript.lower()


def report_recipient(
    address: str, *, action: str, status: str, diagnostic: str, reason: str
) -> ReportRecipient:
    """The outcome for one recipient. Only permanent failures of the address are hard."""
    # 4.0.0 says nothing: Gmail reports domains that do not exist with it
    is_final = action == "failed" and (status == "4.0.0" or not status.startswith("4"))
    return ReportRecipient(
        address=address,
        action=action,
        status=status,
        diagnostic=" ".join(diagnostic[:_MAX_REASON_CHARS].split())[:2_000],
        reason="delivered" if action in _DELIVERED else reason,
        hard=is_final and reason in _HARD,
    )


_CONTACT = pattern(_DATA["contact"])
ORIGINAL = pattern(_DATA["original"], re.IGNORECASE | re.MULTILINE)
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,253}")
_STATUS = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]|\.\d)")
MAX_CHARS = 50_000
_MAX_CONTEXT_CHARS = 5_000
_MAX_ADDRESSES = 30
_WORD = re.compile(r"[^\W\d_]{4,}")
_RETURNED_TO = re.compile(r"^[ \t>]{0,9}to:([^\n]{1,2000})", re.IGNORECASE | re.MULTILINE)
_MAX_LINE_CHARS = 200


def text_before_original(text: str) -> str:
    """The part of the text that the mail system wrote, without the mail it returns."""
    text = text[:MAX_CHARS]
    original = ORIGINAL.search(text)
    return text[: original.start()] if original and original.start() > 20 else text.strip()


def failed_addresses(fields: Fields, notice_text: str, returned: str = "") -> list[str]:
    """The recipients that the report names, else those of the mail that it returns."""
    header = f"{fields.first('x-failed-recipients')} {fields.first('x-bounced-address')}"
    notice_recipients = {
        address.lower() for address in _ADDRESS.findall(fields.first("to")[:2_000])
    }
    found = _ADDRESS.findall(header[:20_000]) or _addresses_in(notice_text, notice_recipients)
    if not found and (to := _RETURNED_TO.search(returned[:MAX_CHARS])):
        found = _ADDRESS.findall(to[1])
    return list(dict.fromkeys(address.rstrip(".") for address in found))[:_MAX_ADDRESSES]


def _addresses_in(notice_text: str, notice_recipients: set[str]) -> list[str]:
    """The addresses of a notice, without the sender's and those of whom to ask."""
    found: list[str] = []
    helpers: list[str] = []
    for match in _ADDRESS.finditer(notice_text):
        address = match[0].lower()
        if address in notice_recipients or address.startswith(("mailer-daemon@", "postmaster@")):
            continue
        line = _line_before(notice_text, match.start()).lower()
        if "message-id" in line or "references" in line:
            continue
        (helpers if _CONTACT.search(line) else found).append(match[0])
    return found or helpers


def _line_before(notice_text: str, at: int) -> str:
    """The part of a line before a position, up to a limit."""
    first = max(0, at - _MAX_LINE_CHARS)
    return notice_text[max(notice_text.rfind("\n", first, at) + 1, first) : at]


def text_about_address(notice_text: str, address: str) -> str:
    """What a notification says about one address: from there to the next section, or all."""
    start = notice_text.lower().find(address.lower()) if address else -1
    if start < 0:
        return notice_text[:_MAX_CONTEXT_CHARS]
    at = start + len(address)
    start = notice_text.rfind("\n", 0, start) + 1
    end = min(len(notice_text), at + _MAX_CONTEXT_CHARS)
    for other in _ADDRESS.finditer(notice_text, at, end):
        if other[0].lower() != address.lower() and _opens_section(notice_text, other):
            said = notice_text[at : other.start()].rpartition("\n")[0]
            is_section = _WORD.search(said) is not None
            return (
                notice_text[start : other.start()]
                if is_section
                else notice_text[:_MAX_CONTEXT_CHARS]
            )
    return notice_text[start:end]


def _opens_section(notice_text: str, address: re.Match[str]) -> bool:
    """Whether an address begins a line, behind at most a bullet, punctuation or a label."""
    before = _line_before(notice_text, address.start()).strip(" \t<\"'([*#>•·-–—=+")
    if not before:
        return True
    after = notice_text[address.end() : address.end() + _MAX_LINE_CHARS].partition("\n")[0]
    is_label = before.endswith((":", "：")) and len(before.split()) <= 4 and len(before) <= 40
    return is_label and not after.strip(" \t\r\n>\"':;,.)]")


def _paragraph_before_address(notice_text: str, address: str) -> str:
    """The paragraph before the line of an address."""
    start = notice_text.lower().find(address.lower()) if address else -1
    if start <= 0:
        return ""
    line = notice_text.rfind("\n", 0, start) + 1
    above = notice_text[max(0, line - _MAX_CONTEXT_CHARS) : line].rstrip()
    paragraph = above.rfind("\n\n")
    return above[paragraph + 1 :] if above else ""


def find_status(diagnostic: str) -> str:
    """The enhanced status code (RFC 3463) that says most: the last one that is not general."""
    found: list[str] = _STATUS.findall(diagnostic[:MAX_CHARS])
    specific = [status for status in found if not status.endswith(".0.0")]
    return (specific or found or [""])[-1]


_TYPE = re.compile(r'\s{0,9}\{\s{0,9}"notificationType"\s?:\s?"(Bounce|Complaint|Delivery)"')
_WRAPPED_NOTICE = re.compile(
    r'\s{0,9}\{\s{0,9}"Type"[^{}]{0,2000}?"Message"\s{0,9}:\s{0,9}"(?=\{\\"notificationType)'
)
# Read field by field: the JSON is wrapped in transit, and then it is no JSON any more.
_RECIPIENT = re.compile(r'\{\s{0,9}"emailAddress"\s?:\s?"([^"]{1,320})"([^{}]{0,2000})\}')
_FIELD = re.compile(r'"(action|status|diagnosticCode)"\s?:\s?"([^"]{0,1000})"')
_DELIVERED_TO = re.compile(r'"recipients"\s?:\s?\["([^"]{1,320})"')
_RESPONSE = re.compile(r'"smtpResponse"\s?:\s?"([^"]{0,500})"')
_MAX_NOTICE_CHARS = 100_000
_MAX_NOTICE_RECIPIENTS = 500


def read_cloud_notice(text: str) -> Report | None:
    """The report in an Amazon SES notification; None for any other text."""
    text = text[:_MAX_NOTICE_CHARS]
    if wrapped := _WRAPPED_NOTICE.match(text):  # the text of an Amazon SNS message
        text = text[wrapped.end() :].replace('\\"', '"')
    kind = _TYPE.match(text[:200])
    if kind is None:
        return None
    if kind[1] == "Complaint":
        return Report("feedback")
    if kind[1] == "Delivery":
        return Report("delivery", _delivered_recipients(text))
    found = [_bounced_recipient(match[1], match[2]) for match in _RECIPIENT.finditer(text)]
    return Report("delivery", tuple(found[:_MAX_NOTICE_RECIPIENTS]))


def _bounced_recipient(address: str, rest: str) -> ReportRecipient:
    fields = dict(_FIELD.findall(rest))
    diagnostic = fields.get("diagnosticCode", "")
    status = find_status(fields.get("status", "")) or find_status(diagnostic)
    reason = find_reason(diagnostic, status)
    action = fields.get("action", "failed")
    return report_recipient(
        address, action=action, status=status, diagnostic=diagnostic, reason=reason
    )


def _delivered_recipients(text: str) -> tuple[ReportRecipient, ...]:
    address, response = _DELIVERED_TO.search(text), _RESPONSE.search(text)
    said = response[1] if response else ""
    to = address[1] if address else ""
    status = find_status(said)
    return (
        report_recipient(
            to, action="delivered", status=status, diagnostic=said, reason="delivered"
        ),
    )


_MAX_RECIPIENTS = 200
_MAX_GROUPS = 1_000
_BLANK_LINE = re.compile(rb"(?<=\n)(?:\r?\n)++")
_MACHINE_READABLE = re.compile(r"^(?:final|original)-recipient:", re.IGNORECASE | re.MULTILINE)
_QUOTE = re.compile(r"^>+ ?", re.MULTILINE)


def read_deliveries(
    fields: Fields,
    text: str,
    statuses: list[bytes],
    limits: Limits,
    *,
    charset: str = "",
    original: bytes = b"",
) -> tuple[ReportRecipient, ...]:
    """The recipients of the status parts, else those that the text mentions.

    `charset` is the one of the notice, which raw text in a status part is in too; `original` is
    the attached mail.
    """
    notice_text = text_before_original(text)
    decoded = [_status_in_utf8(content, charset) for content in statuses]
    found = [r for content in decoded for r in _recipients(content, notice_text, limits)]
    returned = text[len(notice_text) :] or original[:MAX_CHARS].decode("utf-8", "replace")
    found = found or _embedded_recipients(text, limits)
    found = found or _recipients_in_text(fields, notice_text, returned)
    return tuple(found[:_MAX_RECIPIENTS])


def _status_in_utf8(content: bytes, charset: str) -> bytes:
    """A status part in UTF-8; it must be ASCII, but some servers write their language."""
    if content.isascii() and b"\x1b" not in content:
        return content
    if b"\x1b$" in content or b"\x1b(" in content:
        return decode(content, "iso-2022-jp")[0].encode()
    try:
        content.decode()
    except UnicodeDecodeError:
        return decode(content, charset or None)[0].encode()
    return content


def _recipients(content: bytes, notice_text: str, limits: Limits) -> list[ReportRecipient]:
    """One group of fields per recipient, after one for the whole message (RFC 3464)."""
    found: list[ReportRecipient] = []
    for group in _BLANK_LINE.split(content.lstrip(), maxsplit=_MAX_GROUPS):
        fields = split_header(group, 0, len(group), limits=limits).fields
        if "final-recipient" in fields or "original-recipient" in fields:
            found.append(_recipient(fields, notice_text))
        if len(found) >= _MAX_RECIPIENTS:
            break
    return found


def _recipient(fields: Fields, notice_text: str) -> ReportRecipient:
    original = _address(fields.first("original-recipient"))
    address = _address(fields.first("final-recipient")) or original
    diagnostic = fields.first("diagnostic-code")
    diagnostic = diagnostic.partition(";")[2].strip() or diagnostic
    status = find_status(fields.first("status"))
    if not status or status.endswith(".0.0"):
        status = (
            find_status(diagnostic)
            or find_status(text_about_address(notice_text, address))
            or status
        )
    status = _agreed_status(status, diagnostic)
    reason = find_reason(diagnostic, status, notice_text) if diagnostic else "undefined"
    if reason == "undefined":
        reason = find_reason(text_about_address(notice_text, address), status, notice_text)
    if reason == "undefined":
        reason = find_reason(_paragraph_before_address(notice_text, address), status, notice_text)
    found = report_recipient(
        address,
        action=fields.first("action").partition(" ")[0].lower() or "failed",
        status=status,
        diagnostic=diagnostic,
        reason=reason,
    )
    return replace(found, original="" if original.lower() == address.lower() else original)


def _agreed_status(status: str, diagnostic: str) -> str:
    """The remote server's own code if its words agree with it, else the reporter's."""
    remote = find_status(diagnostic)
    if not remote or remote == status:
        return status
    said = _reason_of(" ".join(diagnostic[:_MAX_REASON_CHARS].split()), remote)
    return remote if said and said == _BY_STATUS.get(remote[2:]) else status


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


def _recipients_in_text(fields: Fields, notice_text: str, returned: str) -> list[ReportRecipient]:
    """What a report in prose says; each address with the words that follow it."""
    found = []
    for address in failed_addresses(fields, notice_text, returned) or [""]:
        about = text_about_address(notice_text, address)
        status = find_status(about)
        reason = find_reason(about, status, notice_text)
        for other in (_paragraph_before_address(notice_text, address), notice_text):
            if reason != "undefined":
                break
            status = status or find_status(other)
            reason = find_reason(other, status, notice_text)
        found.append(
            report_recipient(
                address, action="failed", status=status, diagnostic=about, reason=reason
            )
        )
    return found
