"""Verification of a composed mail: parsed again, it must match the request."""

from __future__ import annotations

from postroom.errors import InvalidInput
from postroom.mail.addresses import check_address, parse_mailboxes
from postroom.mail.composing.compose import Outgoing
from postroom.mail.message import parse_ids, parse_references
from postroom.mail.mime.parts import Part, Splitter
from postroom.model.limits import Limits

_LIMITS = Limits()


def verify(raw: bytes, outgoing: Outgoing) -> None:
    """Compare the bytes with the request, field by field.

    Raises:
        InvalidInput: naming the field that did not survive.
    """
    splitter = Splitter(raw, _LIMITS)
    root = splitter.read_part(0, len(raw), depth=0)
    fields = root.fields
    _same("headers", _expected_names(outgoing), [name.lower() for name, _ in fields.pairs])
    _same("subject", " ".join(outgoing.subject.split()), fields.decoded("subject"))
    for name, people in (("from", (outgoing.sender,)), ("to", outgoing.to), ("cc", outgoing.cc),
                         ("reply-to", outgoing.reply_to)):  # fmt: skip
        expected = [
            (" ".join(display.split()), check_address(address, field=name))
            for display, address in people
        ]
        found, _ = parse_mailboxes(fields.first(name), most=_LIMITS.header_addresses)
        _same(name, expected, found)
    ids = parse_ids(fields.first("message-id"))
    _same("internet_message_id", [outgoing.internet_message_id], ids)
    references = parse_references(fields.all("references"))
    _same("references", list(dict.fromkeys(outgoing.references)), references)
    _same_bodies(outgoing, root.children[0] if outgoing.attachments else root)
    # as parts, not as the files we would list: a mail or a winmail.dat has files of its own
    sent = [attachment.content for attachment in outgoing.attachments]
    _same("attachments", sent, [part.decoded() for part in root.children[1:]] if sent else [])
    if any(len(line) > 998 for line in raw.split(b"\r\n")):
        raise InvalidInput("a line of the mail would be longer than SMTP allows", field="headers")


def _same(field: str, expected: object, found: object) -> None:
    if expected != found:
        raise InvalidInput(f"{field}: cannot be sent as it is; simplify it", field=field)


def _expected_names(outgoing: Outgoing) -> list[str]:
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


def _same_bodies(outgoing: Outgoing, body: Part) -> None:
    found = {
        part.content_type: _lines(part.decoded().decode("utf-8", "replace"))
        for part in body.children or [body]
    }
    for field, kind, text in (
        ("text", "text/plain", outgoing.text),
        ("html", "text/html", outgoing.html),
    ):
        _same(field, None if text is None else _lines(text), found.get(kind))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
