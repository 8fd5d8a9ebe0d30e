"""Writing a mail: any Unicode in, bytes out that say exactly what was asked for."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from postroom.errors import InvalidInput
from postroom.mail.dates import format_date
from postroom.mail.encoding import (
    encode_base64,
    encode_text,
    fold_tokens,
    is_7bit,
    parameter,
    phrase,
    unstructured,
)
from postroom.mail.subjects import without_reply_prefixes
from postroom.mail.typed import (
    check_address,
    check_name,
    parse_address,
    parse_address_list,
    refuse_controls,
)

__all__ = [
    "Correspondent", "Outgoing", "OutgoingAttachment", "compose", "parse_address",
    "parse_address_list", "reply_references", "reply_subject",
]  # fmt: skip

Correspondent = tuple[str, str]  # name, address

_TYPE = re.compile(r"[A-Za-z0-9][\w.+-]{0,126}/[A-Za-z0-9][\w.+-]{0,126}", re.ASCII)
_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
_ID = re.compile(r"[^\s<>\x00-\x1f\x7f]{1,900}")
_OURS = frozenset(
    ("from", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references",
     "mime-version", "content-type", "content-transfer-encoding", "content-disposition", "sender",
     "resent-bcc", "resent-to", "resent-cc", "received", "return-path", "dkim-signature",
     "authentication-results", "arc-authentication-results", "arc-message-signature", "arc-seal")
)  # fmt: skip
_MOST_REFERENCES = 500


@dataclass(frozen=True, slots=True)
class OutgoingAttachment:
    """A file to send along."""

    filename: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A mail to be written. Ids are without angle brackets; `date` is aware."""

    sender: Correspondent
    to: tuple[Correspondent, ...]
    subject: str
    internet_message_id: str
    date: datetime
    cc: tuple[Correspondent, ...] = ()
    bcc: tuple[Correspondent, ...] = ()
    text: str | None = None
    html: str | None = None
    attachments: tuple[OutgoingAttachment, ...] = ()
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    reply_to: tuple[Correspondent, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


def compose(outgoing: Outgoing) -> bytes:
    """The mail as bytes, read back and compared before anybody sees them.

    Blind copies travel in the envelope only: there is no Bcc header. All is ASCII, but for an
    address with other letters before its @ (RFC 6532), which only some servers take.

    Raises:
        InvalidInput: naming the field that cannot be put into a mail.
    """
    header = "".join(_header_lines(outgoing))
    boundary = "=_" + hashlib.sha256(outgoing.internet_message_id.encode()).hexdigest()[:32]
    raw = header.encode() + _body(outgoing, boundary)
    _read_back(raw, outgoing)
    return raw


def _read_back(raw: bytes, outgoing: Outgoing) -> None:
    """Compare what was written with what was meant; the reader is imported when first used."""
    from postroom.mail.verification import verify

    verify(raw, outgoing)


def _header_lines(outgoing: Outgoing) -> list[str]:
    refuse_controls(outgoing.subject, "subject")
    lines = [
        _addresses("From", (outgoing.sender,), "from"),
        _addresses("To", outgoing.to, "to"),
        _addresses("Cc", outgoing.cc, "cc"),
        _addresses("Reply-To", outgoing.reply_to, "reply_to"),
        fold_tokens("Subject", unstructured(" ".join(outgoing.subject.split()))),
        f"Date: {format_date(outgoing.date)}\r\n",
        _ids("Message-ID", (outgoing.internet_message_id,), "internet_message_id"),
        _ids("In-Reply-To", (outgoing.in_reply_to,) if outgoing.in_reply_to else (), "in_reply_to"),
        _ids("References", outgoing.references, "references"),
    ]
    for _, address in outgoing.bcc:
        check_address(address, field="bcc")
    lines += [_extra(name, value) for name, value in outgoing.headers]
    return [*lines, "MIME-Version: 1.0\r\n"]


def _addresses(name: str, people: tuple[Correspondent, ...], field: str) -> str:
    if not people:
        return ""
    tokens = []
    for index, (display, address) in enumerate(people):
        checked = check_address(address, field=field)
        display = check_name(display, field=field)
        comma = "," if index < len(people) - 1 else ""
        tokens.append((f"{phrase(display)} <{checked}>" if display else checked) + comma)
    return fold_tokens(name, tokens)


def _ids(name: str, ids: tuple[str, ...], field: str) -> str:
    if not ids:
        return ""
    for message_id in ids:
        if not _ID.fullmatch(message_id) or not message_id.isascii():
            raise InvalidInput(f"{field}: {message_id[:80]!r} is no Message-ID", field=field)
    return fold_tokens(name, [f"<{message_id}>" for message_id in ids])


def _extra(name: str, value: str) -> str:
    if not _FIELD_NAME.fullmatch(name) or name.lower() in _OURS:
        raise InvalidInput(f"headers: {name[:80]!r} cannot be set", field="headers")
    refuse_controls(value, f"headers.{name}")
    return fold_tokens(name, unstructured(" ".join(value.split())))


def _body(outgoing: Outgoing, boundary: str) -> bytes:
    texts = _text_entities(outgoing, boundary)
    if not texts:
        raise InvalidInput("give a text or an html body", field="text")
    body = texts[0] if len(texts) == 1 else _multipart("alternative", texts, f"{boundary}a")
    if not outgoing.attachments:
        return body
    files = [_file(file, n, boundary) for n, file in enumerate(outgoing.attachments)]
    return _multipart("mixed", [body, *files], f"{boundary}m")


def _text_entities(outgoing: Outgoing, boundary: str) -> list[bytes]:
    entities = []
    for subtype, text in (("plain", outgoing.text), ("html", outgoing.html)):
        if text is None:
            continue
        _refuse_unsendable(text, "text" if subtype == "plain" else "html")
        encoding, data = encode_text(text, boundary=boundary)
        header = f'Content-Type: text/{subtype}; charset="utf-8"\r\n'
        header += f"Content-Transfer-Encoding: {encoding}\r\n\r\n"
        entities.append(header.encode() + data + b"\r\n")
    return entities


def _refuse_unsendable(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{field}: it holds half a character (a surrogate)", field=field
        ) from error
    if "\0" in text:
        raise InvalidInput(f"{field}: it holds a NUL character; remove it", field=field)


def _file(attachment: OutgoingAttachment, index: int, boundary: str) -> bytes:
    field = f"attachments[{index}]"
    refuse_controls(attachment.filename, f"{field}.filename")
    content_type = attachment.content_type.lower()
    if not _TYPE.fullmatch(content_type) or content_type.startswith("multipart/"):
        raise InvalidInput(
            f"{field}.content_type: {attachment.content_type[:80]!r} is no content type; write it"
            " like application/pdf",
            field=f"{field}.content_type",
        )
    encoding, data = "base64", encode_base64(attachment.content)
    if content_type.startswith("message/"):
        # RFC 2046 §5.2.1: base64 is not for a mail in a mail; one that needs it is a mere file.
        if is_7bit(attachment.content, boundary=boundary):
            encoding, data = "7bit", attachment.content + b"\r\n"
        else:
            content_type = "application/octet-stream"
    names = parameter("filename", attachment.filename) if attachment.filename else []
    disposition = [f"{token};" for token in ("attachment", *names)]
    disposition[-1] = disposition[-1].removesuffix(";")
    header = f"Content-Type: {content_type}\r\n"
    header += fold_tokens("Content-Disposition", disposition)
    header += f"Content-Transfer-Encoding: {encoding}\r\n\r\n"
    return header.encode("ascii") + data


def _multipart(subtype: str, entities: list[bytes], boundary: str) -> bytes:
    marker = f"--{boundary}\r\n".encode()
    header = f'Content-Type: multipart/{subtype};\r\n boundary="{boundary}"\r\n\r\n'.encode()
    return header + b"".join(
        (*(marker + entity for entity in entities), f"--{boundary}--\r\n".encode())
    )


class Answerable(Protocol):
    """What a reply must know of the mail it answers, parsed or stored."""

    @property
    def internet_message_id(self) -> str | None: ...
    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def references(self) -> tuple[str, ...]: ...


def reply_subject(subject: str) -> str:
    """The subject of a reply: one `Re:`, however many there were."""
    return f"Re: {without_reply_prefixes(subject)}".rstrip()


def reply_references(parent: Answerable) -> tuple[str, ...]:
    """The References of a reply to `parent`: its whole chain and itself (RFC 5322 §3.6.4)."""
    chain = parent.references or ((parent.in_reply_to,) if parent.in_reply_to else ())
    own = (parent.internet_message_id,) if parent.internet_message_id else ()
    usable = [key for key in dict.fromkeys((*chain, *own)) if _ID.fullmatch(key) and key.isascii()]
    return tuple(
        usable if len(usable) <= _MOST_REFERENCES else [usable[0], *usable[1 - _MOST_REFERENCES :]]
    )
