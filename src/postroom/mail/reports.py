"""Delivery reports: which mail failed, for whom, and whether for good (RFC 3464)."""

from __future__ import annotations

import re

from postroom.mail.charsets import guess
from postroom.mail.headers import Fields, split_header
from postroom.mail.identifiers import parse_ids
from postroom.mail.message import ParsedAttachment, Report, ReportRecipient
from postroom.model.limits import Limits

_STATUS = re.compile(r"(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])")
_REPLY_CODE = re.compile(r"(?<![\d.-])([245]\d\d)(?=[\s-])")
_MOST_RECIPIENTS = 500


def read_report(
    fields: Fields, attachments: list[ParsedAttachment], limits: Limits
) -> Report | None:
    """The report that a mail is, None if it is no report."""
    status = _of_type(attachments, "message/delivery-status", "message/global-delivery-status")
    if status is not None:
        recipients = _recipients(status.content, limits)
        return Report("delivery", recipients, _original_id(attachments, limits))
    if _of_type(attachments, "message/feedback-report") is not None:
        return Report("feedback", (), _original_id(attachments, limits))
    if _of_type(attachments, "message/disposition-notification") is not None:
        return Report("disposition", (), _original_id(attachments, limits))
    return None


def _of_type(attachments: list[ParsedAttachment], *types: str) -> ParsedAttachment | None:
    return next((a for a in attachments if a.content_type in types), None)


def _original_id(attachments: list[ParsedAttachment], limits: Limits) -> str | None:
    original = _of_type(attachments, "message/rfc822", "text/rfc822-headers", "message/global")
    if original is None:
        return None
    fields = split_header(original.content, 0, len(original.content), limits=limits).fields
    ids = parse_ids(fields.first("message-id"))
    return ids[0] if ids else None


def _recipients(content: bytes, limits: Limits) -> tuple[ReportRecipient, ...]:
    """One group of fields per recipient, after one for the whole message."""
    found: list[ReportRecipient] = []
    at = 0
    while at < len(content) and len(found) < _MOST_RECIPIENTS:
        block = split_header(content, at, len(content), limits=limits)
        if "final-recipient" in block.fields or "original-recipient" in block.fields:
            found.append(_recipient(block.fields))
        at = max(block.body_start, at + 1)
    return tuple(found)


def _recipient(fields: Fields) -> ReportRecipient:
    address = fields.first("final-recipient") or fields.first("original-recipient")
    address = address.partition(";")[2] or address
    action = fields.first("action").lower()
    diagnostic = fields.first("diagnostic-code")
    diagnostic = diagnostic.partition(";")[2].strip() or diagnostic
    match = _STATUS.search(fields.first("status")) or _STATUS.search(diagnostic)
    status = match[0] if match else ""
    return ReportRecipient(
        address=address.strip().strip("<>"),
        action=action,
        status=status,
        diagnostic=guess(diagnostic.encode()),
        hard=status.startswith("5") if status else None,
    )
