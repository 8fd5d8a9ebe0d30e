"""The files of a live message: what they are, and the text of those that are PDFs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.blocking.processes import Bounds, WorkFailed, in_process
from postroom.mail.pdf import NEEDS, pdf_text
from postroom.mail.remote import RemotePart, fill
from postroom.model.imap import ImapLocator, ImapSection
from postroom.model.limits import MB
from postroom.model.live import LiveAttachment
from postroom.operations.issues import Issues
from postroom.ports.imap import ImapSession

MOST_ATTACHMENTS = 50
MOST_PDF_BYTES = 5 * MB
_ENCODED_BYTES = MOST_PDF_BYTES * 3 // 2
_BATCH_BYTES = 8 * MB
_WORKERS = 2
_ALL_S = 40.0
"""How long the PDFs of one message may take together."""

_ENCODED = frozenset(("base64", "quoted-printable"))


def parts_to_size(files: list[RemotePart]) -> list[str]:
    """The parts whose size the server has to work out, because it counts them encoded."""
    return [part.number for part in files if part.encoding in _ENCODED]


def attachment(part: RemotePart, sizes: dict[str, int], text: str | None) -> LiveAttachment:
    """What there is to say of a file."""
    return LiveAttachment(
        part.content_type,
        sizes.get(part.number) or _decoded_size(part),
        part.number,
        part.filename or None,
        text,
    )


def _decoded_size(part: RemotePart) -> int:
    """The size of a part when decoded; of base64 by the usual length of its lines."""
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
            self._fail("timeout", "the PDFs of this message take too long; some were not read")
        return self.texts

    def _is_small(self, part: RemotePart, sizes: dict[str, int]) -> bool:
        size = sizes.get(part.number) or _decoded_size(part)
        if size <= MOST_PDF_BYTES and part.size_bytes <= _ENCODED_BYTES:
            return True
        self._too_large(part, size)
        return False

    async def _read_batch(self, batch: list[RemotePart]) -> None:
        sections = [ImapSection(part.number, part.size_bytes) for part in batch]
        self.issues.stage = "fetch_attachment"
        pieces = await self.session.pieces(self.at, sections)
        self.issues.stage = "extract"
        for part, section in zip(batch, sections, strict=True):
            fill(part, {part.number: pieces.sections[section]})
        room = asyncio.Semaphore(_WORKERS)
        await asyncio.gather(*(self._extract(part, room) for part in batch))

    async def _extract(self, part: RemotePart, room: asyncio.Semaphore) -> None:
        data = part.decoded()
        part.raw, part.start, part.end = b"", 0, 0
        if len(data) > MOST_PDF_BYTES:
            self._too_large(part, len(data))
            return
        try:
            async with room:
                text = await in_process(pdf_text, data, self.chars, Bounds(), imports=NEEDS)
        except WorkFailed as failure:
            self._fail("extraction_failed", f"no text of part {part.number}: {failure}")
            return
        if len(text) > self.chars:
            message = f"the text of part {part.number} is cut at {self.chars} characters"
            self._fail("truncated", f"{message}; attachment_text_max_chars may be 50000")
        self.texts[part.number] = text[: self.chars]

    def _too_large(self, part: RemotePart, size: int) -> None:
        limit = f"over the {MOST_PDF_BYTES} bytes of which text is extracted"
        self._fail("too_large", f"part {part.number} has {size} bytes, {limit}")

    def _fail(self, code: str, message: str) -> None:
        self.issues.add(code, message, stage="extract")


def _batches(parts: list[RemotePart]) -> Iterator[list[RemotePart]]:
    """Some parts at a time, so that not all of them are here at once."""
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
