"""Addresses in requests: parsed strictly, because mail is sent to them."""

from __future__ import annotations

import re

from postroom.errors import InvalidInput

_PIECE = re.compile(r'(?:"(?:[^"\\]|\\.)*+(?:"|$)|[^",;])++|[,;]')
_NAMED = re.compile(
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^"<>@,;:\\]*+))\s*+<(?P<angle>[^<>]++)>'
)
_DOT_ATOM = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_INTERNATIONAL = re.compile(r'[^ ()<>\[\]:;@\\,."]+(?:\.[^ ()<>\[\]:;@\\,."]+)*')
"""RFC 6532 §3.2: letters of every script, in an address that SMTPUTF8 takes."""

_QUOTED_LOCAL = re.compile(r'"(?:[ !#-\[\]-~]|\\[ -~])+"')
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LITERAL = re.compile(r"\[(?:\d{1,3}(?:\.\d{1,3}){3}|IPv6:[0-9A-Fa-f:.]{2,45})\]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAX_ADDRESS = 254
_MAX_LOCAL = 64
_MAX_NAME = 500


def parse_address(text: str, *, field: str = "address") -> tuple[str, str]:
    """Name and address of `Ada <ada@example.org>` or `ada@example.org`.

    Raises:
        InvalidInput: if it is not exactly one address that mail can be sent to.
    """
    found = parse_address_list(text, field=field)
    if len(found) != 1:
        raise InvalidInput(f"{field}: give one address, not {len(found)}", field=field)
    return found[0]


def parse_own_address(text: str, *, field: str = "address") -> tuple[str, str]:
    """Parse an address of a local inbox. It must be ASCII, so that everybody can write to it.

    Raises:
        InvalidInput: if it is not.
    """
    name, address = parse_address(text, field=field)
    if not address.isascii():
        raise InvalidInput(
            f"{field}: {_shown(address)} has letters before the @ that few servers accept;"
            " use an address in ASCII",
            field=field,
        )
    return name, address


def parse_address_list(text: str, *, field: str = "addresses") -> tuple[tuple[str, str], ...]:
    """Names and addresses of a comma-separated list; each must be valid.

    Raises:
        InvalidInput: naming the field and the address that is wrong.
    """
    refuse_controls(text, field)
    pieces = [piece.strip() for piece in _PIECE.findall(text)]
    found = [_parse_one(piece, field) for piece in pieces if piece not in ("", ",", ";")]
    if not found or _PIECE.sub("", text).strip():
        raise InvalidInput(f"{field}: {_shown(text)} is not an e-mail address", field=field)
    return tuple(found)


def _parse_one(piece: str, field: str) -> tuple[str, str]:
    named = _NAMED.fullmatch(piece)
    if named is None:
        return "", check_address(piece, field=field)
    name = named["plain"] if named["quoted"] is None else re.sub(r"\\(.)", r"\1", named["quoted"])
    return name.strip(), check_address(named["angle"].strip(), field=field)


def check_address(address: str, *, field: str) -> str:
    """The address in the form in which it travels; a domain in other scripts becomes ASCII.

    Raises:
        InvalidInput: if no mail server would take it.
    """
    refuse_controls(address, field)
    local, at, domain = address.rpartition("@")
    if not at or not local or not domain:
        raise InvalidInput(f"{field}: {_shown(address)} is not an e-mail address", field=field)
    if not _is_local(local):
        raise InvalidInput(f"{field}: {_shown(address)}: bad part before the @", field=field)
    checked = f"{local}@{_check_domain(domain, address, field)}"
    if len(checked.encode()) > _MAX_ADDRESS:
        raise InvalidInput(f"{field}: address over {_MAX_ADDRESS} characters", field=field)
    return checked


def _is_local(local: str) -> bool:
    """Whether this can stand before the @; nothing in it may be invisible."""
    if len(local.encode()) > _MAX_LOCAL:
        return False
    if not local.isascii():
        return local.isprintable() and _INTERNATIONAL.fullmatch(local) is not None
    return bool(_DOT_ATOM.fullmatch(local) or _QUOTED_LOCAL.fullmatch(local))


def _check_domain(domain: str, address: str, field: str) -> str:
    if _LITERAL.fullmatch(domain):
        return domain
    ascii_domain = domain
    if not domain.isascii() and len(domain) <= 253:
        try:
            ascii_domain = domain.encode("idna").decode("ascii")
        except UnicodeError:
            ascii_domain = ""
    labels = ascii_domain.split(".")
    if len(ascii_domain) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidInput(f"{field}: {_shown(address)}: bad domain after the @", field=field)
    return ascii_domain


def check_name(name: str, *, field: str) -> str:
    """A display name that fits a header.

    Raises:
        InvalidInput: for control characters and names beyond all measure.
    """
    refuse_controls(name, field)
    if len(name) > _MAX_NAME:
        raise InvalidInput(f"{field}: name over {_MAX_NAME} characters", field=field)
    return " ".join(name.split())


def refuse_controls(text: str, field: str) -> None:
    """Control characters could end a header and begin another.

    Raises:
        InvalidInput: if there is one.
    """
    bad = _CONTROL.search(text)
    if bad:
        raise InvalidInput(
            f"{field}: control character U+{ord(bad[0]):04X} is not allowed; remove it", field=field
        )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
