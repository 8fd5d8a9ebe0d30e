"""Which parts of a mail are its text, and which are files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from postroom.mail.message import ParsedAttachment, Protection
from postroom.mail.mime.attachments import EXTENSIONS, detect_type, display_filename, read_tnef
from postroom.mail.mime.decoding import clean, decode, find_uu
from postroom.mail.mime.parts import Part, is_embedded_message, split_header
from postroom.mail.text.invisible import Removed, cleaned
from postroom.model.limits import Limits

_META_CHARSET = re.compile(
    rb"<meta[^>]{1,200}?charset\s{0,9}=\s{0,9}[\"']?([\w-]{1,40})", re.IGNORECASE
)
_SHOWABLE = ("text/plain", "text/html", "message/delivery-status")
_HEADING = ("From", "Date", "Subject", "To")


@dataclass(slots=True)
class Body:
    """One stretch of the text: as plain text, as HTML, or as both."""

    plain: str | None = None
    html: str | None = None


@dataclass(slots=True)
class Contents:
    """Bodies and files of a mail, in their order."""

    bodies: list[Body] = field(default_factory=list)
    attachments: list[ParsedAttachment] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    removed: Removed = field(default_factory=Removed)
    altered_addresses: list[str] = field(default_factory=list)
    root: Part | None = None

    def hints(self, data: bytes) -> tuple[str, ...]:
        """Charsets that the mail names elsewhere, for text without one."""
        return () if data.isascii() or self.root is None else _charsets_in(self.root)

    def note(self, defect: str | None) -> None:
        if defect and defect not in self.defects:
            self.defects.append(defect)


def collect(root: Part, limits: Limits) -> Contents:
    """Sort the parts of a mail into text and files."""
    contents = Contents(root=root)
    _collect_part(root, contents, limits, is_root=True)
    if not contents.bodies:
        _use_named_text(root, contents, limits)
    return contents


def _charsets_in(root: Part) -> tuple[str, ...]:
    """The charsets of the encoded words of the header and of the parts."""
    parts = [root.parameters.get("charset"), *(c.parameters.get("charset") for c in root.children)]
    return tuple(dict.fromkeys((*root.fields.charsets(), *filter(None, parts))))


def _use_named_text(part: Part, contents: Contents, limits: Limits) -> None:
    """Some programs give the text a filename; without another text part, it is the body."""
    for child in part.children:
        if child.content_type in _SHOWABLE and child.disposition[0] != "attachment":
            _add_body(child, contents, limits)
            return
        _use_named_text(child, contents, limits)
        if contents.bodies:
            return


def _collect_part(part: Part, contents: Contents, limits: Limits, *, is_root: bool = False) -> None:
    contents.parts.setdefault(part.content_type, part)
    if part.content_type == "multipart/alternative" and part.children:
        _collect_alternative(part, contents, limits)
    elif part.children:
        for child in part.children:
            _collect_part(child, contents, limits)
    elif is_body(part, is_root=is_root):
        _add_body(part, contents, limits)
        if part.disposition[1].get("filename"):
            contents.attachments.append(_attachment(part, contents, limits))
    elif part.content_type.startswith("multipart/"):
        _add_broken_multipart(part, contents, limits)
    else:
        _add_attachment(part, contents, limits)


def _collect_alternative(part: Part, contents: Contents, limits: Limits) -> None:
    """Alternatives become one body; other parts of the multipart are files."""
    inner = Contents(parts=contents.parts, removed=contents.removed, root=contents.root)
    for child in part.children:
        _collect_part(child, inner, limits)
    plains = [b.plain for b in inner.bodies if b.plain is not None]
    htmls = [b.html for b in inner.bodies if b.html is not None]
    if plains or htmls:
        plain = "\n\n".join(plains) if plains else None
        contents.bodies.append(Body(plain, "\n".join(htmls) if htmls else None))
    contents.attachments += inner.attachments
    for defect in inner.defects:
        contents.note(defect)


def is_body(part: Part, *, is_root: bool) -> bool:
    """Whether a part is text of the mail and no file; a root is the whole mail."""
    if part.content_type not in ("text/plain", "text/html", "text/enriched", "text/richtext"):
        return False
    disposition, parameters = part.disposition
    if disposition == "attachment":
        return False
    if not (parameters.get("filename") or part.parameters.get("name")):
        return True
    # Binary content may be declared as text.
    return is_root and detect_type(part.decoded(max_bytes=4_096), part.content_type).startswith(
        "text/"
    )


def _add_body(part: Part, contents: Contents, limits: Limits) -> None:
    data = _text_bytes(part, contents, limits)
    charset = part.parameters.get("charset")
    hints = contents.hints(data)
    if part.content_type == "text/html":
        meta = _META_CHARSET.search(data[:4_096]) if not charset else None
        text, defect = decode(data, meta[1].decode() if meta else charset, hints=hints)
        contents.bodies.append(Body(html=text))
    else:
        # Before MIME, files were part of the text.
        for _, _, name, content in find_uu(data) if b"begin " in data else ():
            _add_file(contents, limits, name, "application/octet-stream", content)
        text, defect = decode(data, charset, hints=hints)
        contents.bodies.append(Body(plain=_plain(text, part)))
    contents.note(defect)


def _text_bytes(part: Part, contents: Contents, limits: Limits) -> bytes:
    """As much of a text as we would ever keep."""
    max_bytes = 4 * max(limits.text_chars, limits.html_bytes)
    data = part.decoded(max_bytes=3 * max_bytes)
    if len(data) > max_bytes:
        contents.note(f"text over {max_bytes} bytes; the rest was not read")
    return data[:max_bytes]


def _plain(text: str, part: Part) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if part.content_type in ("text/enriched", "text/richtext"):
        return _without_markup(text)
    if part.parameters.get("format", "").lower() == "flowed":
        return unflow(text, delsp=part.parameters.get("delsp", "").lower() == "yes")
    return text


def _without_markup(text: str) -> str:
    """text/enriched (RFC 1896) without its commands."""
    text = re.sub(r"<param>[^<]*+</param>", "", text, flags=re.IGNORECASE)
    text = re.sub(r"<nl>", "\n", text, flags=re.IGNORECASE)
    return re.sub(r"(<)<|</?[A-Za-z][\w-]{0,60}>", r"\1", text)


def unflow(text: str, *, delsp: bool) -> str:
    """Join the lines that format=flowed split (RFC 3676)."""
    out: list[str] = []
    open_depth = -1
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        content = line[depth:]
        content = content[1:] if content[:1] == " " else content
        is_flowed = content.endswith(" ") and content != "-- "
        if depth != open_depth or content == "-- ":
            out.append("\n" + ">" * depth + (" " if depth and content else ""))
        out.append(content[:-1] if is_flowed and delsp else content)
        open_depth = depth if is_flowed else -1
    return "".join(out)[1:]


def _add_file(
    contents: Contents,
    limits: Limits,
    name: str,
    kind: str,
    content: bytes,
    content_id: str | None = None,
) -> None:
    """Add a file that is not a separate part."""
    name = display_filename(name, max_chars=limits.filename_chars, removed=contents.removed)
    detected = detect_type(content, kind)
    contents.attachments.append(
        ParsedAttachment(name, kind, detected, content, content_id is not None, content_id)
    )


def _add_broken_multipart(part: Part, contents: Contents, limits: Limits) -> None:
    """A multipart in which no part was found: what is there is the text."""
    text, defect = decode(_text_bytes(part, contents, limits), part.parameters.get("charset"))
    contents.note(defect)
    if text.strip():
        contents.bodies.append(Body(plain=text.replace("\r\n", "\n")))


def _add_attachment(part: Part, contents: Contents, limits: Limits) -> None:
    attachment = _attachment(part, contents, limits)
    if attachment.detected_type == "application/ms-tnef" and _unpack(attachment, contents, limits):
        return
    contents.attachments.append(attachment)
    disposition, _ = part.disposition
    if part.message is not None:
        _add_message(part.message, contents, limits, is_shown=disposition != "attachment")
    elif part.content_type == "text/plain" and disposition == "inline":
        _add_body(part, contents, limits)


def _unpack(container: ParsedAttachment, contents: Contents, limits: Limits) -> bool:
    """List the files of a `winmail.dat` in its place; False if it does not open."""
    opened = read_tnef(container.content, max_files=limits.mime_parts)
    if opened is None or not opened.is_whole:
        contents.note("winmail.dat that cannot be opened")
        return False
    for file in opened.files:
        kind = file.content_type if "/" in file.content_type else "application/octet-stream"
        _add_file(contents, limits, file.name, kind, file.content, file.content_id or None)
    if not contents.bodies and (opened.text or opened.html):
        contents.bodies.append(Body(plain=opened.text or None, html=opened.html or None))
    return bool(opened.files or opened.text or opened.html)


def _add_message(message: Part, contents: Contents, limits: Limits, *, is_shown: bool) -> None:
    """The files of a mail inside the mail are files of the mail; its text shows if it may."""
    is_report = "multipart/report" in contents.parts
    inner = Contents(removed=contents.removed)
    _collect_part(message, inner, limits, is_root=True)
    for defect in inner.defects:
        contents.note(defect)
    if not is_report:
        contents.attachments += inner.attachments
    if is_shown and inner.bodies:
        title = "-----Original Message-----" if is_report else "----- Forwarded message -----"
        contents.bodies.append(Body(plain=_heading(title, message)))
        contents.bodies += inner.bodies


def _heading(title: str, message: Part) -> str:
    """What a mail program shows above a mail inside a mail."""
    values = ((name, message.fields.decoded(name.lower())) for name in _HEADING)
    return "\n".join([title, *(f"{name}: {value}" for name, value in values if value)])


def _attachment(part: Part, contents: Contents, limits: Limits) -> ParsedAttachment:
    content = part.decoded()
    disposition, parameters = part.disposition
    content_id = part.fields.first("content-id").strip().strip("<>") or None
    name = parameters.get("filename") or part.parameters.get("name") or ""
    return ParsedAttachment(
        filename=display_filename(name, max_chars=limits.filename_chars, removed=contents.removed)
        if name
        else _generated_name(part, content, contents, limits),
        content_type=cleaned(part.content_type, contents.removed, one_line=True),
        detected_type=detect_type(content, part.content_type),
        content=content,
        inline=disposition != "attachment" and (disposition == "inline" or content_id is not None),
        content_id=content_id,
        charset=part.parameters.get("charset", ""),
    )


def _generated_name(part: Part, content: bytes, contents: Contents, limits: Limits) -> str:
    extension = EXTENSIONS.get(part.content_type, "bin")
    if is_embedded_message(part):
        block = split_header(content, 0, len(content), limits=limits)
        subject = block.fields.decoded("subject")[:100]
        return display_filename(
            f"{clean(subject)}.eml",
            default="message.eml",
            max_chars=limits.filename_chars,
            removed=contents.removed,
        )
    return f"attachment-{len(contents.attachments) + 1}.{extension}"


def find_protection(root: Part, text: str) -> Protection | None:
    """How the mail is signed or encrypted, None if it is neither."""
    protocol = root.parameters.get("protocol", "").lower()
    if root.content_type == "multipart/encrypted":
        return "pgp-encrypted"
    if root.content_type == "multipart/signed":
        return "pgp-signed" if "pgp" in protocol else "smime-signed"
    if root.content_type in ("application/pkcs7-mime", "application/x-pkcs7-mime"):
        kind = root.parameters.get("smime-type", "").lower()
        return "smime-signed" if "signed" in kind else "smime-encrypted"
    start = text[:200].lstrip()
    if start.startswith("-----BEGIN PGP MESSAGE-----"):
        return "pgp-encrypted"
    return "pgp-signed" if start.startswith("-----BEGIN PGP SIGNED MESSAGE-----") else None
