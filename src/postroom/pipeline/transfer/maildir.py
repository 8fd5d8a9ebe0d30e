"""Folders in Maildir format: read and written."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence

from postroom.model.inbox import STANDARD_MAILBOXES, TRASH
from postroom.model.message import FLAGS

_LETTERS = {"D": "draft", "F": "flagged", "R": "answered", "S": "seen"}
_TRASHED = "T"
_INFO = re.compile(r"[:!;]2,([A-Za-z]*)$")
_OTHER_NAMES = {
    "spam": "Junk",
    "junk e-mail": "Junk",
    "deleted items": TRASH,
    "deleted messages": TRASH,
    "sent items": "Sent",
    "sent messages": "Sent",
}
_STANDARD = {name.lower(): name for name in STANDARD_MAILBOXES} | _OTHER_NAMES


def flags_in(filename: str) -> tuple[str, ...]:
    """The flags that a file name carries, such as `…:2,FS`."""
    letters = _letters(filename)
    found = {flag for letter, flag in _LETTERS.items() if letter in letters}
    return tuple(flag for flag in FLAGS if flag in found)


def is_trashed(filename: str) -> bool:
    """Whether a file name carries the flag T."""
    return _TRASHED in _letters(filename)


def _letters(filename: str) -> str:
    match = _INFO.search(filename)
    return match[1] if match else ""


def info_for(flags: Sequence[str]) -> str:
    """The suffix of a file name in `cur` for these flags."""
    letters = "".join(letter for letter, flag in _LETTERS.items() if flag in flags)
    return f":2,{letters}"


def mailbox_in(folders: Sequence[str]) -> str:
    """The mailbox of a folder below a Maildir.

    `.Work.Clients` (Maildir++) and `Work/Clients` are both Work/Clients.
    """
    parts = [
        _decode(part)
        for folder in folders
        for part in (folder[1:].split(".") if folder.startswith(".") else [folder])
    ]
    name = "/".join(part for part in parts if part)
    return _STANDARD.get(name.lower(), name)


def folder_for(mailbox: str) -> str:
    """The folder of a mailbox, in the Maildir++ spelling; `mailbox_in` reads it back."""
    parts = mailbox.split("/")
    return "." + ".".join(_encode(part) for part in (parts if all(parts) else [mailbox]))


def _decode(name: str) -> str:
    """Decode modified UTF-7 (RFC 3501 §5.1.3) of Maildir++; other names are left unchanged."""
    try:
        return re.sub(r"&([^-]*)-", _read_shifted, name)
    except (NotBase64, UnicodeDecodeError):
        return name


def _read_shifted(match: re.Match[str]) -> str:
    if not match[1]:
        return "&"
    text = match[1].replace(",", "/")
    return b64decode(text + "=" * (-len(text) % 4), validate=True).decode("utf-16-be")


def _encode(name: str) -> str:
    """Encode modified UTF-7; dots and slashes too, since they are separators."""
    return re.sub(r"&|[./]+|[^ -~]+", _write_shifted, name)


def _write_shifted(match: re.Match[str]) -> str:
    if match[0] == "&":
        return "&-"
    text = b64encode(match[0].encode("utf-16-be")).rstrip(b"=").decode()
    return "&" + text.replace("/", ",") + "-"
