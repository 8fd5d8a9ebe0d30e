"""Delivery notices that mail services send as JSON inside a mail."""

from __future__ import annotations

import re

from postroom.mail.bounce_reasons import find_reason, verdict
from postroom.mail.bounces import find_status
from postroom.mail.message import Report, ReportRecipient

_TYPE = re.compile(r'\s{0,9}\{\s{0,9}"notificationType"\s?:\s?"(Bounce|Complaint|Delivery)"')
# Read field by field: the JSON is wrapped in transit, and then it is no JSON any more.
_RECIPIENT = re.compile(r'\{\s{0,9}"emailAddress"\s?:\s?"([^"]{1,320})"([^{}]{0,2000})\}')
_FIELD = re.compile(r'"(action|status|diagnosticCode)"\s?:\s?"([^"]{0,1000})"')
_DELIVERED = re.compile(r'"recipients"\s?:\s?\["([^"]{1,320})"')
_RESPONSE = re.compile(r'"smtpResponse"\s?:\s?"([^"]{0,500})"')
_MOST = 100_000
_MOST_RECIPIENTS = 500


def read_cloud_notice(text: str) -> Report | None:
    """The report in an Amazon SES notification, None if the text is none."""
    kind = _TYPE.match(text[:200])
    if kind is None:
        return None
    text = text[:_MOST]
    if kind[1] == "Complaint":
        return Report("feedback")
    if kind[1] == "Delivery":
        return Report("delivery", _delivered(text))
    found = [_bounced(match[1], match[2]) for match in _RECIPIENT.finditer(text)]
    return Report("delivery", tuple(found[:_MOST_RECIPIENTS]))


def _bounced(address: str, rest: str) -> ReportRecipient:
    fields = dict(_FIELD.findall(rest))
    diagnostic = fields.get("diagnosticCode", "")
    status = find_status(fields.get("status", "")) or find_status(diagnostic)
    reason = find_reason(diagnostic, status)
    action = fields.get("action", "failed")
    return verdict(address, action=action, status=status, diagnostic=diagnostic, reason=reason)


def _delivered(text: str) -> tuple[ReportRecipient, ...]:
    address, response = _DELIVERED.search(text), _RESPONSE.search(text)
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
