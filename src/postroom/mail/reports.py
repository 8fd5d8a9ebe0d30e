"""Mail about mail: delivery reports, complaints, receipts and automatic answers."""

from __future__ import annotations

import re
from typing import Literal

from postroom.mail.bounce_reasons import find_reason, verdict
from postroom.mail.bounces import (
    about_address,
    failed_addresses,
    find_status,
    is_bounce,
    notification,
)
from postroom.mail.cloud_notices import read_cloud_notice
from postroom.mail.headers import Fields, split_header
from postroom.mail.identifiers import parse_ids
from postroom.mail.machines import is_auto_reply
from postroom.mail.message import ParsedAttachment, Report, ReportRecipient
from postroom.model.limits import Limits

_MOST_RECIPIENTS = 500
_MACHINE_READABLE = re.compile(r"^(?:final|original)-recipient:", re.IGNORECASE | re.MULTILINE)
_QUOTE = re.compile(r"^>+ ?", re.MULTILINE)
_COMPLAINT = re.compile(r"\s{0,9}(?:complaint about message from|abuse report)", re.IGNORECASE)
_ID = re.compile(r"^[> \t]{0,9}message-id:\s{0,9}(<[^<>\s]{1,900}>)", re.IGNORECASE | re.MULTILINE)
_KINDS: dict[str, Literal["feedback", "disposition"]] = {
    "message/feedback-report": "feedback",
    "message/disposition-notification": "disposition",
}


def read_report(
    fields: Fields, text: str, attachments: list[ParsedAttachment], limits: Limits
) -> Report | None:
    """The report that a mail is, None if it is no report."""
    statuses = [a.content for a in attachments if a.content_type.endswith("delivery-status")]
    kinds = [_KINDS[a.content_type] for a in attachments if a.content_type in _KINDS]
    if statuses:
        told = notification(text)
        found = [r for content in statuses for r in _recipients(content, told, limits)]
        recipients = found or _told_recipients(fields, told)
        return Report("delivery", tuple(recipients), _original_id(attachments, text, limits))
    if kinds or _COMPLAINT.match(fields.first("subject")):
        kind = kinds[0] if kinds else "feedback"
        return Report(kind, (), _original_id(attachments, text, limits))
    if cloud := read_cloud_notice(text):
        return cloud
    if is_bounce(fields, text):
        recipients = _embedded_recipients(text, limits) or _told_recipients(
            fields, notification(text)
        )
        return Report("delivery", tuple(recipients), _original_id(attachments, text, limits))
    return Report("auto_reply") if is_auto_reply(fields) else None


def _original_id(attachments: list[ParsedAttachment], text: str, limits: Limits) -> str | None:
    """The Message-ID of the mail that the report is about."""
    for attachment in attachments:
        if attachment.content_type in ("message/rfc822", "text/rfc822-headers", "message/global"):
            content = attachment.content
            fields = split_header(content, 0, len(content), limits=limits).fields
            if ids := parse_ids(fields.first("message-id")):
                return ids[0]
    told = _ID.search(text)
    return parse_ids(told[1])[0] if told else None


def _recipients(content: bytes, told: str, limits: Limits) -> list[ReportRecipient]:
    """One group of fields per recipient, after one for the whole message (RFC 3464)."""
    found: list[ReportRecipient] = []
    at = 0
    while at < len(content) and len(found) < _MOST_RECIPIENTS:
        block = split_header(content, at, len(content), limits=limits)
        if "final-recipient" in block.fields or "original-recipient" in block.fields:
            found.append(_recipient(block.fields, told))
        at = max(block.body_start, at + 1)
    return found


def _recipient(fields: Fields, told: str) -> ReportRecipient:
    address = fields.first("final-recipient") or fields.first("original-recipient")
    address = address.partition(";")[2] or address
    bare = address.strip().strip("<>")
    diagnostic = fields.first("diagnostic-code")
    diagnostic = diagnostic.partition(";")[2].strip() or diagnostic
    action = fields.first("action").partition(" ")[0].lower()
    status = find_status(fields.first("status"))
    if not status or status.endswith(".0.0"):
        status = find_status(diagnostic) or find_status(about_address(told, bare)) or status
    reason = find_reason(diagnostic or about_address(told, bare), status, told)
    action = action or "failed"
    return verdict(bare, action=action, status=status, diagnostic=diagnostic, reason=reason)


def _embedded_recipients(text: str, limits: Limits) -> list[ReportRecipient]:
    """A machine-readable report that lost its MIME, or was forwarded."""
    unquoted = _QUOTE.sub("", text) if "\n>" in text else text
    start = _MACHINE_READABLE.search(unquoted)
    if start is None:
        return []
    block = unquoted[start.start() :].encode()
    return _recipients(block, unquoted[: start.start()], limits)


def _told_recipients(fields: Fields, told: str) -> list[ReportRecipient]:
    """What a report in prose says; each address with the words that follow it."""
    return [
        _told_recipient(address, about_address(told, address), told)
        for address in failed_addresses(fields, told) or [""]
    ]


def _told_recipient(address: str, about: str, told: str) -> ReportRecipient:
    status = find_status(about)
    reason = find_reason(about, status, told)
    return verdict(address, action="failed", status=status, diagnostic=about, reason=reason)
