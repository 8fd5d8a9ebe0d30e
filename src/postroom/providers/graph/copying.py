"""A sent mail as Graph takes it for a folder: JSON, because MIME always becomes a draft.

Properties: https://learn.microsoft.com/en-us/office/client-developer/outlook/mapi/mapi-properties
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage, Message
from email.parser import BytesParser
from typing import Any

from postroom.providers.graph.parting import File, contents_of, file_of

_READ_AND_SENT = "1"
"""PidTagMessageFlags: read, and without the 8 of what was not sent yet."""

_TEXTS = (("In-Reply-To", "String 0x1042"), ("References", "String 0x1039"))
_TIMES = ("SystemTime 0x0039", "SystemTime 0x0E06")


@dataclass(frozen=True, slots=True)
class Copy:
    """A mail that was sent: what is said of it, and its files."""

    message: dict[str, Any]
    files: tuple[File, ...]

    def with_files(self) -> dict[str, Any]:
        """The mail with its files in it, for one request."""
        return {**self.message, "attachments": [_attachment(file) for file in self.files]}


def copy_of(raw: bytes) -> Copy:
    """What Graph keeps of a mail; of a text and its HTML version it takes one. Raises Unparted."""
    mail = BytesParser(EmailMessage, policy=policy.default).parsebytes(raw)
    body = mail.get_body(("html", "plain"))
    shown = [body, mail.get_body(("plain",))]
    leaves = list(_leaves(mail))
    found = zip(leaves, contents_of(raw, leaves), strict=True)
    files = [(part, held) for part, held in found if not any(part is one for one in shown)]
    message = {
        "subject": str(mail["Subject"] or ""),
        "body": _body(body),
        "internetMessageId": str(mail["Message-ID"] or "").strip(),
        "isRead": True,
        "singleValueExtendedProperties": _properties(mail),
        **_people(mail),
    }
    return Copy(message, tuple(_file(n, part, held) for n, (part, held) in enumerate(files)))


def _leaves(part: Message) -> Iterator[Message]:
    """The parts that hold something; a mail inside of a mail is one of them."""
    if part.get_content_maintype() != "multipart":
        yield part
        return
    for inner in part.get_payload():
        if isinstance(inner, Message):
            yield from _leaves(inner)


def _body(part: Any) -> dict[str, str]:
    if part is None:
        return {"contentType": "text", "content": ""}
    kind = "html" if part.get_content_subtype() == "html" else "text"
    return {"contentType": kind, "content": part.get_content()}


def _people(mail: EmailMessage) -> dict[str, Any]:
    sender = _addresses(mail, "From")[:1]
    found: dict[str, Any] = {"from": sender[0], "sender": sender[0]} if sender else {}
    for header, name in (
        ("To", "toRecipients"),
        ("Cc", "ccRecipients"),
        ("Bcc", "bccRecipients"),
        ("Reply-To", "replyTo"),
    ):
        found[name] = _addresses(mail, header)
    return found


def _addresses(mail: EmailMessage, header: str) -> list[dict[str, Any]]:
    found = getattr(mail[header], "addresses", ())
    return [{"emailAddress": {"name": one.display_name, "address": one.addr_spec}} for one in found]


def _properties(mail: EmailMessage) -> list[dict[str, str]]:
    texts = [{"id": key, "value": str(mail[name])} for name, key in _TEXTS if mail[name]]
    at: datetime | None = getattr(mail["Date"], "datetime", None)
    moment = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
    times = [{"id": key, "value": moment} for key in _TIMES if moment]
    return [{"id": "Integer 0x0E07", "value": _READ_AND_SENT}, *texts, *times]


def _file(number: int, part: Message, content: bytes) -> File:
    content_id = str(part["Content-ID"] or "").strip("<> ")
    is_shown = part.get_content_disposition() != "attachment"
    return file_of(part, number, content, content_id if is_shown else "")


def _attachment(file: File) -> dict[str, Any]:
    inline = {"isInline": True, "contentId": file.content_id} if file.content_id else {}
    return {
        "@odata.type": "#microsoft.graph.fileAttachment",
        "name": file.name,
        "contentType": file.content_type,
        "contentBytes": b64encode(file.content).decode(),
        **inline,
    }
