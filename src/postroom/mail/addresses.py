"""Address lists as they arrive: RFC 5322 and everything that people send instead."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from postroom.mail.charsets import clean
from postroom.mail.words import decode_words

# One mailbox without surprises; what does not match goes the long way.
_SIMPLE = re.compile(
    r"""\s*+(?:"([^"\\=]*+)"|([^"(),:;<>@\\\[\]=]*+))\s*+<([^"(),:;<>@\\\s]++@[^"(),:;<>@\\\s]++)>"""
    r"""\s*+(?:,|$)"""
)
_BARE = re.compile(r"""\s*+([^"(),:;<>@\\\s=]++@[^"(),:;<>@\\\s=]++)\s*+(?:,|$)""")
_OTHERS = (
    r"""\s++|(?P<open>\()|<(?P<angle>[^<>]*+)>?|(?P<separator>[,;])|(?P<colon>:)"""
    r"""|(?P<atom>(?:\[[^\[\]\s]*+\]?|[^\s"(<,;:])++)|."""
)
_TOKEN = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*+)(?P<closed>")?|' + _OTHERS, re.DOTALL)
# Once a quotation has not ended, no other can: there are no quotation marks left to end it.
_TOKEN_AFTER_OPEN_QUOTE = re.compile(r"(?P<quoted>(?!))|" + _OTHERS, re.DOTALL)
_COMMENT_STOP = re.compile(r"[()\\]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COMMENT = re.compile(r"\([^()]*+\)")
_AROUND = re.compile(r"\s*+([@.])\s*+")


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A display name and an address; either may be empty."""

    name: str
    address: str


def parse_mailboxes(value: str, *, most: int) -> tuple[list[Mailbox], bool]:
    """The mailboxes of an address header, at most `most`; True if there were more."""
    found: list[Mailbox] = []
    at = 0
    while at < len(value):
        match = _SIMPLE.match(value, at) or _BARE.match(value, at)
        if match is None:
            return _the_long_way(value[at:], found, most)
        if len(found) >= most:
            return found, True
        found.append(_simple_mailbox(match))
        at = match.end()
    return found, False


def _simple_mailbox(match: re.Match[str]) -> Mailbox:
    if match.re is _BARE:
        return Mailbox("", match[1])
    return Mailbox((match[1] or match[2] or "").strip(), match[3])


def _the_long_way(value: str, found: list[Mailbox], most: int) -> tuple[list[Mailbox], bool]:
    reader = _Reader(found, most)
    reader.read(value)
    if not any("@" in mailbox.address for mailbox in found) and "=?" in value:
        decoded = decode_words(value)  # somebody encoded the address with the name
        if "=?" not in decoded and "@" in decoded:
            again, more = parse_mailboxes(decoded, most=most)
            return again, more
    return found, reader.is_full


@dataclass(slots=True)
class _Reader:
    """Collects the tokens of one mailbox after the other."""

    found: list[Mailbox]
    most: int
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
            self._take_angle(angle)
        elif match["separator"]:
            self._finish(is_last=match["separator"] == ";")
        elif match["colon"]:
            self._take_colon()
        elif atom := match["atom"]:
            self._take_atom(atom, follows_quote=self.quoted_end == match.start())

    def _take_angle(self, angle: str) -> None:
        """What stands in angle brackets is the address, unless only what came before is one."""
        is_settled = self.has_angle and self.address is not None and "@" in self.address
        if not angle.strip() or is_settled or (self.address is not None and "@" not in angle):
            return
        if self.address is not None and not self.has_angle:
            self.words.append(self.address)  # `ada@home <ada@example.org>`: a name
        self.address = angle
        self.has_angle = True

    def _take_colon(self) -> None:
        """A group's name ends here; its members follow."""
        self.words, self.comments, self.pending = [], [], ""

    def _take_atom(self, atom: str, *, follows_quote: bool) -> None:
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
                self._add(*_only_a_word(part))
        self.pending = ""
        if not address:
            name, address = _only_a_word(name)
        if name or address:
            self._add(name or decode_words(" ".join(self.comments)).strip(), address)

    def _add(self, name: str, address: str) -> None:
        if not name and not address:
            return
        if len(self.found) >= self.most:
            self.is_full = True
            return
        name = "" if name == address else name
        self.found.append(Mailbox(clean(name.strip()), address))


def _only_a_word(name: str) -> tuple[str, str]:
    """A lone word such as `root` is a local address; several words are a name."""
    return ("", name) if name and " " not in name else (name, "")


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
        address = _AROUND.sub(r"\1", address)
    return clean(address.rstrip(".,;"))
