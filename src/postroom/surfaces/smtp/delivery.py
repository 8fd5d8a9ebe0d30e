"""Delivery of a received mail to its inboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from postroom.admission.spool import MEMORY_BYTES, MemoryBudget, SpooledBytes
from postroom.errors import InvalidInput, MailError, NotFound, StorageFull, TooLarge
from postroom.model.storage import Added
from postroom.pipeline.ingest import Arrival, BatchIngest
from postroom.surfaces.smtp.connection import Wire, has_bare_newline, has_long_line, hops, unstuffed

_END = b"\r\n.\r\n"


@dataclass(slots=True)
class Spool(SpooledBytes):
    """The bytes of one mail while it is received."""

    async def fill(self, wire: Wire, idle_s: float, whole_s: float) -> None:
        """Read up to the final dot. Raises what `Wire.more` raises."""
        loop = asyncio.get_running_loop()
        until = loop.time() + whole_s
        buffer, start = wire.buffer, 0
        while (end := self._end(buffer, start)) < 0:
            if len(buffer) > MEMORY_BYTES:
                begun = bytes(buffer[: -len(_END)])
                del buffer[: len(begun)]
                await self.put(begun)
                start = 0
                continue
            start = max(0, len(buffer) - len(_END))
            await wire.more(min(idle_s, until - loop.time()))
        self.end(bytes(buffer[:end]))
        del buffer[: end + 3]

    def _end(self, buffer: bytearray, start: int) -> int:
        """Where the line with the final dot begins; -1 if it has not arrived."""
        if not self.size and buffer.startswith(_END[2:]):
            return 0
        found = buffer.find(_END, start)
        return found + 2 if found >= 0 else -1


@dataclass(slots=True, kw_only=True)
class Spools(MemoryBudget):
    """Where mail is spooled, and how many bytes of large mails are in memory at once."""

    folder: Path
    most: int

    def new(self) -> Spool:
        return Spool(self.folder, self.most)


MAX_TEXT_LINE_BYTES = 1_048_576
"""RFC 5321 §4.5.3.1.6 allows 1,000, and real mail has whole pages in a line."""

MAX_HOPS = 50


class Reports(Protocol):
    """Logs a failure together with the connection."""

    def __call__(self, name: str, *, cause: Exception | None = None, **context: object) -> None: ...


@dataclass(slots=True)
class Envelope:
    """The sender of a mail, and the inbox of each recipient in order."""

    sender: str
    inboxes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Stores the mails of one connection."""

    batch_ingest: BatchIngest
    failed: Reports

    async def answers(self, envelope: Envelope, spool: Spool) -> list[str]:
        """Store a mail and return the reply for each recipient."""
        try:
            content = await spool.read()
            if content is None:
                words = _PROBLEMS[TooLarge]
            elif (problem := self._wrong_content(content)) is not None:
                words = problem
            else:
                return await self._stored(envelope, unstuffed(content))
        except Exception as error:  # noqa: BLE001 - the sender tries again, the log says why
            words = self._words(error)
        return [words] * len(envelope.inboxes)

    def _wrong_content(self, content: bytes) -> str | None:
        if has_bare_newline(content):
            self.failed("smtp_smuggled", reason="a bare newline")
            return "554 5.6.0 bare CR or LF in the mail; end lines with CRLF"
        if hops(content) > MAX_HOPS:
            self.failed("smtp_looping", hops=hops(content))
            return "554 5.4.6 mail loop detected: too many Received headers"
        if has_long_line(content, MAX_TEXT_LINE_BYTES):
            return "554 5.6.0 line too long; use base64 or quoted-printable"
        return None

    async def _stored(self, envelope: Envelope, raw: bytes) -> list[str]:
        if not envelope.sender:
            # RFC 5321 §4.4: only the envelope shows that this mail must not be answered.
            raw = b"Return-Path: <>\r\n" + raw
        inboxes = list(dict.fromkeys(envelope.inboxes))
        taken = await self.batch_ingest.receive(
            [Arrival(raw, inbox_id, envelope_sender=envelope.sender) for inbox_id in inboxes]
        )
        words = dict(zip(inboxes, map(self._words, taken), strict=True))
        return [words[inbox_id] for inbox_id in envelope.inboxes]

    def _words(self, became: Added | Exception) -> str:
        """The SMTP reply for a stored mail, or for an error."""
        if isinstance(became, Added):
            return f"250 2.0.0 stored as {became.message_id}"
        if not isinstance(became, MailError):
            self.failed("smtp_failed", cause=became)
            return "451 4.3.0 internal error; try again later"
        kinds = (words for kind, words in _PROBLEMS.items() if isinstance(became, kind))
        words = next(kinds, "451 4.3.0 the message cannot be stored now; try again later")
        if words.startswith("4"):
            self.failed("smtp_failed", error=str(became))
        return words


def for_all(answers: Sequence[str]) -> str:
    """The single SMTP reply for several recipients. A temporary failure of one makes the sender try
    again, and duplicates are recognised. Otherwise one success is enough: the other inboxes were
    removed meanwhile.
    """
    return min(answers, key=lambda words: "425".index(words[0]))


_PROBLEMS: Mapping[type[MailError], str] = {
    StorageFull: "452 4.3.1 the disk is full; try again later",
    TooLarge: "552 5.3.4 message size exceeds the limit",
    NotFound: "550 5.1.1 the mailbox no longer exists",
    InvalidInput: "554 5.6.0 the message is empty",
}
