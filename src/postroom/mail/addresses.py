"""Addresses: of headers, read leniently and compared; of requests, parsed strictly."""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache

from postroom.errors import InvalidInput
from postroom.mail.data import load
from postroom.mail.mime.decoding import clean, decode_words
from postroom.model.mail.message import NamedAddress
from postroom.model.values import dataclass, late_pattern

_DOT_ATOM = late_pattern(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_QUOTED = late_pattern(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = late_pattern(r"\\(.)", re.DOTALL)
_SPECIAL = late_pattern(r'(["\\])')


def canonical_address(address: str) -> str:
    """The address in lower case, without unnecessary quotes; the domain in ASCII.

    RFC 5321 §4.1.2: `"bob"@example.com` is the mailbox of `bob@example.com`.
    """
    if address.isascii() and not address.startswith('"') and not address.endswith("."):
        return address.lower()
    local, at, domain = address.rpartition("@")
    local, domain = "".join(map(_lower, local)), domain.lower()
    quoted = _QUOTED.fullmatch(local)
    if quoted is not None:
        local = _quote_if_needed(_ESCAPED.sub(r"\1", quoted[1]))
    return f"{local}{at}{_to_ascii(domain.removesuffix('.'))}"


def _lower(letter: str) -> str:
    """A letter in lower case, unless another letter has the same lower case: K (U+212A) is no k."""
    lowered = letter.lower()
    return lowered if lowered.upper() == letter else letter


def base_address(address: str) -> str:
    """The address before the plus, of a canonical address: `bob@…` for `bob+tag@…` and `bob+@…`.

    An address without a tag is its own base, and so is one with nothing before the plus.
    """
    local, at, domain = address.rpartition("@")
    quoted = _QUOTED.fullmatch(local)
    words = local if quoted is None else _ESCAPED.sub(r"\1", quoted[1])
    base, plus, _ = words.partition("+")
    if not plus or not base:
        return address
    return f"{_quote_if_needed(base)}{at}{domain}"


def without_tag(address: str) -> str:
    """The base of any address: `Ana+news@Example.com` is a mailbox of `ana@example.com`."""
    return base_address(canonical_address(address.strip()))


def plus_address_range(address: str) -> tuple[str, str]:
    """The range of an index that holds the plus-addresses of this address.

    The upper bound is exclusive. Addresses at other domains can lie in the range too.
    """
    local = address.rpartition("@")[0]
    return f"{local}+", f"{local},"


@cache
def reserved_names() -> frozenset[str]:
    """The local parts that are reserved."""
    return frozenset(name for names in load("reserved_names").values() for name in names)


def is_reserved(local: str) -> bool:
    """Whether a local part without its tag is reserved."""
    return local.strip('" ').lower() in reserved_names()


def is_business(local: str) -> bool:
    """Whether a local part is one that an agent with the owner's rights may use."""
    return local.strip('" ').lower() in load("reserved_names")["business"]


def _quote_if_needed(words: str) -> str:
    """A local part with quotes only if it needs them."""
    if _DOT_ATOM.fullmatch(words) or not words.isascii():
        return words
    return '"' + _SPECIAL.sub(r"\\\1", words) + '"'


def _to_ascii(domain: str) -> str:
    if domain.isascii():
        return domain
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return domain


# The fast path: one mailbox in its usual form. Anything else is tokenised.
_NAMED_ADDRESS = late_pattern(
    r"""\s*+(?:"([^"\\=]*+)"|([^"(),:;<>@\\\[\]=]*+))\s*+<([^"(),:;<>@\\\s]++@[^"(),:;<>@\\\s]++)>"""
    r"""\s*+(?:,|$)"""
)
# Its empty groups are the two forms of a name in `_NAMED_ADDRESS`.
_BARE_ADDRESS = late_pattern(r"""\s*+()()([^"(),:;<>@\\\s=]++@[^"(),:;<>@\\\s=]++)\s*+(?:,|$)""")
_OTHER_TOKENS = (
    r"""\s++|(?P<open>\()|<(?P<angle>[^<>]*+)>?|(?P<separator>[,;])|(?P<colon>:)"""
    r"""|(?P<atom>(?:\[[^\[\]\s]*+\]?|[^\s"(<,;:])++)|."""
)
_TOKEN = late_pattern(r'"(?P<quoted>(?:[^"\\]|\\.)*+)(?P<closed>")?|' + _OTHER_TOKENS, re.DOTALL)
# After one unterminated quoted string there are no quotation marks left, so no other can end.
_TOKEN_AFTER_OPEN_QUOTE = late_pattern(r"(?P<quoted>(?!))|" + _OTHER_TOKENS, re.DOTALL)
# A word that looks like a local part: not like a name, which has one capital.
_LOCAL_WORD = late_pattern(
    r"[a-z0-9][a-z0-9._+=/-]*|[A-Z0-9][A-Z0-9._+=/-]*|[^\s@]+@[^\s]*|[^\s\d]*+\d[^\s]*|[A-Z][a-z]*[-_.][^\s]+"
)
_COMMENT_STOP = late_pattern(r"[()\\]")
_COMMENT = late_pattern(r"\([^()]*+\)")
_SPACE_AROUND = late_pattern(r"\s*+([@.])\s*+")


def parse_mailboxes(value: str, *, max_count: int) -> tuple[list[NamedAddress], bool]:
    """The mailboxes of an address header, at most `max_count`; True if there were more."""
    found: list[NamedAddress] = []
    at = 0
    while at < len(value):
        match = _NAMED_ADDRESS.match(value, at) or _BARE_ADDRESS.match(value, at)
        if match is None:
            return _tokenise(value[at:], found, max_count)
        if len(found) >= max_count:
            return found, True
        found.append(NamedAddress((match[1] or match[2] or "").strip(), match[3]))
        at = match.end()
    return found, False


def _tokenise(
    value: str, found: list[NamedAddress], max_count: int
) -> tuple[list[NamedAddress], bool]:
    reader = _Reader(found, max_count)
    reader.read(value)
    if not any("@" in mailbox.address for mailbox in found) and "=?" in value:
        decoded = decode_words(value)  # somebody encoded the address with the name
        if "=?" not in decoded and "@" in decoded:
            return parse_mailboxes(decoded, max_count=max_count)
    return found, reader.is_full


@dataclass(slots=True)
class _Reader:
    """Collects the tokens of one mailbox after the other."""

    found: list[NamedAddress]
    max_count: int
    is_full: bool = False
    words: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    address: str | None = None
    pending: str = ""
    quoted_end: int = -1
    has_angle: bool = False

    def read(self, value: str) -> None:
        at = 0
        token = _TOKEN
        while at < len(value) and not self.is_full:
            match = token.match(value, at)
            if match is None:
                break
            if match["quoted"] is not None and match["closed"] is None:
                token, at = _TOKEN_AFTER_OPEN_QUOTE, at + 1
                continue
            at = match.end()
            if match["open"]:
                comment, at = _read_comment(value, at)
                self.comments.append(comment)
            else:
                self._take(match)
        self._finish(is_last=True)

    def _take(self, match: re.Match[str]) -> None:
        if (quoted := match["quoted"]) is not None:
            self.words.append(_ESCAPED.sub(r"\1", quoted))
            self.quoted_end = match.end()
        elif (angle := match["angle"]) is not None:
            self._read_angle(angle)
        elif match["separator"]:
            self._finish(is_last=match["separator"] == ";")
        elif match["colon"]:  # a group's name ends here; its members follow
            self.words, self.comments, self.pending = [], [], ""
        elif atom := match["atom"]:
            self._read_atom(atom, follows_quote=self.quoted_end == match.start())

    def _read_angle(self, angle: str) -> None:
        """The angle brackets hold the address, unless only the text before them is one."""
        is_settled = self.has_angle and self.address is not None and "@" in self.address
        if not angle.strip() or is_settled or (self.address is not None and "@" not in angle):
            return
        if self.address is not None and not self.has_angle:
            self.words.append(self.address)  # `ada@home <ada@example.org>`: a name
        self.address = angle
        self.has_angle = True

    def _read_atom(self, atom: str, *, follows_quote: bool) -> None:
        if self._continues_domain(atom):
            self.address = f"{self.address}{atom}"
        elif atom.startswith("@") and follows_quote and self.address is None:
            self.address = f'"{self.words.pop()}"{atom}'
        elif atom.startswith("@") and self.words and self.address is None and len(atom) > 1:
            self.address = self.words.pop() + atom
        elif "@" in atom and self.address is None and atom != "@":
            self.address = atom
        elif atom != ">":
            self.words.append(atom)

    def _continues_domain(self, atom: str) -> bool:
        """`jdoe@test . example`, which RFC 5322 §4.4 still allows."""
        if self.address is None or self.has_angle or "@" not in self.address:
            return False
        return atom.startswith(".") or self.address.endswith((".", "@"))

    def _finish(self, *, is_last: bool) -> None:
        name = decode_words(" ".join(self.words)).strip()
        if self.address is None and not is_last and not self.comments:
            # `Doe, Jane <jane@…>`: the comma was part of the name
            self.pending = f"{self.pending}{name}, " if name else self.pending
        else:
            self._emit(name)
        self.words, self.comments, self.address = [], [], None
        self.quoted_end, self.has_angle = -1, False

    def _emit(self, name: str) -> None:
        address = _clean_address(self.address or "")
        if self.pending and self.address is not None and name:
            name = self.pending + name
        elif self.pending:
            for part in self.pending.rstrip(", ").split(", "):
                self._add(*_name_or_address(part))
        self.pending = ""
        if not address and not self.has_angle:
            name, address = _name_or_address(name)
        if name or address:
            self._add(name or decode_words(" ".join(self.comments)).strip(), address)

    def _add(self, name: str, address: str) -> None:
        if not name and not address:
            return
        if len(self.found) >= self.max_count:
            self.is_full = True
            return
        name = "" if name == address else name
        self.found.append(NamedAddress(clean(name.strip()), address))


def _name_or_address(name: str) -> tuple[str, str]:
    """A single word such as `root` is a local address; several words are a display name."""
    return ("", name) if name and _LOCAL_WORD.fullmatch(name) else (name, "")


def _read_comment(value: str, at: int) -> tuple[str, int]:
    """The comment that opened just before `at`, and where it ends."""
    depth, start = 1, at
    while match := _COMMENT_STOP.search(value, at):
        at = match.end()
        if match[0] == "\\":
            at += 1
        else:
            depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return _ESCAPED.sub(r"\1", value[start : at - 1]).strip(), at
    return value[start:].strip(), len(value)


def _clean_address(address: str) -> str:
    address = address.strip()
    if address.endswith("'"):  # quoted as a whole: a domain cannot end like this
        address = address.strip("'")
    if "=?" in address:
        address = decode_words(address)
    if "(" in address:
        address = _COMMENT.sub("", address)
    if address.startswith("@") and ":" in address:  # a source route, RFC 5322 §4.4
        address = address.rpartition(":")[2]
    address = address.removeprefix("mailto:").strip()
    if " " in address or "\t" in address:
        address = _SPACE_AROUND.sub(r"\1", address)
    return clean(address.rstrip(".,;"))


_PIECE = late_pattern(r'(?:"(?:[^"\\]|\\.)*+(?:"|$)|[^",;])++|[,;]')
_NAMED = late_pattern(
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^"<>@,;:\\]*+))\s*+<(?P<angle>[^<>]++)>'
)
_INTERNATIONAL = late_pattern(r'[^ ()<>\[\]:;@\\,."]+(?:\.[^ ()<>\[\]:;@\\,."]+)*')
"""RFC 6532 §3.2: letters of every script, in an address that SMTPUTF8 takes."""

_QUOTED_LOCAL = late_pattern(r'"(?:[ !#-\[\]-~]|\\[ -~])+"')
_LABEL = late_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LITERAL = late_pattern(r"\[(?:\d{1,3}(?:\.\d{1,3}){3}|IPv6:[0-9A-Fa-f:.]{2,45})\]")
_CONTROL = late_pattern("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
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


def format_address(name: str, address: str) -> str:
    """An address with its name, as `parse_address` reads it."""
    if not name or _CONTROL.search(name):
        return address
    if not any(character in '"<>@,;:\\()' for character in name):
        return f"{name} <{address}>"
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}" <{address}>'


def parse_own_address(text: str, *, field: str = "address") -> tuple[str, str]:
    """Parse an address of a local inbox. It must be ASCII, so that everybody can write to it.

    Raises:
        InvalidInput: if it is not.
    """
    name, address = parse_address(text, field=field)
    if not address.isascii():
        raise InvalidInput(
            f"{field}: {_short_repr(address)} has letters before the @ that few servers accept;"
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
        raise InvalidInput(f"{field}: {_short_repr(text)} is not an e-mail address", field=field)
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
        raise InvalidInput(f"{field}: {_short_repr(address)} is not an e-mail address", field=field)
    if not _is_local(local):
        raise InvalidInput(
            f"{field}: {_short_repr(address)}: invalid part before the @", field=field
        )
    checked = f"{local}@{_check_domain(domain, address, field)}"
    if len(checked.encode()) > _MAX_ADDRESS:
        raise InvalidInput(
            f"{field}: the address is longer than {_MAX_ADDRESS} characters", field=field
        )
    return checked


def _is_local(local: str) -> bool:
    """Whether this can be the part before the @; nothing in it may be invisible."""
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
        raise InvalidInput(
            f"{field}: {_short_repr(address)}: invalid domain after the @", field=field
        )
    return ascii_domain


def check_name(name: str, *, field: str) -> str:
    """A display name that fits a header.

    Raises:
        InvalidInput: for control characters and names that are far too long.
    """
    refuse_controls(name, field)
    if len(name) > _MAX_NAME:
        raise InvalidInput(f"{field}: the name is longer than {_MAX_NAME} characters", field=field)
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


def _short_repr(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
