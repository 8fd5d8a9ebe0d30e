"""The text of a live message, from as few bytes of it as will do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from postroom.blocking import in_thread
from postroom.mail.html import sanitise_html
from postroom.mail.parse import Words, parse_message
from postroom.mail.remote import RemotePart, fill, read_text, text_parts, wanted_bytes
from postroom.model.imap import ImapLocator, ImapSection
from postroom.model.limits import Limits
from postroom.ports.imap import ImapSession

LEAST_BUDGET_BYTES = 64 * 1024
"""What may be read for the text of a message, or more if many characters are asked for."""

_BYTES_PER_CHAR = 9
_BLIND_BYTES = 64 * 1024
_MOST_PARTS = 20


@dataclass(frozen=True, slots=True)
class Text:
    """What a message says; `is_cut` if there is more of it on the server."""

    plain: str
    html: str | None
    is_cut: bool


@dataclass(slots=True)
class TextReader:
    """Fetches the parts that are text, a second stretch if the first is not enough."""

    session: ImapSession
    at: ImapLocator
    chars: int
    include_html: bool
    limits: Limits
    contents: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    async def read(self, root: RemotePart, sized: list[str]) -> Text:
        """The text of a message of which *root* is the tree; sizes of parts come with it."""
        parts = text_parts(root, include_html=self.include_html)
        await self._fetch(self._first(parts), sized)
        words = await self._words(root)
        more = self._more(parts, words)
        if more:
            await self._fetch(more, [])
            words = await self._words(root)
        return Text(words.text, words.html, any(part.is_cut for part in parts))

    async def read_blindly(self, header: bytes) -> Text:
        """The text of a message whose structure nobody knows, from its first bytes."""
        section = ImapSection("TEXT", _BLIND_BYTES)
        pieces = await self.session.pieces(self.at, [section])
        body = pieces.sections[section]
        parsed = await in_thread(parse_message, header + body, self.limits)
        return Text(parsed.text, parsed.html, len(body) == _BLIND_BYTES)

    @property
    def _budget(self) -> int:
        """What is left to be read."""
        whole = max(LEAST_BUDGET_BYTES, self.chars * _BYTES_PER_CHAR)
        return whole - sum(map(len, self.contents.values()))

    def _first(self, parts: list[RemotePart]) -> list[ImapSection]:
        left = self._budget
        sections: list[ImapSection] = []
        for part in parts[:_MOST_PARTS]:
            size = min(left, wanted_bytes(part, self.chars))
            if size > 0:
                sections.append(ImapSection(part.number, size))
                left -= size
        return sections

    def _more(self, parts: list[RemotePart], words: Words) -> list[ImapSection]:
        """The next stretch of the first part that ended too early."""
        is_enough = len(words.text) >= self.chars
        if self.include_html and words.html is not None:
            is_enough = is_enough and len(words.html) >= self.chars
        cut = next((part for part in parts if part.is_cut), None)
        if is_enough or cut is None or self._budget <= 0:
            return []
        size = min(self._budget, cut.size_bytes - cut.here)
        return [ImapSection(cut.number, size, cut.here)]

    async def _fetch(self, sections: list[ImapSection], sized: list[str]) -> None:
        if not sections and not sized:
            return
        pieces = await self.session.pieces(self.at, sections, sized)
        for section in sections:
            before = self.contents.get(section.number, b"")
            self.contents[section.number] = before + pieces.sections[section]
        self.sizes |= pieces.sizes

    async def _words(self, root: RemotePart) -> Words:
        fill(root, self.contents)
        return await in_thread(read_text, root, self.limits)


def bounded_html(html: str, most: int, most_written: int) -> tuple[str, bool]:
    """Harmless HTML of at most so many characters, with every element closed; True if cut."""
    clean = sanitise_html(html)
    short = clean
    room = len(clean)
    while len(short) > most or written_chars(short) > most_written:
        over = max(len(short) - most, (written_chars(short) - most_written) // 6, 16)
        room = max(0, room - over)
        # Whatever is cut in the middle of a tag, the sanitiser drops or closes.
        short = sanitise_html(clean[:room])
    return short, short != clean


def written_chars(text: str) -> int:
    """How long a text is when it is written as JSON: a control character takes six."""
    return len(json.dumps(text, ensure_ascii=False))


def fitting(text: str, most_written: int) -> str:
    """As much of a text as is no longer than this when it is written as JSON."""
    while (size := written_chars(text)) > most_written:
        text = text[: len(text) * most_written // (size + 1)]
    return text
