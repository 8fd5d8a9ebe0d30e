"""Reading a mail that we composed back into what it was composed of."""

from __future__ import annotations

from postroom.mail.addresses import parse_mailboxes
from postroom.mail.composing.compose import Correspondent, OutgoingAttachment, text_signature
from postroom.mail.html.html import html_to_text
from postroom.mail.message import decoded_pairs
from postroom.mail.mime.parts import Part, Splitter
from postroom.model.limits import Limits
from postroom.model.values import dataclass

_LIMITS = Limits()
_ADDED = ("x-", "list-")
_OURS = "x-postroom-"


@dataclass(frozen=True, slots=True)
class Composition:
    """The content of a composed mail; blind copies are in its envelope only."""

    sender: Correspondent
    to: tuple[Correspondent, ...]
    cc: tuple[Correspondent, ...]
    reply_to: tuple[Correspondent, ...]
    subject: str
    text: str | None
    html: str | None
    attachments: tuple[OutgoingAttachment, ...]
    headers: tuple[tuple[str, str], ...]


def read_back(raw: bytes, signature: str) -> Composition:
    """The content of a mail from `compose`, without the signature and a text made from its HTML."""
    root = Splitter(raw, _LIMITS).read_part(0, len(raw), depth=0)
    files = root.children[1:] if root.content_type == "multipart/mixed" else []
    body = root.children[0] if files else root
    texts = {part.content_type: _text(part) for part in body.children or [body]}
    text, html = _unsigned(texts.get("text/plain"), texts.get("text/html"), signature)
    if text is not None and html is not None and _words(html_to_text(html).text) == _words(text):
        text = None
    (sender,) = _people(root, "from") or (("", ""),)
    return Composition(
        sender=sender,
        to=_people(root, "to"),
        cc=_people(root, "cc"),
        reply_to=_people(root, "reply-to"),
        subject=root.fields.decoded("subject"),
        text=text,
        html=html,
        attachments=tuple(_file(part) for part in files),
        headers=tuple(
            (name, value)
            for name, value in decoded_pairs(root.fields)
            if name.lower().startswith(_ADDED) and not name.lower().startswith(_OURS)
        ),
    )


def _people(root: Part, name: str) -> tuple[Correspondent, ...]:
    found, _ = parse_mailboxes(root.fields.first(name), most=_LIMITS.header_addresses)
    return tuple((person[0], person[1]) for person in found)


def _text(part: Part) -> str:
    return part.decoded().decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


def _words(text: str) -> list[str]:
    return text.split()


def _unsigned(text: str | None, html: str | None, signature: str) -> tuple[str | None, str | None]:
    if not signature:
        return text, html
    plain, block = text_signature(signature)
    if text is not None:
        text = text.removesuffix(plain.rstrip("\n")).removesuffix(plain)
    return text, html and html.replace(block, "")


def _file(part: Part) -> OutgoingAttachment:
    name = part.disposition[1].get("filename") or "attachment"
    return OutgoingAttachment(name, part.content_type, part.decoded())
