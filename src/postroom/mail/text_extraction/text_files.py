"""Attached files that are text: HTML, calendars, mails and plain files.

They are read by the parser of mail, so that what is hidden from a reader of a mail is hidden in
a file as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from postroom.mail.data import load
from postroom.mail.message import ParsedMessage
from postroom.mail.mime.attachments import content_line, detect_type, unescape_text
from postroom.mail.mime.decoding import codec_name
from postroom.mail.text.invisible import Removed, cleaned
from postroom.mail.text_extraction.extract import ExtractedText

TextKind = Literal["html", "calendar", "mail", "plain"]

_KINDS: dict[str, TextKind] = load("file_types")["text_kinds"]
_SAMPLE = 65_536
_BINARY = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
_MAX_BINARY = 0.01
_BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8", b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16",
}  # fmt: skip
"""Byte order marks, longer ones first."""

_OF_THE_FILE = re.compile(r"HTML |text over |parse_failed|not valid |unknown charset")
"""Defects that say something about a file; others are about the headers of a mail."""


def text_kind(data: bytes, content_type: str, filename: str) -> TextKind | None:
    """How to read a file that is no document; None if it is not text."""
    detected = detect_type(data, content_type)
    extension = filename.rpartition(".")[2].lower()
    if not _is_text(data):
        return None
    for name in (content_type.lower(), detected, extension):
        if name in _KINDS:
            return _KINDS[name]
    return "plain"


def _is_text(data: bytes) -> bool:
    if _byte_order_mark(data):
        return True
    sample = data[:_SAMPLE]
    binary = len(sample) - len(sample.translate(None, _BINARY))
    return b"\0" not in sample and binary <= len(sample) * _MAX_BINARY


def _byte_order_mark(data: bytes) -> str:
    return next(
        (charset for mark, charset in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), ""
    )


def needs_charset(data: bytes) -> bool:
    """Whether the bytes do not tell their charset themselves."""
    if _byte_order_mark(data):
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    # ISO-2022-JP and its relatives are ASCII with escapes.
    return b"\x1b$" in data or b"~{" in data


def wrap_as_mail(data: bytes, kind: TextKind, charset: str) -> bytes:
    """A mail that has a file as its text."""
    mark = _byte_order_mark(data)
    if mark in ("utf-16", "utf-32"):
        data, mark = data.decode(mark, "replace").encode(), "utf-8"
    data = data.removeprefix(b"\xef\xbb\xbf")
    charset = mark or (charset if codec_name(charset) else "")
    if not charset and not needs_charset(data):
        charset = "utf-8"
    subtype = "html" if kind == "html" else "plain"
    parameter = f'; charset="{charset}"' if charset and (subtype == "plain" or mark) else ""
    head = f"Content-Type: text/{subtype}{parameter}\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    return head.encode() + data


def mail_text(parsed: ParsedMessage, *, with_headers: bool = True) -> ExtractedText:
    """The text of a parsed mail, under the headers that a reader sees."""
    warnings = [
        f"hidden text omitted: {hidden.chars * hidden.count} characters ({hidden.reason})"
        for hidden in parsed.security.hidden_text
    ]
    if count := sum(parsed.security.removed_characters.values()):
        warnings.append(f"invisible characters removed: {count}")
    warnings += [d for d in parsed.defects if with_headers or _OF_THE_FILE.match(d)]
    head = "\n".join(_headers(parsed)) if with_headers else ""
    text = f"{head}\n\n{parsed.text}" if head else parsed.text
    return ExtractedText(text, tuple(dict.fromkeys(warnings)), parsed.security.hidden_text)


def _headers(parsed: ParsedMessage) -> Iterator[str]:
    for role in ("from", "to", "cc"):
        named = [a for a in parsed.addresses if a.role == role]
        if named:
            shown = (f"{a.name} <{a.address}>" if a.name else a.address for a in named[:50])
            yield f"{role.title()}: {', '.join(shown)}"
    if parsed.date is not None:
        yield f"Date: {parsed.date:%Y-%m-%d %H:%M:%S %z}"
    if parsed.subject:
        yield f"Subject: {parsed.subject}"
    if parsed.attachments:
        yield f"Attachments: {', '.join(a.filename for a in parsed.attachments[:50])}"


def findings(found: ExtractedText) -> ExtractedText:
    """The text of a document without invisible characters."""
    removed = Removed()
    text = cleaned(found.text, removed).strip("\n")
    count = sum(removed.counts.values())
    more = (f"invisible characters removed: {count}",) if count else ()
    return ExtractedText(text, (*found.warnings, *more), (*found.hidden, *removed.hidden))


_FOLD = re.compile(r"\r?\n[ \t]")
_SHOWN = {
    "SUMMARY": "Summary", "DTSTART": "Start", "DTEND": "End", "DUE": "Due",
    "DURATION": "Duration", "RRULE": "Repeats", "LOCATION": "Location", "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee", "STATUS": "Status", "URL": "Link", "DESCRIPTION": "Description",
}  # fmt: skip
_ENTRIES = ("VEVENT", "VTODO", "VJOURNAL", "VFREEBUSY")
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_ZONE = re.compile(r";TZID=\"?([^:;\"]{1,100})", re.IGNORECASE)


def calendar_text(text: str) -> str:
    """The entries of a calendar, a property on each line; other text stays as it is."""
    lines = re.split(r"\r?\n", _FOLD.sub("", text))
    entries: list[list[str]] = []
    open_components: list[str] = []
    for line in lines:
        name, value = content_line(line)
        if name == "METHOD" and value:
            entries.append([f"Method: {value}"])
        elif name == "BEGIN":
            open_components.append(value.upper())
            if value.upper() in _ENTRIES:
                entries.append([])
        elif name == "END":
            open_components = open_components[:-1]
        elif name in _SHOWN and open_components and open_components[-1] in _ENTRIES:
            entries[-1].append(f"{_SHOWN[name]}: {_property_text(name, value, line)}")
    return "\n\n".join("\n".join(entry) for entry in entries if entry) or text


def _property_text(name: str, value: str, line: str) -> str:
    time = _TIME.fullmatch(value)
    if time and name in ("DTSTART", "DTEND", "DUE"):
        year, month, day, hour, minute, second, is_utc = time.groups()
        zone = _ZONE.search(line.partition(value)[0])
        clock = f" {hour}:{minute}:{second}" if hour else ""
        where = " UTC" if is_utc else f" {zone[1]}" if zone else ""
        return f"{year}-{month}-{day}{clock}{where}"
    address = value[7:] if value[:7].lower() == "mailto:" else value
    return unescape_text(address)
