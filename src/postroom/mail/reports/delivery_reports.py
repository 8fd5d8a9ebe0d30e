"""Delivery reports, complaints, receipts and automatic answers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from postroom.mail.identifiers import parse_ids
from postroom.mail.message import ParsedAttachment, Report, ReportRecipient
from postroom.mail.mime.headers import Fields, split_header
from postroom.mail.reports.auto_generated import is_auto_reply
from postroom.mail.reports.bounces import (
    about_address,
    failed_addresses,
    find_reason,
    find_status,
    is_bounce,
    notification,
    verdict,
)
from postroom.model.limits import Limits

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
    return [
        _recipient_of(address, about_address(told, address), told)
        for address in failed_addresses(fields, told) or [""]
    ]


def _recipient_of(address: str, about: str, told: str) -> ReportRecipient:
    status = find_status(about)
    reason = find_reason(about, status, told)
    return verdict(address, action="failed", status=status, diagnostic=about, reason=reason)


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
        from postroom.mail.reports.bounces import read_cloud_notice

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
