"""What a client says in SMTP (RFC 5321), taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from postroom.errors import InvalidInput
from postroom.mail.compose import parse_address

MOST_ADDRESS_CHARS = 320
_PATH = re.compile(r"(FROM|TO):\s?<((?:@[^:<>\s]{1,255}:)?)([^<>]*)>(?:\s+(\S.*))?", re.IGNORECASE)

_QUOTED = re.compile(r'"([\w.!#$%&\'*+/=?^`{|}~-]{1,64})"@([^@"]{1,255})')


@dataclass(frozen=True, slots=True)
class Path:
    """The address of MAIL FROM or RCPT TO, and the parameters after it."""

    address: str
    parameters: dict[str, str]


def parse_path(word: str, argument: str) -> Path | None:
    """Read `FROM:<a@b> SIZE=1`; None if it cannot be read. A route in front is passed over."""
    match = _PATH.fullmatch(argument.strip())
    if match is None or match[1].upper() != word:
        return None
    address = _unquoted(match[3])
    if address and not _is_address(address) and not (word == "TO" and _is_postmaster(address)):
        return None
    parameters: dict[str, str] = {}
    for part in (match[4] or "").split():
        name, _, value = part.partition("=")
        parameters[name.upper()] = value
    return Path(address, parameters)


def _is_postmaster(address: str) -> bool:
    """RFC 5321 §4.1.1.3: the one recipient that needs no domain."""
    return address.lower() == "postmaster"


def _unquoted(address: str) -> str:
    """The same address without quotes that it could do without (RFC 5321 §4.1.2)."""
    match = _QUOTED.fullmatch(address)
    return f"{match[1]}@{match[2]}" if match else address


def _is_address(text: str) -> bool:
    if len(text) > MOST_ADDRESS_CHARS or any(c.isspace() or not c.isprintable() for c in text):
        return False
    try:
        name, _ = parse_address(text)
    except InvalidInput:
        # Stranger addresses than we would write may send us mail; they only have to be one line.
        return text.count("@") >= 1
    return not name


def has_bare_newline(data: bytes | bytearray) -> bool:
    """Whether a CR or an LF stands alone: the stuff that smuggled mail is made of."""
    pairs = data.count(b"\r\n")
    return not pairs == data.count(b"\n") == data.count(b"\r")


def has_long_line(data: bytes, most: int) -> bool:
    """Whether a line is longer than so many bytes, without its end."""
    start = 0
    while len(data) - start > most + 2:
        end = data.rfind(b"\n", start, start + most + 2)
        if end < 0:
            return True
        start = end + 1
    return False


def unstuffed(data: bytes) -> bytes:
    """The mail without the dots that were put in front of dots (RFC 5321 §4.5.2)."""
    whole = data.replace(b"\r\n.", b"\r\n")
    return whole[1:] if whole.startswith(b".") else whole


_RECEIVED = re.compile(rb"^received:", re.IGNORECASE | re.MULTILINE)


def hops(data: bytes) -> int:
    """How many servers a mail has passed, as far as it says."""
    return len(_RECEIVED.findall(data[: data.find(b"\r\n\r\n")]))
