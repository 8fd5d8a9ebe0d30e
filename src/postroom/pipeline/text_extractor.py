"""The text of attached files: each is read in a process with limits, a few at a time."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING

from postroom.errors import Unavailable
from postroom.model.limits import MB
from postroom.model.values import dataclass

if TYPE_CHECKING:
    from postroom.mail.text_extraction.extract import ExtractedText

_AT_ONCE = 2
_QUEUE_S = 30.0
_ANSWER_BYTES = 16 * MB


async def extract_text(data: bytes, max_chars: int) -> ExtractedText:
    """The text of a PDF, Office or RTF file, and one character more if there is more.

    Raises:
        WorkFailed: it cannot be read within the limits.
    """
    # Imported on first use, as a start does not need them.
    from postroom.blocking.processes import Bounds, WorkFailed, in_process
    from postroom.mail.text_extraction import extract

    kind = extract.file_kind(data)
    if kind is None:
        raise WorkFailed("it is no PDF, Office or RTF file")
    modules, bounds = extract.modules_for(kind), Bounds(answer_bytes=_ANSWER_BYTES)
    work = extract.extract_as_json
    return extract.from_json(await in_process(work, data, max_chars, bounds, imports=modules))


@dataclass(frozen=True, slots=True)
class TextExtractor:
    """Reads files for all callers of this process; each takes a process and its memory."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    queue_s: float = _QUEUE_S

    async def read(self, data: bytes, max_chars: int) -> ExtractedText:
        """`extract_text` when there is capacity. Raises WorkFailed, Unavailable."""
        try:
            async with asyncio.timeout(self.queue_s):
                await self.slots.acquire()
        except TimeoutError:
            raise Unavailable(
                "the server is reading other attachments; try again", retry_after=5
            ) from None
        try:
            return await extract_text(data, max_chars)
        finally:
            self.slots.release()
