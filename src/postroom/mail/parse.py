"""Parsing a mail: from raw bytes to a value. Never raises, never hangs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from postroom.mail.addresses import parse_mailboxes
from postroom.mail.html.html import HtmlText, html_to_text, text_differs
from postroom.mail.message import (
    HiddenText,
    Link,
    ParsedMessage,
    Security,
    decoded_pairs,
    parse_date,
    parse_in_reply_to,
    parse_message_id,
    parse_references,
)
from postroom.mail.mime.attachments import is_disguised, parse_invitation
from postroom.mail.mime.bodies import Body, Contents, collect, find_protection
from postroom.mail.mime.decoding import clean, decode_unknown, without_uu
from postroom.mail.mime.parts import Fields, Part, Splitter
from postroom.mail.quoting import split_reply
from postroom.mail.reports import (
    is_auto_submitted,
    is_list_mail,
    list_id,
    list_unsubscribe,
    read_report,
)
from postroom.mail.senders import find_altered, find_lookalikes
from postroom.mail.text.invisible import cleaned, merge_hidden_texts
from postroom.mail.threads import is_reply_subject
from postroom.model.limits import Limits
from postroom.model.mail.message import AddressLine

SNIPPET_CHARS = 120
_ADDRESS_FIELDS = ("from", "sender", "reply-to", "to", "cc", "bcc")
_AUTHORS = ("from", "sender", "reply_to")
_LEADING_JUNK = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*+(?:>?From (?![ \t]*+:)[^\n]*+\n)?+")
_REFERS_TO_HTML = re.compile(
    r"html|view (?:this|it) |in your browser|navigateur|browser", re.IGNORECASE
)
_SHORT = 400
_MAX_USUAL_CHARS = 200
_MAX_DATES = 5
_SENDER_FALLBACKS = ("sender", "reply-to", "return-path")
_DEFAULT_LIMITS = Limits()


def parse_message(raw: bytes, limits: Limits = _DEFAULT_LIMITS) -> ParsedMessage:
    """Parse a mail; deviations from the standards are listed in `defects`.

    Malformed mail is not an error. If the parser itself fails, the result has the headers and a
    defect.
    """
    try:
        return read_message(raw, limits)
    except Exception as error:  # noqa: BLE001, the promise is that nothing comes through
        return read_headers(raw, limits, f"parse_failed: {type(error).__name__}")


def read_headers(raw: bytes, limits: Limits, defect: str) -> ParsedMessage:
    """The result for a mail whose body could not be parsed: its headers."""
    ends = [raw.find(end) for end in (b"\r\n\r\n", b"\n\n")]
    end = min((place for place in ends if place >= 0), default=len(raw))
    try:
        parsed = read_message(raw[: min(end, limits.header_bytes)] + b"\n\n", limits)
    except Exception:  # noqa: BLE001, as above
        parsed = _UNREADABLE
    return replace(parsed, size_bytes=len(raw), defects=(*parsed.defects, defect))


def read_message(raw: bytes, limits: Limits) -> ParsedMessage:
    """`parse_message` without the catch-all, for the fuzzer."""
    splitter = Splitter(_with_single_cr(raw), limits)
    root = _read_root(splitter)
    contents = collect(root, limits)
    body_text = read_body_text(contents, limits)
    for defect in (*splitter.defects, *body_text.defects):
        contents.note(defect)
    return _assemble(raw, root, contents, body_text, limits)


def _with_single_cr(raw: bytes) -> bytes:
    """The mail without the second CR of each line that a converter of line breaks has put there."""
    first = raw.find(b"\n")
    return raw.replace(b"\r\r\n", b"\r\n") if raw[max(first - 2, 0) : first] == b"\r\r" else raw


def _read_root(splitter: Splitter) -> Part:
    junk = _LEADING_JUNK.match(splitter.raw)
    return splitter.read_part(junk.end() if junk else 0, len(splitter.raw), depth=0)


_UNREADABLE = ParsedMessage(
    subject="", addresses=(), date=None, internet_message_id=None, in_reply_to=None,
    references=(), headers=(), text="", new_text="", quoted_text="", signature="",
    snippet="", html=None, attachments=(), size_bytes=0, defects=(),
)  # fmt: skip


@dataclass(slots=True)
class BodyText:
    """The text of a mail, and the findings of rendering it."""

    html_left: int
    text: str = ""
    html: str | None = None
    hidden: list[HiddenText] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    remote_images: int = 0
    tracking_pixels: int = 0
    differs: bool = False
    defects: list[str] = field(default_factory=list)

    def add(self, rendered: HtmlText) -> None:
        """Add what rendering an HTML body has found."""
        self.hidden += rendered.hidden
        self.links += rendered.links
        self.remote_images += rendered.remote_images
        self.tracking_pixels += rendered.tracking_pixels
        self.defects += rendered.defects


def read_body_text(contents: Contents, limits: Limits) -> BodyText:
    """The text of the bodies, with findings and defects."""
    body_text = BodyText(limits.html_bytes)
    body_text.text = cleaned(_joined_text(contents, body_text, limits), contents.removed).strip(
        "\n"
    )
    htmls = [body.html for body in contents.bodies if body.html is not None]
    body_text.html = "\n".join(htmls) if htmls else None
    return body_text


def _joined_text(contents: Contents, body_text: BodyText, limits: Limits) -> str:
    """The text of the bodies before invisible characters are removed."""
    texts = [_body_text(body, body_text, limits) for body in contents.bodies]
    text = "\n\n".join(text for text in texts if text.strip())
    if len(text) > limits.text_chars:
        body_text.defects.append(
            f"text over {limits.text_chars} characters; the rest was not stored"
        )
    return text[: limits.text_chars]


def uncleaned_text(raw: bytes, limits: Limits = _DEFAULT_LIMITS) -> str:
    """The text of a mail with its invisible characters."""
    root = _read_root(Splitter(_with_single_cr(raw), limits))
    return _joined_text(collect(root, limits), BodyText(limits.html_bytes), limits).strip("\n")


def _body_text(body: Body, body_text: BodyText, limits: Limits) -> str:
    if body.html is None:
        return body.plain or ""
    html, plain = body.html[: body_text.html_left + 1], body.plain
    is_text = plain is None or not plain.strip()
    rendered = html_to_text(_with_marked_quotes(html, limits) if is_text else html, limits)
    body_text.add(rendered)
    body_text.html_left = max(body_text.html_left - len(body.html), 0)
    if plain is None or is_text:
        return rendered.text
    is_short, length = len(plain) < _SHORT, len(rendered.text)
    # A plain part may only refer to the HTML part.
    if is_short and length > 3 * len(plain) and _REFERS_TO_HTML.search(plain):
        return f"{rendered.text}\n\n{plain}"
    seen = "\n".join((rendered.text, *rendered.alternatives))
    body_text.differs = body_text.differs or text_differs(plain, seen)
    is_abridged = is_short and length > 5 * len(plain) + _SHORT
    return f"{rendered.text}\n\n{plain}" if is_abridged else plain


def _with_marked_quotes(html: str, limits: Limits) -> str:
    """HTML whose quotations are marked; beyond the limit it is not read anyway."""
    if len(html) > limits.html_bytes:
        return html
    from postroom.mail.quoting.html_quotes import mark_quotes  # selectolax is loaded for HTML only

    return mark_quotes(clean(html))


def _assemble(
    raw: bytes, root: Part, contents: Contents, body_text: BodyText, limits: Limits
) -> ParsedMessage:
    fields = root.fields
    line = contents.removed.line
    addresses = _addresses(fields, contents, limits, line)
    reply = split_reply(without_uu(body_text.text))
    dates = (parse_date(value) for value in fields.all("date")[:_MAX_DATES])
    date = next((found for found in dates if found is not None), None)
    if date is None:
        contents.note("Date cannot be read" if fields.first_nonempty("date") else "missing Date")
    calendar = contents.parts.get("text/calendar")
    subject = " ".join(line(fields.decoded("subject")).split())
    # RFC 5322 §3.6.4 has no ids without brackets; a mail that calls itself a reply may forget them
    pointers = (*fields.all("in-reply-to"), *fields.all("references"))
    is_bare = any("<" not in value for value in pointers) and is_reply_subject(subject)
    return ParsedMessage(
        subject=subject,
        addresses=addresses,
        date=date,
        internet_message_id=parse_message_id(line(fields.first("message-id"))),
        in_reply_to=parse_in_reply_to(line(fields.first("in-reply-to")), bare=is_bare),
        references=tuple(
            parse_references([line(v) for v in fields.all("references")], bare=is_bare)
        ),
        headers=decoded_pairs(fields),
        text=body_text.text,
        new_text=reply.new_text,
        quoted_text=reply.quoted_text,
        signature=reply.signature,
        snippet=snippet(reply.new_text or body_text.text),
        html=body_text.html,
        attachments=tuple(contents.attachments),
        size_bytes=len(raw),
        security=_security(addresses, contents, body_text, is_list=is_list_mail(fields)),
        auto_submitted=is_auto_submitted(fields),
        list_id=line(list_id(fields) or "") or None,
        list_unsubscribe=tuple(map(line, list_unsubscribe(fields))),
        report=read_report(
            fields, body_text.text, contents.attachments, limits, charset=_charset(contents)
        ),
        invitation=parse_invitation(cleaned(decode_unknown(calendar.decoded()), contents.removed))
        if calendar
        else None,
        protection=find_protection(root, body_text.text),
        links=tuple(body_text.links),
        defects=tuple(contents.defects),
    )


def _charset(contents: Contents) -> str:
    """The charset of the plain text."""
    part = contents.parts.get("text/plain")
    return part.parameters.get("charset", "") if part else ""


def _addresses(
    fields: Fields, contents: Contents, limits: Limits, line: Callable[[str], str]
) -> tuple[AddressLine, ...]:
    found: list[AddressLine] = []
    for name in _ADDRESS_FIELDS:
        values, role = fields.all(name), name.replace("-", "_")
        if len(values) > 1 and role in ("from", "sender"):
            one = next((value for value in values[:10] if _has_address(value)), values[0])
            which = "the first" if one is values[0] else "the first with an address"
            contents.note(f"{len(values)} {name.title()} headers; {which} is used")
            values = [one]
        for value in values[:10]:
            may_be_usual = len(value) <= _MAX_USUAL_CHARS and name not in fields.names_with_nul
            if may_be_usual and (usual := _usual_addresses(role, value, limits.header_addresses)):
                found += usual
                continue
            mailboxes, more = parse_mailboxes(value, max_count=limits.header_addresses)
            if more:
                contents.note(f"more than {limits.header_addresses} addresses in {name}")
            read = [AddressLine(role, line(m.name).strip(), line(m.address)) for m in mailboxes]
            if role in _AUTHORS:
                pairs = zip(read, mailboxes, strict=True)
                contents.altered_addresses += [
                    a.address
                    for a, m in pairs
                    if a.address != m.address or name in fields.names_with_nul
                ]
            found += read
    return _with_sender(found, fields, contents, line)


@lru_cache(maxsize=2048)
def _usual_addresses(role: str, value: str, max_count: int) -> tuple[AddressLine, ...]:
    """The addresses of a field that needs neither a note nor cleaning, else none.

    The same people write on a list again and again.
    """
    mailboxes, more = parse_mailboxes(value, max_count=max_count)
    written = "".join(f"{m.name}{m.address}" for m in mailboxes)
    if more or not (written.isascii() and written.isprintable()):
        return ()
    return tuple(AddressLine(role, m.name.strip(), m.address) for m in mailboxes)


def _has_address(value: str) -> bool:
    return any("@" in mailbox.address for mailbox in parse_mailboxes(value, max_count=10)[0])


def _with_sender(
    found: list[AddressLine], fields: Fields, contents: Contents, line: Callable[[str], str]
) -> tuple[AddressLine, ...]:
    """The addresses; if no From holds one, with a sender from another field.

    Its role is `sender`: such an address is shown, and never the author that a server attested.
    """
    if any(one.role in ("from", "sender") and "@" in one.address for one in found):
        return tuple(found)
    for name in _SENDER_FALLBACKS:
        mailboxes = parse_mailboxes(fields.first_nonempty(name), max_count=1)[0]
        if mailboxes and "@" in mailboxes[0].address:
            contents.note(f"From without an address; {name.title()} used as the sender")
            only = AddressLine("sender", line(mailboxes[0].name), line(mailboxes[0].address))
            return (*(one for one in found if one.role != "sender"), only)
    return tuple(found)


def _security(
    addresses: tuple[AddressLine, ...], contents: Contents, body_text: BodyText, *, is_list: bool
) -> Security:
    hidden, total = merge_hidden_texts((*body_text.hidden, *contents.removed.hidden))
    return Security(
        hidden_text=hidden,
        hidden_text_total=total,
        remote_images=body_text.remote_images,
        tracking_pixels=body_text.tracking_pixels,
        text_differs=body_text.differs,
        lookalike=(
            *find_lookalikes(addresses, is_list=is_list),
            *find_altered(contents.altered_addresses),
        ),
        disguised_attachments=tuple(
            a.filename
            for a in contents.attachments
            if is_disguised(a.content_type, a.detected_type)
        ),
        removed_characters=contents.removed.counts,
    )


def snippet(text: str) -> str:
    """The first words, at most 120 characters of them."""
    words = " ".join(text[: 3 * SNIPPET_CHARS].split())
    if len(words) <= SNIPPET_CHARS:  # much white space
        words = " ".join(text[:1_000].split())
    if len(words) <= SNIPPET_CHARS:
        return clean(words)
    cut = words[: SNIPPET_CHARS - 1]
    return clean((cut.rpartition(" ")[0] if " " in cut[80:] else cut) + "…")
