"""Composing a mail: from fields, text and files to the bytes of RFC 5322.

A mail that a provider returns in parts is rebuilt from them.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from postroom.errors import InvalidInput
from postroom.mail.addresses import check_address, check_name, refuse_controls
from postroom.mail.data import load
from postroom.mail.html.html import html_to_text
from postroom.mail.message import ParsedMessage, format_date
from postroom.mail.threads import without_reply_prefixes
from postroom.model.mail.message import Message

LINE = 76
LONGEST = 998
_Q_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/")
_WORD_BYTES = 45
_7BIT = re.compile(rb"(?:[\t -~]{0,998}+\r\n)*+[\t -~]{0,998}+")


def encode_words(text: str) -> list[str]:
    """Encoded words (RFC 2047) for a text; no word splits a letter."""
    data = text.encode()
    plain = sum(byte in _Q_SAFE or byte == 32 for byte in data)
    write_word = _q_word if plain * 2 > len(data) else _b_word
    words: list[str] = []
    chunk = ""
    size = 0
    for char in text:
        width = len(_q_encode(char)) if write_word is _q_word else len(char.encode())
        if chunk and size + width > (_WORD_BYTES + 15 if write_word is _q_word else _WORD_BYTES):
            words.append(write_word(chunk))
            chunk, size = "", 0
        chunk += char
        size += width
    return [*words, write_word(chunk)] if chunk else words


def _b_word(text: str) -> str:
    return f"=?utf-8?b?{binascii.b2a_base64(text.encode(), newline=False).decode()}?="


def _q_word(text: str) -> str:
    return f"=?utf-8?q?{_q_encode(text)}?="


def _q_encode(text: str) -> str:
    return "".join(
        "_" if byte == 32 else chr(byte) if byte in _Q_SAFE else f"={byte:02X}"
        for byte in text.encode()
    )


def unstructured(text: str) -> list[str]:
    """The tokens of a header value such as Subject, ready to be folded between them."""
    tokens = text.split(" ")
    is_plain = text.isascii() and "=?" not in text and all(len(t) < LONGEST - 100 for t in tokens)
    if is_plain and all(tokens):
        return tokens
    return encode_words(text) if text else []


def phrase(name: str) -> str:
    """A display name, quoted or encoded as it needs."""
    if not name.isascii() or "=?" in name:
        return "\r\n ".join(encode_words(name))
    if all(c.isalnum() or c in "!#$%&'*+-/=?^_`{|}~ " for c in name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if len(escaped) < LONGEST - 400 else "\r\n ".join(encode_words(name))


def fold_tokens(name: str, tokens: list[str]) -> str:
    """A header line, broken before a token where it would get too long."""
    lines: list[str] = []
    line = f"{name}:"
    for token in tokens:
        if len(line) + 1 + len(token) > LINE and len(line) > len(name) + 1:
            lines.append(line)
            line = ""
        line += f" {token}"
        if "\r\n" in token:
            head, _, line = line.rpartition("\r\n")
            lines.append(head)
    lines.append(line)
    return "\r\n".join(lines) + "\r\n"


def parameter(name: str, value: str) -> list[str]:
    """A MIME parameter: plain, or in RFC 2231 sections when it is long or not ASCII."""
    if value.isascii() and len(value) <= 60 and "=?" not in value:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return [f'{name}="{escaped}"']
    encoded = "utf-8''" + quote(value, safe="")
    sections = _sections(encoded)
    if len(sections) == 1:
        return [f"{name}*={encoded}"]
    return [f"{name}*{number}*={section}" for number, section in enumerate(sections)]


def _sections(encoded: str) -> list[str]:
    """Pieces of at most 60 characters that do not cut a %XX."""
    sections: list[str] = []
    while encoded:
        end = 60
        if "%" in encoded[end - 2 : end]:
            end = encoded.index("%", end - 2)
        sections.append(encoded[:end])
        encoded = encoded[end:]
    return sections


def encode_text(text: str, *, boundary: str) -> tuple[str, bytes]:
    """The transfer encoding for a body and the body in it, with CRLF line ends."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data = "\r\n".join(lines).encode()
    is_plain = data.isascii() and all(len(line) <= LINE + 2 for line in lines)
    if is_plain and boundary not in text and not _has_control_characters(data):
        return "7bit", data
    quoted = binascii.b2a_qp(data, istext=True)
    quoted = quoted.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    encoded = encode_base64(data)
    return ("quoted-printable", quoted) if len(quoted) <= len(encoded) else ("base64", encoded)


def _has_control_characters(data: bytes) -> bool:
    return any((byte < 32 and byte not in (9, 10, 13)) or byte == 127 for byte in set(data))


def is_7bit(data: bytes, *, boundary: str) -> bool:
    """Whether bytes can be put into a mail between two boundaries unchanged."""
    return _7BIT.fullmatch(data) is not None and boundary.encode() not in data


def encode_base64(data: bytes) -> bytes:
    """Base64 in lines of 76."""
    width = LINE * 3 // 4
    lines = (data[at : at + width] for at in range(0, len(data), width))
    return b"".join(binascii.b2a_base64(line, newline=False) + b"\r\n" for line in lines)


Correspondent = tuple[str, str]  # name, address
Header = tuple[str, str]  # name, value

_TYPE = re.compile(r"[A-Za-z0-9][\w.+-]{0,126}/[A-Za-z0-9][\w.+-]{0,126}", re.ASCII)
_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,75}")
_ID = re.compile(r"[^\s<>\x00-\x1f\x7f]{1,900}")
_OWN_HEADERS = frozenset(load("headers")["own"])
_KEPT_NAME = re.compile(r"[!-9;-~]{1,76}")
_CONTENT_ID = re.compile(r"[!-;=?-~]{1,200}")
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f]+")
_BODY_HEADER = re.compile(r"content-.*|mime-version", re.IGNORECASE)
_BODY_END = re.compile(r"</body\s*>", re.IGNORECASE)
_MAX_REFERENCES = 500


@dataclass(frozen=True, slots=True)
class OutgoingAttachment:
    """A file to send along; with a content id, the HTML of a rebuilt mail may show it."""

    filename: str
    content_type: str
    content: bytes
    content_id: str | None = None


@dataclass(frozen=True, slots=True)
class ComposeInput:
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


def compose(outgoing: ComposeInput) -> bytes:
    """The mail as bytes, parsed again and compared with the request.

    Blind copies travel in the envelope only: there is no Bcc header. All is ASCII, but for an
    address with other letters before its @ (RFC 6532), which only some servers take.

    Raises:
        InvalidInput: naming the field that cannot be put into a mail.
    """
    from postroom.mail.verification import verify  # late: it loads the parser

    header = "".join(_header_lines(outgoing))
    boundary = "=_" + hashlib.sha256(outgoing.internet_message_id.encode()).hexdigest()[:32]
    raw = header.encode() + _body(outgoing, boundary)
    verify(raw, outgoing)
    return raw


def _header_lines(outgoing: ComposeInput) -> list[str]:
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
    lines += [_extra_header(name, value) for name, value in outgoing.headers]
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
            raise InvalidInput(
                f"{field}: {message_id[:80]!r} is not a Message-ID; write it like <id@example.com>",
                field=field,
            )
    return fold_tokens(name, [f"<{message_id}>" for message_id in ids])


def _extra_header(name: str, value: str) -> str:
    if not _FIELD_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise InvalidInput(f"headers: {name[:80]!r} cannot be set", field="headers")
    refuse_controls(value, f"headers.{name}")
    return fold_tokens(name, unstructured(" ".join(value.split())))


def _body(outgoing: ComposeInput, boundary: str) -> bytes:
    texts = _text_entities(outgoing, boundary)
    if not texts:
        raise InvalidInput("give a text or an html body", field="text")
    body = texts[0] if len(texts) == 1 else _multipart("alternative", texts, f"{boundary}a")
    if not outgoing.attachments:
        return body
    files = [_file(file, n, boundary) for n, file in enumerate(outgoing.attachments)]
    return _multipart("mixed", [body, *files], f"{boundary}m")


def _text_entities(outgoing: ComposeInput, boundary: str) -> list[bytes]:
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
            f"{field}: it contains an unpaired surrogate; remove it", field=field
        ) from error
    if "\0" in text:
        raise InvalidInput(f"{field}: it contains a NUL character; remove it", field=field)


def _file(attachment: OutgoingAttachment, index: int, boundary: str) -> bytes:
    field = f"attachments[{index}]"
    refuse_controls(attachment.filename, f"{field}.filename")
    content_type = attachment.content_type.lower()
    if not _TYPE.fullmatch(content_type) or content_type.startswith("multipart/"):
        raise InvalidInput(
            f"{field}.content_type: {attachment.content_type[:80]!r} is not a content type; "
            "write it like application/pdf",
            field=f"{field}.content_type",
        )
    encoding, data = "base64", encode_base64(attachment.content)
    if content_type.startswith("message/"):
        # RFC 2046 §5.2.1: base64 is not for a mail in a mail; one that needs it is a mere file.
        if is_7bit(attachment.content, boundary=boundary):
            encoding, data = "7bit", attachment.content + b"\r\n"
        else:
            content_type = "application/octet-stream"
    header = f"Content-Type: {content_type}\r\n"
    header += _disposition("attachment", attachment.filename)
    header += f"Content-Transfer-Encoding: {encoding}\r\n\r\n"
    return header.encode("ascii") + data


def _disposition(kind: str, filename: str) -> str:
    words = [kind, *(parameter("filename", filename) if filename else [])]
    return fold_tokens("Content-Disposition", [*(f"{word};" for word in words[:-1]), words[-1]])


def _multipart(subtype: str, entities: list[bytes], boundary: str) -> bytes:
    marker = f"--{boundary}\r\n".encode()
    header = f'Content-Type: multipart/{subtype};\r\n boundary="{boundary}"\r\n\r\n'.encode()
    return header + b"".join(
        (*(marker + entity for entity in entities), f"--{boundary}--\r\n".encode())
    )


def reply_subject(subject: str) -> str:
    """The subject of a reply: one `Re:`, however many there were."""
    return f"Re: {without_reply_prefixes(subject)}".rstrip()


def reply_references(parent: ParsedMessage | Message) -> tuple[str, ...]:
    """The References of a reply to `parent`: its whole chain and itself (RFC 5322 §3.6.4)."""
    chain = parent.references or ((parent.in_reply_to,) if parent.in_reply_to else ())
    own = (parent.internet_message_id,) if parent.internet_message_id else ()
    usable = [key for key in dict.fromkeys((*chain, *own)) if _ID.fullmatch(key) and key.isascii()]
    return tuple(
        usable if len(usable) <= _MAX_REFERENCES else [usable[0], *usable[1 - _MAX_REFERENCES :]]
    )


def with_signature(
    text: str | None, html: str | None, signature: str
) -> tuple[str | None, str | None]:
    """Both versions of a mail with a signature under them, as RFC 3676 §4.3 parts it off."""
    if not signature:
        return text, html
    plain, block = text_signature(signature)
    if text is not None:
        text = text.rstrip() + plain
    if html is not None:
        ends = [found.start() for found in _BODY_END.finditer(html)]
        at = ends[-1] if ends else len(html)
        html = html[:at] + block + html[at:]
    return text, html


def text_signature(signature: str) -> tuple[str, str]:
    """A signature as it ends the text, and as a block of HTML."""
    plain = f"\n\n-- \n{html_to_text(signature).text.strip()}\n"
    return plain, f'<div class="signature">-- <br>{signature}</div>'


def rebuild(
    headers: Iterable[Header],
    text: str | None,
    html: str | None,
    files: Sequence[OutgoingAttachment],
) -> bytes:
    """The mail as bytes; the same parts always give the same bytes.

    Headers are kept, except those that described the old body; the body is new.
    """
    lines = [
        _kept_header(name, value) for name, value in headers if not _BODY_HEADER.fullmatch(name)
    ]
    entities = [
        _base64_text(kind, said) for kind, said in (("plain", text), ("html", html)) if said
    ]
    body = _rebuilt_multipart("alternative", entities) if len(entities) > 1 else None
    body = body or (entities[0] if entities else _base64_text("plain", ""))
    if files:
        body = _rebuilt_multipart("mixed", [body, *(_rebuilt_file(file) for file in files)])
    return "".join(lines).encode("utf-8", "replace") + b"MIME-Version: 1.0\r\n" + body


def _kept_header(name: str, value: str) -> str:
    """The value on one line: line breaks become spaces, so that no header can be injected."""
    if not _KEPT_NAME.fullmatch(name):
        return ""
    return f"{name}: {_BREAKS.sub(' ', value).strip()}\r\n"


def _base64_text(subtype: str, text: str) -> bytes:
    head = f'Content-Type: text/{subtype}; charset="utf-8"\r\nContent-Transfer-Encoding: base64\r\n'
    return f"{head}\r\n".encode() + encode_base64(text.encode("utf-8", "replace"))


def _rebuilt_file(file: OutgoingAttachment) -> bytes:
    kind = file.content_type.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(kind) or kind.startswith("multipart/"):
        kind = "application/octet-stream"
    name = "".join(c if c.isprintable() else "_" for c in file.filename)[:255]
    name = name.encode("utf-8", "replace").decode()
    content_id = (file.content_id or "").strip().strip("<>")
    has_id = bool(_CONTENT_ID.fullmatch(content_id))
    head = f"Content-Type: {kind}\r\n" + (f"Content-ID: <{content_id}>\r\n" if has_id else "")
    head += _disposition("inline" if has_id else "attachment", name)
    head += "Content-Transfer-Encoding: base64\r\n\r\n"
    return head.encode() + encode_base64(file.content)


def _rebuilt_multipart(subtype: str, entities: list[bytes]) -> bytes:
    boundary = "=_" + hashlib.sha256(b"\0".join(entities)).hexdigest()[:32]
    return _multipart(subtype, entities, boundary)
