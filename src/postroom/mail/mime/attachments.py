"""Attached files: safe names, real types, invitations, signed and encrypted parts."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal
from urllib.parse import quote

from postroom.mail.data import load
from postroom.mail.message import Invitation
from postroom.mail.mime.charsets import clean
from postroom.mail.mime.parts import Part
from postroom.mail.text.invisible import Removed, cleaned

MAX_CHARS = 255
MAX_DOWNLOAD_BYTES = 150
_UNSAFE = re.compile(r'[<>:"|?*]')
_PATH = re.compile(r"[\\/]+")
_RESERVED = re.compile(r"^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|$)", re.IGNORECASE)
_SHOWS_NOTHING = ("Cc", "Cs", "Zl", "Zp")


def shown_filename(
    name: str, *, default: str = "attachment", removed: Removed | None = None
) -> str:
    """The sender's name for a file as one may show it: no path, nothing that does not show."""
    name = cleaned(clean(name), removed, one_line=True)
    pieces = [piece for piece in _PATH.split(name) if piece.strip(" .")]
    last = " ".join(pieces[-1].split()) if pieces else ""
    if not last.isprintable():
        last = "".join(c for c in last if unicodedata.category(c) not in _SHOWS_NOTHING)
    return shorten(last, MAX_CHARS) or default


def safe_filename(name: str, *, default: str = "attachment") -> str:
    """A name that no system treats specially: for writing a file, not only for showing it."""
    name = _UNSAFE.sub("_", shown_filename(name, default="")).strip(". ")
    if _RESERVED.match(name):
        name = f"_{name}"
    return name[:MAX_CHARS] or default


def shorten(name: str, most: int) -> str:
    """Cut the stem, keep the extension."""
    if len(name) <= most:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension) > 20:
        return name[:most]
    return stem[: most - len(extension) - 1] + "." + extension


def download_name(filename: str) -> str:
    """The safe name, cut to fit a header."""
    name = safe_filename(filename)
    most = MAX_DOWNLOAD_BYTES
    while len(name.encode()) > MAX_DOWNLOAD_BYTES:
        name = shorten(name, most)
        most -= 1
    return name


def content_disposition(filename: str) -> str:
    """The header value that makes a browser save a file under this name (RFC 6266, RFC 8187)."""
    name = download_name(filename)
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^\w .()+,=@!-]", "_", plain).strip() or "attachment"
    if plain == name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


_DATA = load("file_types")
_MAGIC: list[tuple[int, bytes, str]] = [
    (offset, magic.encode("latin-1"), found) for offset, magic, found in _DATA["magic"]
]
_OFFICE = {folder.encode(): found for folder, found in _DATA["office"].items()}
_HTML = tuple(start.encode() for start in _DATA["html"])
_ACTIVE, _VAGUE = frozenset(_DATA["active"]), frozenset(_DATA["vague"])
EXTENSIONS: dict[str, str] = _DATA["extensions"]


def detect_type(content: bytes, declared: str) -> str:
    """The type that the bytes give away, else the one declared."""
    head = content[:16]
    for offset, magic, found in _MAGIC:
        if head[offset : offset + 16].startswith(magic[: 16 - offset]) and content.startswith(
            magic, offset
        ):
            return _office(content) if found == "application/zip" else found
    start = content[:64].lstrip().lower()
    if start.startswith(_HTML):
        return "text/html"
    return declared or "application/octet-stream"


def _office(content: bytes) -> str:
    names = content[:4_096]
    for folder, found in _OFFICE.items():
        if folder in names:
            return found
    return "application/zip"


def is_disguised(declared: str, detected: str) -> bool:
    """True if something active came under a harmless name."""
    if detected == declared or detected not in _ACTIVE:
        return False
    if detected == "text/html":
        return declared.startswith(("image/", "audio/", "video/", "application/pdf"))
    return declared not in _VAGUE and not declared.startswith(("application/x-", "text/x-"))


_FOLD = re.compile(r"\r?\n[ \t]")
_MOST = 200_000
_MAX_ATTENDEES = 200


def parse_invitation(text: str) -> Invitation | None:
    """The first event, None if there is none."""
    lines = _FOLD.sub("", text[:_MOST]).replace("\r\n", "\n").split("\n")
    method, event, attendees = "", dict[str, str](), list[str]()
    inside = False
    for line in lines:
        name, value = _property(line)
        if name == "METHOD":
            method = value.upper()
        elif name in ("BEGIN", "END") and value.upper() in ("VEVENT", "VTODO"):
            if name == "END":
                break
            inside = True
        elif inside and name == "ATTENDEE" and len(attendees) < _MAX_ATTENDEES:
            attendees.append(_address(value))
        elif inside:
            event.setdefault(name, value)
    if not event:
        return None
    return Invitation(
        method=method,
        uid=event.get("UID", ""),
        summary=_unescaped(event.get("SUMMARY", "")),
        location=_unescaped(event.get("LOCATION", "")),
        organizer=_address(event.get("ORGANIZER", "")),
        start=event.get("DTSTART", ""),
        end=event.get("DTEND", ""),
        attendees=tuple(attendees),
    )


def _property(line: str) -> tuple[str, str]:
    """The name and value of a content line, without its parameters."""
    name = re.match(r"[A-Za-z-]{1,40}", line)
    if name is None:
        return "", ""
    quoted = False
    for index in range(name.end(), len(line)):
        quoted ^= line[index] == '"'
        if line[index] == ":" and not quoted:
            return name[0].upper(), line[index + 1 :].strip()
    return "", ""


def _address(value: str) -> str:
    return value[7:] if value[:7].lower() == "mailto:" else value


def _unescaped(value: str) -> str:
    return re.sub(r"\\([nN;,\\])", lambda m: "\n" if m[1] in "nN" else m[1], value)


Protection = Literal["pgp-signed", "pgp-encrypted", "smime-signed", "smime-encrypted"]


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


NEEDS = ("pypdfium2", "encodings.utf_16_le")
"""The modules that are loaded only when a PDF is read."""


def pdf_text(data: bytes, max_chars: int) -> str:
    """The text of the first pages, as far as *max_chars* characters and one more.

    Raises:
        ValueError: it is no PDF, it is locked, or it cannot be read.
    """
    import pypdfium2  # type: ignore[import-untyped]

    try:
        document = pypdfium2.PdfDocument(data)
        return _text_of_pages(document, max_chars)
    except pypdfium2.PdfiumError as error:
        raise ValueError(f"the PDF cannot be read: {error}") from error


def _text_of_pages(document: object, max_chars: int) -> str:
    """One character more than allowed tells that there is more."""
    pages: list[str] = []
    left = max_chars + 1
    for page in document:  # type: ignore[attr-defined]
        text = clean(page.get_textpage().get_text_bounded(errors="replace")).replace("\r\n", "\n")
        pages.append(text.strip()[:left])
        left -= len(pages[-1]) + 1
        if left <= 0:
            break
    return "\n".join(pages).lstrip()[: max_chars + 1]
