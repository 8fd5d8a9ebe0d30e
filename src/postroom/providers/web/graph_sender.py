"""Sending over Microsoft Graph: large attachments, and the copy in Sent Items."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage, Message
from email.parser import BytesParser
from typing import Any

from postroom.blocking import in_thread
from postroom.errors import ProviderError
from postroom.mail.compose import OutgoingAttachment
from postroom.mail.mime.parts import Part, Splitter
from postroom.model.limits import Limits
from postroom.model.mail.sending import Envelope, Outcome
from postroom.providers.web.graph_client import SINGLE_REQUEST_BYTES, GraphClient
from postroom.providers.web_sender import BeforeSubmit, WebSender, message_id_of, with_bcc


def file_properties(file: OutgoingAttachment) -> dict[str, Any]:
    """The properties of an attachment; one with a content id is shown by the HTML."""
    inline = {"isInline": True, "contentId": file.content_id} if file.content_id else {}
    return {"name": file.filename, "contentType": file.content_type, **inline}


class AmbiguousParts(ProviderError):
    """Two parsers disagree about the parts of a mail, so it is not sent in parts."""

    retryable = False


def split_attachments(raw: bytes) -> tuple[bytes, list[OutgoingAttachment]]:
    """A mail without its top-level attachments, and these. Raises AmbiguousParts."""
    mail = BytesParser(policy=policy.compat32).parsebytes(raw)
    files: list[OutgoingAttachment] = []
    if mail.get_content_type() == "multipart/mixed":
        parts = [part for part in mail.get_payload() if isinstance(part, Message)]
        contents = _contents(parts, _split(raw).children)
        for number, (part, content) in enumerate(zip(parts, contents, strict=True)):
            if _is_attachment(part):
                files.append(_file(part, number, content))
        mail.set_payload(list[Any]([part for part in parts if not _is_attachment(part)]))
    return mail.as_bytes(policy=policy.compat32), files


def _is_attachment(part: Message) -> bool:
    return part.get_content_disposition() == "attachment"


def _file(part: Message, number: int, content: bytes, content_id: str = "") -> OutgoingAttachment:
    name = part.get_filename() or f"attachment-{number}"
    return OutgoingAttachment(name, part.get_content_type(), content, content_id)


def _contents(parts: Sequence[Message], found: Sequence[Part]) -> list[bytes]:
    # `email` loses the bytes of an attached mail, so `Splitter` reads the contents.
    if len(parts) != len(found):
        raise AmbiguousParts("the parts of this mail are ambiguous; send its files one by one")
    return [part.decoded() for part in found]


def _split(raw: bytes) -> Part:
    return Splitter(raw, Limits()).read_part(0, len(raw), depth=0)


def _leaves(part: Part) -> Iterator[Part]:
    if not part.content_type.startswith("multipart/"):
        yield part
    for inner in part.children:
        yield from _leaves(inner)


_READ_AND_SENT = "1"
"""PidTagMessageFlags: read (1), and not unsent (8)."""

_TEXT_PROPERTIES = (("In-Reply-To", "String 0x1042"), ("References", "String 0x1039"))
_TIME_PROPERTIES = ("SystemTime 0x0039", "SystemTime 0x0E06")
_RECIPIENTS = {
    "To": "toRecipients",
    "Cc": "ccRecipients",
    "Bcc": "bccRecipients",
    "Reply-To": "replyTo",
}


@dataclass(frozen=True, slots=True)
class SentCopy:
    """A sent mail as Graph stores it: its properties, and its files."""

    message: dict[str, Any]
    files: tuple[OutgoingAttachment, ...]

    def with_files(self) -> dict[str, Any]:
        """The mail with its files, for a single request."""
        kind = {"@odata.type": "#microsoft.graph.fileAttachment"}
        attachments = [
            {**kind, **file_properties(file), "contentBytes": b64encode(file.content).decode()}
            for file in self.files
        ]
        return {**self.message, "attachments": attachments}


def sent_copy(raw: bytes) -> SentCopy:
    """A mail as Graph stores it, with one body: HTML if there is one. Raises AmbiguousParts."""
    mail = BytesParser(EmailMessage, policy=policy.default).parsebytes(raw)
    body: Any = mail.get_body(("html", "plain"))
    shown = [body, mail.get_body(("plain",))]
    is_html = body is not None and body.get_content_subtype() == "html"
    leaves = list(_parsed_leaves(mail))
    contents = _contents(leaves, list(_leaves(_split(raw))))
    files = [
        (part, content)
        for part, content in zip(leaves, contents, strict=True)
        if not any(part is body for body in shown)
    ]
    message = {
        "subject": str(mail["Subject"] or ""),
        "body": {
            "contentType": "html" if is_html else "text",
            "content": "" if body is None else body.get_content(),
        },
        "internetMessageId": str(mail["Message-ID"] or "").strip(),
        "isRead": True,
        "singleValueExtendedProperties": _properties(mail),
        **_recipients(mail),
    }
    found = []
    for number, (part, content) in enumerate(files):
        content_id = "" if _is_attachment(part) else str(part["Content-ID"] or "").strip("<> ")
        found.append(_file(part, number, content, content_id))
    return SentCopy(message, tuple(found))


def _parsed_leaves(part: Message) -> Iterator[Message]:
    """The parts that are not multipart; an attached mail is one of them."""
    if part.get_content_maintype() != "multipart":
        yield part
        return
    for inner in part.get_payload():
        if isinstance(inner, Message):
            yield from _parsed_leaves(inner)


def _recipients(mail: EmailMessage) -> dict[str, Any]:
    sender = _addresses(mail, "From")[:1]
    found: dict[str, Any] = {"from": sender[0], "sender": sender[0]} if sender else {}
    return found | {name: _addresses(mail, header) for header, name in _RECIPIENTS.items()}


def _addresses(mail: EmailMessage, header: str) -> list[dict[str, Any]]:
    found = getattr(mail[header], "addresses", ())
    return [{"emailAddress": {"name": one.display_name, "address": one.addr_spec}} for one in found]


def _properties(mail: EmailMessage) -> list[dict[str, str]]:
    texts = [{"id": key, "value": str(mail[name])} for name, key in _TEXT_PROPERTIES if mail[name]]
    at: datetime | None = getattr(mail["Date"], "datetime", None)
    utc = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None
    times = [{"id": key, "value": utc} for key in _TIME_PROPERTIES if utc]
    return [{"id": "Integer 0x0E07", "value": _READ_AND_SENT}, *texts, *times]


@dataclass(eq=False)
class GraphSender(WebSender):
    """Sends mail over Graph, which stores a copy in Sent Items."""

    name = "Microsoft Graph"
    client: GraphClient

    async def _submit(
        self, envelope: Envelope, raw: bytes, before_submit: BeforeSubmit, drafts: list[str]
    ) -> Outcome:
        mail = await in_thread(with_bcc, raw, envelope.recipients)
        if len(mail) <= SINGLE_REQUEST_BYTES:
            await before_submit()
            await self.client.send_mime(mail)
        else:
            await self._create_draft(mail, drafts)
            await before_submit()
            await self.client.send_draft(drafts[0])
        return Outcome("sent", "accepted by Microsoft")

    async def _discard(self, drafts: Sequence[str]) -> None:
        for key in drafts:
            await self.client.delete_permanently(key)

    async def _create_draft(self, mail: bytes, drafts: list[str]) -> None:
        """Create a draft of a large mail, and delete those of earlier attempts."""
        text, files = await in_thread(split_attachments, mail)
        await self.client.delete_drafts(message_id_of(mail))
        drafts.append(await self.client.create_draft(text))
        for file in files:
            await self.client.attach(drafts[0], file_properties(file), file.content)

    async def close(self) -> None:
        await self.client.api.close()
