"""Bodies and attachments of a live IMAP message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.blocking import WorkFailed, in_thread
from postroom.mail.html.html import sanitise_html
from postroom.mail.mime.remote_parts import (
    RemotePart,
    estimated_bytes,
    fill_contents,
    read_text,
    text_parts,
)
from postroom.mail.parse import BodyText, parse_message
from postroom.model.imap import ImapLocator, ImapSection, LiveAttachment
from postroom.model.limits import MB, Limits
from postroom.operations.imap.accounts import Issues
from postroom.pipeline.parse_worker import extract_text
from postroom.ports.imap import ImapSession

MAX_ATTACHMENTS = 50
MAX_PDF_BYTES = 5 * MB
_ENCODED_BYTES = MAX_PDF_BYTES * 3 // 2
_BATCH_BYTES = 8 * MB
_WORKERS = 2
_ALL_S = 40.0
"""The time limit for all PDFs of one message."""

ENCODED = frozenset(("base64", "quoted-printable"))


def attachment(part: RemotePart, sizes: dict[str, int], text: str | None) -> LiveAttachment:
    return LiveAttachment(
        part.content_type,
        sizes.get(part.number) or _decoded_size(part),
        part.number,
        part.filename or None,
        text,
    )


def _decoded_size(part: RemotePart) -> int:
    """The decoded size of a part; for base64 estimated from the usual line length."""
    if part.encoding != "base64":
        return part.size_bytes
    return (part.size_bytes - 2 * (part.size_bytes // 78)) * 3 // 4


@dataclass(slots=True)
class PdfReader:
    """Reads the text of PDFs, each in a process that can be killed; failures are issues."""

    session: ImapSession
    at: ImapLocator
    chars: int
    issues: Issues
    texts: dict[str, str] = field(default_factory=dict)

    async def read(self, files: list[RemotePart], sizes: dict[str, int]) -> dict[str, str]:
        """The texts by the numbers of their parts."""
        pdfs = [part for part in files if part.content_type == "application/pdf"]
        small = [part for part in pdfs if self._is_small(part, sizes)]
        try:
            async with asyncio.timeout(_ALL_S):
                for batch in _batches(small):
                    await self._read_batch(batch)
        except TimeoutError:
            self._fail("timeout", "reading the PDFs of this message timed out; some were not read")
        return self.texts

    def _is_small(self, part: RemotePart, sizes: dict[str, int]) -> bool:
        size = sizes.get(part.number) or _decoded_size(part)
        if size <= MAX_PDF_BYTES and part.size_bytes <= _ENCODED_BYTES:
            return True
        self._too_large(part, size)
        return False

    async def _read_batch(self, batch: list[RemotePart]) -> None:
        sections = [ImapSection(part.number, part.size_bytes) for part in batch]
        self.issues.stage = "fetch_attachment"
        pieces = await self.session.fetch_sections(self.at, sections)
        self.issues.stage = "extract"
        for part, section in zip(batch, sections, strict=True):
            fill_contents(part, {part.number: pieces.sections[section]})
        slots = asyncio.Semaphore(_WORKERS)
        await asyncio.gather(*(self._extract(part, slots) for part in batch))

    async def _extract(self, part: RemotePart, slots: asyncio.Semaphore) -> None:
        data = part.decoded()
        part.raw, part.start, part.end = b"", 0, 0
        if len(data) > MAX_PDF_BYTES:
            self._too_large(part, len(data))
            return
        try:
            async with slots:
                found = await extract_text(data, self.chars)
        except WorkFailed as failure:
            self._fail("extraction_failed", f"no text of part {part.number}: {failure}")
            return
        for warning in found.warnings:
            self._fail("left_out", f"part {part.number}: {warning}")
        if len(found.text) > self.chars:
            message = f"the text of part {part.number} is truncated at {self.chars} characters"
            self._fail("truncated", f"{message}; attachment_text_max_chars may be 50000")
        self.texts[part.number] = found.text[: self.chars]

    def _too_large(self, part: RemotePart, size: int) -> None:
        limit = f"over the {MAX_PDF_BYTES} bytes of which text is extracted"
        self._fail("too_large", f"part {part.number} has {size} bytes, {limit}")

    def _fail(self, code: str, message: str) -> None:
        self.issues.add(code, message, stage="extract")


def _batches(parts: list[RemotePart]) -> Iterator[list[RemotePart]]:
    """Parts in batches, so that not all of them are in memory at once."""
    batch: list[RemotePart] = []
    size = 0
    for part in parts:
        if batch and size + part.size_bytes > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += part.size_bytes
    if batch:
        yield batch


LEAST_BUDGET_BYTES = 64 * 1024
"""Bytes read for the text of a message; more if more characters are requested."""

_BYTES_PER_CHAR = 9
_UNSTRUCTURED_BYTES = 64 * 1024
_MAX_PARTS = 20


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a message; `is_cut` if the server has more of it."""

    plain: str
    html: str | None
    is_cut: bool


@dataclass(slots=True)
class TextReader:
    """Fetches the text parts, and a second range if the first is not enough."""

    session: ImapSession
    at: ImapLocator
    chars: int
    include_html: bool
    limits: Limits
    contents: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    async def read(self, root: RemotePart, sized: list[str]) -> Text:
        """The text of a message with the structure *root*; part sizes are fetched with it."""
        parts = text_parts(root, include_html=self.include_html)
        await self._fetch(self._first(parts), sized)
        words = await self._text_of(root)
        more = self._more(parts, words)
        if more:
            await self._fetch(more, [])
            words = await self._text_of(root)
        return Text(words.text, words.html, any(part.is_cut for part in parts))

    async def read_without_structure(self, header: bytes) -> Text:
        """The text of a message without a known structure, from its first bytes."""
        section = ImapSection("TEXT", _UNSTRUCTURED_BYTES)
        pieces = await self.session.fetch_sections(self.at, [section])
        body = pieces.sections[section]
        parsed = await in_thread(parse_message, header + body, self.limits)
        return Text(parsed.text, parsed.html, len(body) == _UNSTRUCTURED_BYTES)

    @property
    def _budget(self) -> int:
        """How many bytes may still be read."""
        whole = max(LEAST_BUDGET_BYTES, self.chars * _BYTES_PER_CHAR)
        return whole - sum(map(len, self.contents.values()))

    def _first(self, parts: list[RemotePart]) -> list[ImapSection]:
        left = self._budget
        sections: list[ImapSection] = []
        for part in parts[:_MAX_PARTS]:
            size = min(left, estimated_bytes(part, self.chars))
            if size > 0:
                sections.append(ImapSection(part.number, size))
                left -= size
        return sections

    def _more(self, parts: list[RemotePart], words: BodyText) -> list[ImapSection]:
        """The next range of the first part that was cut."""
        is_enough = len(words.text) >= self.chars
        if self.include_html and words.html is not None:
            is_enough = is_enough and len(words.html) >= self.chars
        cut = next((part for part in parts if part.is_cut), None)
        if is_enough or cut is None or self._budget <= 0:
            return []
        size = min(self._budget, cut.size_bytes - cut.loaded_bytes)
        return [ImapSection(cut.number, size, cut.loaded_bytes)]

    async def _fetch(self, sections: list[ImapSection], sized: list[str]) -> None:
        if not sections and not sized:
            return
        pieces = await self.session.fetch_sections(self.at, sections, sized)
        for section in sections:
            before = self.contents.get(section.number, b"")
            self.contents[section.number] = before + pieces.sections[section]
        self.sizes |= pieces.sizes

    async def _text_of(self, root: RemotePart) -> BodyText:
        fill_contents(root, self.contents)
        return await in_thread(read_text, root, self.limits)


def bounded_html(html: str, max_chars: int, max_json_chars: int) -> tuple[str, bool]:
    """Sanitised HTML of at most so many characters, with every element closed; True if cut."""
    clean = sanitise_html(html)
    short = clean
    length = len(clean)
    while len(short) > max_chars or json_chars(short) > max_json_chars:
        over = max(len(short) - max_chars, (json_chars(short) - max_json_chars) // 6, 16)
        length = max(0, length - over)
        # The sanitiser drops or closes a tag that was cut.
        short = sanitise_html(clean[:length])
    return short, short != clean


def json_chars(text: str) -> int:
    """The length of a text in JSON, where a control character takes six."""
    return len(json.dumps(text, ensure_ascii=False))


def cut_to_json(text: str, max_json_chars: int) -> str:
    """A text, cut to a length in JSON."""
    while (size := json_chars(text)) > max_json_chars:
        text = text[: len(text) * max_json_chars // (size + 1)]
    return text
