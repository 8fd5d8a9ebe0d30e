"""Rebuilding a mail from the parts that a provider returns."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postroom.mail.composing.compose import encode_base64, fold_tokens, parameter

_NAME = re.compile(r"[!-9;-~]{1,76}")
_TYPE = re.compile(r"[A-Za-z0-9][\w.+-]{0,126}/[A-Za-z0-9][\w.+-]{0,126}", re.ASCII)
_ID = re.compile(r"[!-;=?-~]{1,200}")
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f]+")
_OF_THE_BODY = re.compile(r"content-.*|mime-version", re.IGNORECASE)

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A file that came along; with a content id, the HTML may show it."""

    filename: str
    content_type: str
    content: bytes
    content_id: str | None = None


def rebuild(
    headers: Iterable[Header], text: str | None, html: str | None, files: Sequence[Part]
) -> bytes:
    """The mail as bytes; the same parts always give the same bytes.

    Headers are kept, except those that described the old body; the body is new.
    """
    lines = [_header(name, value) for name, value in headers if not _OF_THE_BODY.fullmatch(name)]
    entities = [_text(kind, said) for kind, said in (("plain", text), ("html", html)) if said]
    body = _multipart("alternative", entities) if len(entities) > 1 else None
    body = body or (entities[0] if entities else _text("plain", ""))
    if files:
        body = _multipart("mixed", [body, *(_file(file) for file in files)])
    return "".join(lines).encode("utf-8", "replace") + b"MIME-Version: 1.0\r\n" + body


def _header(name: str, value: str) -> str:
    """The value on one line: line breaks become spaces, so that no header can be injected."""
    if not _NAME.fullmatch(name):
        return ""
    return f"{name}: {_BREAKS.sub(' ', value).strip()}\r\n"


def _text(subtype: str, text: str) -> bytes:
    head = f'Content-Type: text/{subtype}; charset="utf-8"\r\nContent-Transfer-Encoding: base64\r\n'
    return f"{head}\r\n".encode() + encode_base64(text.encode("utf-8", "replace"))


def _file(file: Part) -> bytes:
    kind = file.content_type.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(kind) or kind.startswith("multipart/"):
        kind = "application/octet-stream"
    name = "".join(c if c.isprintable() else "_" for c in file.filename)[:255]
    content_id = (file.content_id or "").strip().strip("<>")
    has_id = bool(_ID.fullmatch(content_id))
    words = [f"{'inline' if has_id else 'attachment'};", *(f"{p};" for p in _named(name))]
    head = f"Content-Type: {kind}\r\n" + (f"Content-ID: <{content_id}>\r\n" if has_id else "")
    head += fold_tokens("Content-Disposition", [*words[:-1], words[-1].removesuffix(";")])
    head += "Content-Transfer-Encoding: base64\r\n\r\n"
    return head.encode() + encode_base64(file.content)


def _named(name: str) -> list[str]:
    return parameter("filename", name.encode("utf-8", "replace").decode()) if name else []


def _multipart(subtype: str, entities: Sequence[bytes]) -> bytes:
    boundary = "=_" + hashlib.sha256(b"\0".join(entities)).hexdigest()[:32]
    head = f'Content-Type: multipart/{subtype};\r\n boundary="{boundary}"\r\n\r\n'.encode()
    marker = f"--{boundary}\r\n".encode()
    return head + b"".join(marker + entity for entity in entities) + f"--{boundary}--\r\n".encode()
