"""TNEF: the `winmail.dat` into which Outlook puts files that nobody else can open.

Read after the public description of the format ([MS-OXTNEF], [MS-OXRTFCP]); only what a reader
wants: the files, and the text if the mail has no other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.mail.mime.charsets import clean, decode

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


def read_tnef(data: bytes, *, most_files: int) -> Tnef | None:
    """Open a container, None if it is none."""
    if len(data) < 6 or struct.unpack_from("<I", data)[0] != _SIGNATURE:
        return None
    found = Tnef()
    charset = "cp1252"
    try:
        for attribute, value in _attributes(data):
            if attribute == _CODE_PAGE and len(value) >= 4:
                charset = f"cp{struct.unpack_from('<I', value)[0]}"
            elif attribute == _RENDERING:
                if len(found.files) >= most_files:
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
