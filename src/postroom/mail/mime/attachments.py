"""Attached files: safe names, real types, invitations, signed and encrypted parts, TNEF."""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from postroom.mail.data import load
from postroom.mail.message import Invitation
from postroom.mail.mime.decoding import clean, decode
from postroom.mail.text.invisible import Removed, cleaned

MAX_CHARS = 255
MAX_DOWNLOAD_BYTES = 150
_UNSAFE = re.compile(r'[<>:"|?*]')
_PATH = re.compile(r"[\\/]+")
_RESERVED = re.compile(r"^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|$)", re.IGNORECASE)
_SHOWS_NOTHING = ("Cc", "Cs", "Zl", "Zp")


def display_filename(
    name: str,
    *,
    default: str = "attachment",
    max_chars: int = MAX_CHARS,
    removed: Removed | None = None,
) -> str:
    """The sender's name for a file as one may show it: no path, nothing that does not show."""
    name = cleaned(clean(name), removed, one_line=True)
    pieces = [piece for piece in _PATH.split(name) if piece.strip(" .")]
    last = " ".join(pieces[-1].split()) if pieces else ""
    if not last.isprintable():
        last = "".join(c for c in last if unicodedata.category(c) not in _SHOWS_NOTHING)
    return shorten(last, max_chars) or default


def safe_filename(name: str, *, default: str = "attachment") -> str:
    """A name that no system treats specially: for writing a file, not only for showing it."""
    name = _UNSAFE.sub("_", display_filename(name, default="")).strip(". ")
    if _RESERVED.match(name):
        name = f"_{name}"
    return name[:MAX_CHARS] or default


def shorten(name: str, max_chars: int) -> str:
    """Cut the stem, keep the extension."""
    if len(name) <= max_chars:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension) > 20 or len(extension) + 1 >= max_chars:
        return name[:max_chars]
    return stem[: max_chars - len(extension) - 1] + "." + extension


def download_name(filename: str) -> str:
    """The safe name, cut to fit a header."""
    name = safe_filename(filename)
    max_chars = MAX_DOWNLOAD_BYTES
    while len(name.encode()) > MAX_DOWNLOAD_BYTES:
        name = shorten(name, max_chars)
        max_chars -= 1
    return name


def content_disposition(filename: str) -> str:
    """The header value that makes a browser save a file under this name (RFC 6266, RFC 8187)."""
    name = download_name(filename)
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^\w .()+,=@!-]", "_", plain).strip() or "attachment"
    if plain == name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


_TYPES = load("file_types")
_MAGIC: list[tuple[int, bytes, str]] = [
    (offset, magic.encode("latin-1"), found) for offset, magic, found in _TYPES["magic"]
]
_OFFICE: dict[bytes, str] = {folder.encode(): found for folder, found in _TYPES["office"].items()}
_HTML_STARTS = tuple(start.encode() for start in _TYPES["html"])
_ACTIVE, _VAGUE = frozenset(_TYPES["active"]), frozenset(_TYPES["vague"])
EXTENSIONS: dict[str, str] = _TYPES["extensions"]


def detect_type(content: bytes, declared: str) -> str:
    """The type that the bytes give away, else the one declared."""
    for offset, magic, found in _MAGIC:
        if content.startswith(magic, offset):
            if found != "application/zip":
                return found
            folders = content[:4_096]
            return next((kind for folder, kind in _OFFICE.items() if folder in folders), found)
    start = content[:64].lstrip().lower()
    if start.startswith(_HTML_STARTS):
        return "text/html"
    return declared or "application/octet-stream"


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
        name, value = content_line(line)
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
        summary=unescape_text(event.get("SUMMARY", "")),
        location=unescape_text(event.get("LOCATION", "")),
        organizer=_address(event.get("ORGANIZER", "")),
        start=event.get("DTSTART", ""),
        end=event.get("DTEND", ""),
        attendees=tuple(attendees),
    )


def content_line(line: str) -> tuple[str, str]:
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


def unescape_text(value: str) -> str:
    return re.sub(r"\\([nN;,\\])", lambda m: "\n" if m[1] in "nN" else m[1], value)


# TNEF, the `winmail.dat` of Outlook, after the public description of the format ([MS-OXTNEF],
# [MS-OXRTFCP]): the files, and the text if the mail has no other.
_SIGNATURE = 0x223E9F78
_RENDERING, _TITLE, _DATA, _ATTACHMENT = 0x9002, 0x8010, 0x800F, 0x9005
_MESSAGE_PROPERTIES, _CODE_PAGE = 0x9003, 0x9007
_LONG_NAME, _MIME_TYPE, _CONTENT_ID, _OBJECT = 0x3707, 0x370E, 0x3712, 0x3701
_BODY, _HTML = 0x1000, 0x1013
_FIXED = {2: 4, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 10: 4, 11: 4, 20: 8, 64: 8, 72: 16, 1: 4}
_TEXTS = (0x1E, 0x1F)
_VARIABLE = (0x1E, 0x1F, 0x102, 0x0D)
_MAX_PROPERTIES = 2_000
_MAX_VALUES = 1_000


@dataclass(slots=True)
class TnefFile:
    """A file inside the container."""

    name: str = ""
    content_type: str = ""
    content_id: str = ""
    content: bytes = b""


@dataclass(slots=True)
class Tnef:
    """What was inside. `is_whole` is False if the container breaks off."""

    files: list[TnefFile] = field(default_factory=list)
    text: str = ""
    html: str = ""
    is_whole: bool = True


def read_tnef(data: bytes, *, max_files: int) -> Tnef | None:
    """Open a container; None if the data is not one."""
    if len(data) < 6 or struct.unpack_from("<I", data)[0] != _SIGNATURE:
        return None
    found = Tnef()
    charset = "cp1252"
    try:
        for attribute, value in _attributes(data):
            if attribute == _CODE_PAGE and len(value) >= 4:
                charset = f"cp{struct.unpack_from('<I', value)[0]}"
            elif attribute == _RENDERING:
                if len(found.files) >= max_files:
                    break
                found.files.append(TnefFile())
            elif attribute == _MESSAGE_PROPERTIES:
                _read_bodies(found, value, charset)
            elif found.files:
                _read_part(found.files[-1], attribute, value, charset)
    except (struct.error, ValueError, IndexError):
        found.is_whole = False
    found.files = [file for file in found.files if file.content]
    return found


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 6
    while at + 9 <= len(data):
        _, attribute, _, length = struct.unpack_from("<BHHI", data, at)
        at += 9
        if at + length > len(data):
            raise ValueError("an attribute is longer than the file")
        yield attribute, data[at : at + length]
        at += length + 2  # a checksum follows


def _read_bodies(found: Tnef, value: bytes, charset: str) -> None:
    for tag, kind, content in _properties(value):
        if tag == _BODY and kind in _TEXTS:
            found.text = _text(content, kind, charset)
        elif tag == _HTML:
            found.html = decode(content, charset)[0]


def _read_part(file: TnefFile, attribute: int, value: bytes, charset: str) -> None:
    if attribute == _TITLE:
        file.name = file.name or _text(value, 0x1E, charset)
    elif attribute == _DATA:
        file.content = value
    elif attribute == _ATTACHMENT:
        for tag, kind, content in _properties(value):
            if tag == _LONG_NAME:
                file.name = _text(content, kind, charset) or file.name
            elif tag == _MIME_TYPE:
                file.content_type = _text(content, kind, charset).lower()
            elif tag == _CONTENT_ID:
                file.content_id = _text(content, kind, charset)
            elif tag == _OBJECT and not file.content:
                file.content = content[16:] if kind == 0x0D else content


def _text(content: bytes, kind: int, charset: str) -> str:
    if kind == 0x1F:
        return clean(content.decode("utf-16-le", "replace")).rstrip("\0")
    return decode(content.rstrip(b"\0"), charset)[0]


def _properties(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The MAPI properties: tag, type and the first value of each."""
    (count,) = struct.unpack_from("<I", data)
    at = 4
    for _ in range(min(count, _MAX_PROPERTIES)):
        kind, tag = struct.unpack_from("<HH", data, at)
        at += 4
        if tag >= 0x8000:
            at = _skip_name(data, at)
        is_multiple, kind = bool(kind & 0x1000), kind & 0x0FFF
        if kind in _VARIABLE or is_multiple:
            value, at = _variable(data, at, kind)
        else:
            size = _FIXED.get(kind, 4)
            value, at = data[at : at + size], at + size
        yield tag, kind, value


def _skip_name(data: bytes, at: int) -> int:
    """A named property has a GUID, and then a number or a name."""
    (kind, value) = struct.unpack_from("<II", data, at + 16)
    return at + 24 + (_padded(value) if kind == 1 else 0)


def _variable(data: bytes, at: int, kind: int) -> tuple[bytes, int]:
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    first = b""
    for number in range(min(count, _MAX_VALUES)):
        if kind in _VARIABLE:
            (length,) = struct.unpack_from("<I", data, at)
            at += 4
        else:
            length = _FIXED.get(kind, 4)
        if at + length > len(data):
            raise ValueError("a property is longer than its block")
        first = data[at : at + length] if number == 0 else first
        at += _padded(length)
    return first, at


def _padded(length: int) -> int:
    return (length + 3) & ~3
