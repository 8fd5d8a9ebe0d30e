"""The forms that texts must have, as patterns which JSON Schema understands too."""

from __future__ import annotations

from postroom.mail.fold import IGNORABLE

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""What could end a header, or a line on a terminal."""

LINE = rf"^[^{CONTROL}]*$"
NAME = rf"^[^{CONTROL}]*[^{CONTROL}\s][^{CONTROL}]*$"
"""A line that is not blank."""

SOUGHT = rf"^[^\x00]*[^\x00\x1c-\x1f\s{IGNORABLE}][^\x00]*$"
"""Something is left of it once it is folded."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LOCAL = rf"{_ATOM}(?:\.{_ATOM})*"
_AT_DOMAIN = rf"{_LOCAL}@{_LABEL}(?:\.{_LABEL})*"
_MAILBOX = rf"(?:[^{CONTROL}\"<>@,;:\\]* <{_AT_DOMAIN}>|{_AT_DOMAIN})"

ADDRESS = rf"^{_AT_DOMAIN}$"
MAILBOX = rf"^{_MAILBOX}$"
"""`ana@example.com` or `Ana <ana@example.com>`."""

MAILBOX_OR_NONE = rf"^(?:{_MAILBOX})?$"
MAILBOXES = rf"^{_MAILBOX}(?:, {_MAILBOX})*$"

SERVED = "{served}"
"""Stands for our own domains, which only a running server knows."""

OWN_ADDRESS = rf"^{_LOCAL}@{SERVED}$"
USERNAME = r"^[A-Za-z0-9]+(?:(?:\.|[_-]+)[A-Za-z0-9]+)*$"
MESSAGE_ID_OR_NONE = r"^(?:<[!-;=?-~]{1,900}>|[!-;=?-~]{1,900})?$"
MEDIA_TYPE = r"^[A-Za-z0-9][A-Za-z0-9_.+-]*/[A-Za-z0-9][A-Za-z0-9_.+-]*$"
BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)
"""As an encoder writes it: padded, without stray bits at its end."""
