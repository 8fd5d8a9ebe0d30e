"""Mail about mail: delivery reports, complaints, receipts and automatic answers."""

from __future__ import annotations

import re
from typing import Literal

from postroom.mail.bounces import is_bounce
from postroom.mail.headers import Fields, split_header
from postroom.mail.identifiers import parse_ids
from postroom.mail.machines import is_auto_reply
from postroom.mail.message import ParsedAttachment, Report
from postroom.model.limits import Limits

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
        from postroom.mail.cloud_notices import read_cloud_notice

        return read_cloud_notice(text)
    if statuses or is_bounce(fields, text):
        from postroom.mail.deliveries import read_deliveries

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
