"""Mail that programs write: automatic replies, lists and reports."""

from __future__ import annotations

import re
from typing import Literal

from postroom.mail.bounces import (
    MAX_CHARS,
    ORIGINAL,
    read_cloud_notice,
    read_deliveries,
    text_before_original,
)
from postroom.mail.data import load, pattern
from postroom.mail.message import ParsedAttachment, Report, decoded_pairs, parse_ids
from postroom.mail.mime.decoding import decode_words
from postroom.mail.mime.parts import Fields, split_header
from postroom.mail.quoting import split_reply
from postroom.mail.senders import is_own_forward
from postroom.mail.text.prefilter import prefilter
from postroom.model.limits import Limits
from postroom.model.rule import HeaderFacts

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


def read_header_facts(
    raw: bytes, limits: Limits = _DEFAULT_LIMITS, rule_key: bytes = b""
) -> HeaderFacts:
    """What the beginning of a mail says; the rest need not be there."""
    fields = split_header(raw, 0, len(raw), limits=limits).fields
    kind = fields.first("content-type").strip().lower()
    headers = decoded_pairs(fields)
    return HeaderFacts(
        headers=headers,
        list_id=list_id(fields),
        is_automatic=is_auto_submitted(fields),
        is_report=kind.startswith("multipart/report") or is_auto_reply(fields),
        is_ours=is_own_forward(rule_key, headers),
    )


_COMPLAINT = re.compile(r"\s{0,9}(?:complaint about message from|abuse report)", re.IGNORECASE)
_CLOUD_NOTICE = re.compile(r"\s{0,9}\{\s{0,9}\"(?:notificationType|Type)\"")
_ID = re.compile(r"^[> \t]{0,9}message-id:\s{0,9}(<[^<>\s]{1,900}>)", re.IGNORECASE | re.MULTILINE)
_KINDS: dict[str, Literal["feedback", "disposition"]] = {
    "message/feedback-report": "feedback",
    "message/disposition-notification": "disposition",
}
_ORIGINALS = ("message/rfc822", "text/rfc822-headers", "message/global")


_BOUNCES = load("bounces")
_DAEMONS, _SUBJECT = pattern(_BOUNCES["daemons"]), pattern(_BOUNCES["subject"])
_BODY, _FAILURE = pattern(_BOUNCES["body"]), pattern(_BOUNCES["failure"])
_may_be_daemon = prefilter(_DAEMONS.pattern)
_FAILED_LABEL = pattern(_BOUNCES["failed_label"], re.IGNORECASE | re.MULTILINE)
_may_have_label = prefilter(_FAILED_LABEL.pattern)
_MAY_BE_REPLY = re.compile(r"[45](?:[0-5]\d[ -]|\.[0-7]\.\d)")
_SMTP_REPLY = re.compile(
    r"(?:^[\s>*-]{0,9}|[:(<\[\"'>=]\s{0,3}|\b(?:said|reply|response|error|code|smtp|status|reason|returned)\W{1,3})"
    r"[45][0-5]\d[ -](?:#?[45]\.\d{1,3}\.\d{1,3}\b|[^\d\s.,;%$€°]{2,})"
    r"|(?<![\d.v-])[45]\.[0-7]\.\d{1,3}(?![\d.-])|(?<!\d)[45][0-5]\d[ -]#?[45]\.\d\.\d{1,3}\b",
    re.MULTILINE | re.IGNORECASE,
)
_MAX_TOP_CHARS = 4_000
_MAX_OPENING_CHARS = 500
_NEAR_CHARS = 600


def is_bounce(fields: Fields, text: str, *, has_original: bool = False) -> bool:
    """True if a mail system wrote this because a mail could not be delivered.

    `has_original` says that a mail is attached.
    """
    if "x-failed-recipients" in fields or "x-bounced-address" in fields:
        return True
    sender = fields.first("from") + fields.first("return-path")[:200]
    subject = decode_words(fields.first("subject"))[:200]
    is_daemon = _may_be_daemon(sender[:400]) and _DAEMONS.search(sender[:400])
    if is_daemon or not fields.first("from").strip():
        found = _SUBJECT.search(subject) or _BODY.search(text[:MAX_CHARS])
        return bool(found or _FAILURE.search(text[:_MAX_TOP_CHARS]))
    if "x-mlserver" in fields and _BODY.search(text[:MAX_CHARS]):
        return True
    if (
        _SUBJECT.match(subject)
        and _BODY.search(text[:MAX_CHARS])
        and (has_original or is_auto_submitted(fields) or _has_refusal(text[:MAX_CHARS]))
    ):
        return True
    is_list = "list-id" in fields or "x-mailing-list" in fields
    return not is_list and _reports_failure(text, has_original=has_original)


def _reports_failure(text: str, *, has_original: bool) -> bool:
    """Whether the mail's own words, not quoted ones, say that a server refused a mail."""
    top = text[:_MAX_TOP_CHARS]
    is_returned = has_original or (
        "eceived:" in text[:MAX_CHARS] and ORIGINAL.search(text[:MAX_CHARS]) is not None
    )
    if not is_returned and not _has_refusal(top):
        return False
    if not _FAILURE.search(top):
        return False
    own = split_reply(text_before_original(text)[:_MAX_TOP_CHARS]).new_text
    failure = _FAILURE.search(own[: _MAX_TOP_CHARS // 2])
    if failure is None:
        return False
    near = own[max(failure.start() - _NEAR_CHARS, 0) : failure.end() + _NEAR_CHARS]
    return _has_refusal(near) or (is_returned and failure.start() < _MAX_OPENING_CHARS)


def _has_refusal(text: str) -> bool:
    """Whether there are an address and a server's reply, or a failed address with its label."""
    if "@" not in text:
        return False
    if _MAY_BE_REPLY.search(text) and _SMTP_REPLY.search(text):
        return True
    return _may_have_label(text) and _FAILED_LABEL.search(text) is not None


def read_report(
    fields: Fields,
    text: str,
    attachments: list[ParsedAttachment],
    limits: Limits,
    *,
    charset: str = "",
) -> Report | None:
    """The report that a mail is, None if it is no report.

    The vocabulary of mail servers is large, and only loaded for mail that is one.
    """
    statuses = [a.content for a in attachments if a.content_type.endswith("delivery-status")]
    kinds = [_KINDS[a.content_type] for a in attachments if a.content_type in _KINDS]
    if not statuses and (kinds or _COMPLAINT.match(fields.first("subject"))):
        kind = kinds[0] if kinds else "feedback"
        return Report(kind, (), _original_id(attachments, text, limits))
    if _CLOUD_NOTICE.match(text) and (notice := read_cloud_notice(text)):
        return notice
    originals = [a.content for a in attachments if a.content_type in _ORIGINALS]
    if statuses or is_bounce(fields, text, has_original=bool(originals)):
        original = originals[0] if originals else b""
        recipients = read_deliveries(
            fields, text, statuses, limits, charset=charset, original=original
        )
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
