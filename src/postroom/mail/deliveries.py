"""What became of a mail for each of its recipients, by machine-readable report or in prose."""

from __future__ import annotations

import re
from dataclasses import replace

from postroom.mail.bounce_reasons import find_reason, verdict
from postroom.mail.bounces import about_address, failed_addresses, find_status, notification
from postroom.mail.headers import Fields, split_header
from postroom.mail.message import ReportRecipient
from postroom.model.limits import Limits

_MOST_RECIPIENTS = 200
_MOST_GROUPS = 1_000
_BLANK_LINE = re.compile(rb"(?<=\n)(?:\r?\n)++")
_MACHINE_READABLE = re.compile(r"^(?:final|original)-recipient:", re.IGNORECASE | re.MULTILINE)
_QUOTE = re.compile(r"^>+ ?", re.MULTILINE)


def read_deliveries(
    fields: Fields, text: str, statuses: list[bytes], limits: Limits
) -> tuple[ReportRecipient, ...]:
    """The recipients of the status parts, else those that the text tells of."""
    told = notification(text)
    found = [r for content in statuses for r in _recipients(content, told, limits)]
    found = found or _embedded_recipients(text, limits) or _told_recipients(fields, told)
    return tuple(found[:_MOST_RECIPIENTS])


def _recipients(content: bytes, told: str, limits: Limits) -> list[ReportRecipient]:
    """One group of fields per recipient, after one for the whole message (RFC 3464)."""
    found: list[ReportRecipient] = []
    for group in _BLANK_LINE.split(content.lstrip(), maxsplit=_MOST_GROUPS):
        fields = split_header(group, 0, len(group), limits=limits).fields
        if "final-recipient" in fields or "original-recipient" in fields:
            found.append(_recipient(fields, told))
        if len(found) >= _MOST_RECIPIENTS:
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
