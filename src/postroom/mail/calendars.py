"""Invitations: the one event of a text/calendar part (RFC 5545)."""

from __future__ import annotations

import re

from postroom.mail.message import Invitation

_FOLD = re.compile(r"\r?\n[ \t]")
_MOST = 200_000
_MOST_ATTENDEES = 200


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
        elif inside and name == "ATTENDEE" and len(attendees) < _MOST_ATTENDEES:
            attendees.append(_address(value))
        elif inside:
            event.setdefault(name, value)
    if not event:
        return None
    return Invitation(
        method=method,
        uid=event.get("UID", ""),
        summary=_text(event.get("SUMMARY", "")),
        location=_text(event.get("LOCATION", "")),
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


def _text(value: str) -> str:
    return re.sub(r"\\([nN;,\\])", lambda m: "\n" if m[1] in "nN" else m[1], value)
