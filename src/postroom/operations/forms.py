"""The forms that texts must have, as patterns which JSON Schema understands too."""

from __future__ import annotations

from typing import Any

from postroom.mail.fold import IGNORABLE

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""What could end a header, or a line on a terminal."""

SPACE = r"\x09-\x0d\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""What `str.isspace` calls space. `\\s` means something else in every dialect of patterns."""

LINE = rf"^[^{CONTROL}]*$"
NAME = rf"^[^{CONTROL}]*[^{CONTROL}{SPACE}{IGNORABLE}][^{CONTROL}]*$"
"""A line of which something can be seen."""

SOUGHT = rf"^[^\x00]*[^\x00{SPACE}{IGNORABLE}][^\x00]*$"
"""Something is left of it once it is folded."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LOCAL = rf"{_ATOM}(?:\.{_ATOM})*"
_ADDRESS = rf"{_LOCAL}@{_LABEL}(?:\.{_LABEL})*"
_MAILBOX = rf"(?:[^{CONTROL}\"<>@,;:\\]* <{_ADDRESS}>|{_ADDRESS})"
_TOO_LONG = {"type": "string", "pattern": "[^<>@ ]{65,}@|[^<> ]{255,}|^[^<]{500,}"}

MAILBOX: dict[str, Any] = {"pattern": rf"^{_MAILBOX}$", "not": _TOO_LONG}
"""`ana@example.com` or `Ana <ana@example.com>`."""

MAILBOX_OR_NONE: dict[str, Any] = {"pattern": rf"^(?:{_MAILBOX})?$", "not": _TOO_LONG}

SERVED = "{served}"
"""Stands for our own domains, which only a running server knows."""

OWN_ADDRESS: dict[str, Any] = {"pattern": rf"^{_LOCAL}@{SERVED}$", "not": _TOO_LONG}
USERNAME = r"^[A-Za-z0-9]+(?:(?:\.|[_-]+)[A-Za-z0-9]+)*$"
HANDLE = r"^[A-Za-z0-9_-]+$"
SHORT_HANDLE = r"^[A-Za-z0-9_-]{1,64}$"
HOST = r"^[A-Za-z0-9._:-]+$"
MAILBOX_NAME = r"^[^\x00-\x1f\x7f]+$"
KEY = r"^[^\x00-\x1f\x7f-\x9f]+$"
NOT_BLANK = r"[^\s]"
MESSAGE_ID_OR_NONE = r"^(?:<[!-;=?-~]{1,900}>|[!-;=?-~]{1,900})?$"
MEDIA_TYPE = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*/[A-Za-z0-9][A-Za-z0-9_.+-]*$"
BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)
"""As an encoder writes it: padded, without stray bits at its end."""

IN_WORDS = {
    LINE: "must be on one line",
    NAME: "must be on one line, and not only spaces or what cannot be seen",
    USERNAME: "must be letters and digits, with . _ or - between them",
    HANDLE: "must be letters, digits, _ and - only",
    SHORT_HANDLE: "must be 1 to 64 letters, digits, _ and -",
    HOST: "must be a host, such as mail.example.com",
    MAILBOX_NAME: "must be on one line, without control characters",
    KEY: "must be on one line, without control characters",
    NOT_BLANK: "must not be blank",
}
"""What to tell somebody whose text has another form."""
