"""Reading a composed mail: into what it was composed of, and to compare it with its request."""

from __future__ import annotations

from postroom.errors import InvalidInput
from postroom.mail.addresses import check_address, parse_mailboxes
from postroom.mail.compose import ComposeInput, Correspondent, OutgoingAttachment, text_signature
from postroom.mail.html.html import html_to_text
from postroom.mail.message import decoded_pairs, parse_ids, parse_references
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
    text, html = _without_signature(texts.get("text/plain"), texts.get("text/html"), signature)
    if text is not None and html is not None and html_to_text(html).text.split() == text.split():
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
    found, _ = parse_mailboxes(root.fields.first(name), max_count=_LIMITS.header_addresses)
    return tuple((person[0], person[1]) for person in found)


def _text(part: Part) -> str:
    return part.decoded().decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


def _without_signature(
    text: str | None, html: str | None, signature: str
) -> tuple[str | None, str | None]:
    if not signature:
        return text, html
    plain, block = text_signature(signature)
    if text is not None:
        text = text.removesuffix(plain.rstrip("\n")).removesuffix(plain)
    return text, html and html.replace(block, "")


def _file(part: Part) -> OutgoingAttachment:
    name = part.disposition[1].get("filename") or "attachment"
    return OutgoingAttachment(name, part.content_type, part.decoded())


def verify(raw: bytes, outgoing: ComposeInput) -> None:
    """Compare the bytes with the request, field by field.

    Raises:
        InvalidInput: naming the field that did not survive.
    """
    splitter = Splitter(raw, _LIMITS)
    root = splitter.read_part(0, len(raw), depth=0)
    fields = root.fields
    _require_same("headers", _expected_names(outgoing), [name.lower() for name, _ in fields.pairs])
    _require_same("subject", " ".join(outgoing.subject.split()), fields.decoded("subject"))
    for name, people in (("from", (outgoing.sender,)), ("to", outgoing.to), ("cc", outgoing.cc),
                         ("reply-to", outgoing.reply_to)):  # fmt: skip
        expected = [
            (" ".join(display.split()), check_address(address, field=name))
            for display, address in people
        ]
        found, _ = parse_mailboxes(fields.first(name), max_count=_LIMITS.header_addresses)
        _require_same(name, expected, found)
    ids = parse_ids(fields.first("message-id"))
    _require_same("internet_message_id", [outgoing.internet_message_id], ids)
    references = parse_references(fields.all("references"))
    _require_same("references", list(dict.fromkeys(outgoing.references)), references)
    _require_same_bodies(outgoing, root.children[0] if outgoing.attachments else root)
    # as parts, not as the files we would list: a mail or a winmail.dat has files of its own
    sent = [attachment.content for attachment in outgoing.attachments]
    _require_same(
        "attachments", sent, [part.decoded() for part in root.children[1:]] if sent else []
    )
    if any(len(line) > 998 for line in raw.split(b"\r\n")):
        raise InvalidInput("a line of the mail would be longer than SMTP allows", field="headers")


def _require_same(field: str, expected: object, found: object) -> None:
    if expected != found:
        raise InvalidInput(f"{field}: cannot be sent as it is; simplify it", field=field)


def _expected_names(outgoing: ComposeInput) -> list[str]:
    present = [
        ("from", True), ("to", bool(outgoing.to)), ("cc", bool(outgoing.cc)),
        ("reply-to", bool(outgoing.reply_to)), ("subject", True), ("date", True),
        ("message-id", True), ("in-reply-to", bool(outgoing.in_reply_to)),
        ("references", bool(outgoing.references)),
    ]  # fmt: skip
    names = [name for name, is_there in present if is_there]
    names += [name.lower() for name, _ in outgoing.headers]
    tail = ["mime-version", "content-type"]
    is_single = (outgoing.text is None or outgoing.html is None) and not outgoing.attachments
    return [*names, *tail, "content-transfer-encoding"] if is_single else [*names, *tail]


def _require_same_bodies(outgoing: ComposeInput, body: Part) -> None:
    found = {
        part.content_type: _lines(part.decoded().decode("utf-8", "replace"))
        for part in body.children or [body]
    }
    for field, kind, text in (
        ("text", "text/plain", outgoing.text),
        ("html", "text/html", outgoing.html),
    ):
        _require_same(field, None if text is None else _lines(text), found.get(kind))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
