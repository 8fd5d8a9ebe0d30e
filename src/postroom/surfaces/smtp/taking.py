"""A mail that was sent: put on disk, and answered for each of its recipients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from postroom.errors import InvalidInput, MailError, NotFound, StorageFull, TooLarge
from postroom.model.stored import Added
from postroom.pipeline.intake import Intake
from postroom.pipeline.receive import Arrival
from postroom.surfaces.smtp.commands import has_bare_newline, has_long_line, hops, unstuffed
from postroom.surfaces.smtp.spool import Spool

MOST_TEXT_LINE_BYTES = 1_048_576
"""RFC 5321 §4.5.3.1.6 allows 1,000, and real mail has whole pages in a line."""

MOST_HOPS = 50


class Reports(Protocol):
    """Writes down a failure, in the words that find the connection again."""

    def __call__(self, name: str, *, cause: Exception | None = None, **context: object) -> None: ...


@dataclass(slots=True)
class Envelope:
    """Who sends a mail, and the inbox of each recipient in their order."""

    sender: str
    inboxes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Taking:
    """Takes in the mails of one connection."""

    intake: Intake
    failed: Reports

    async def answers(self, envelope: Envelope, spool: Spool) -> list[str]:
        """Put a mail on disk and say for each recipient what became of it."""
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
            return "554 5.6.0 a bare newline is in the mail; end lines with CR LF"
        if hops(content) > MOST_HOPS:
            self.failed("smtp_looping", hops=hops(content))
            return "554 5.4.6 the mail goes round in circles"
        if has_long_line(content, MOST_TEXT_LINE_BYTES):
            return "554 5.6.0 a line of the mail is too long; encode it"
        return None

    async def _stored(self, envelope: Envelope, raw: bytes) -> list[str]:
        if not envelope.sender:
            # RFC 5321 §4.4: only the envelope knows that nobody wants an answer to this mail.
            raw = b"Return-Path: <>\r\n" + raw
        inboxes = list(dict.fromkeys(envelope.inboxes))
        taken = await self.intake.receive(
            [Arrival(raw, inbox_id, envelope_sender=envelope.sender) for inbox_id in inboxes]
        )
        words = dict(zip(inboxes, map(self._words, taken), strict=True))
        return [words[inbox_id] for inbox_id in envelope.inboxes]

    def _words(self, became: Added | Exception) -> str:
        """What SMTP says of a mail that was taken in, or of what came in the way."""
        if isinstance(became, Added):
            return f"250 2.0.0 stored as {became.message_id}"
        if not isinstance(became, MailError):
            self.failed("smtp_failed", cause=became)
            return "451 4.3.0 something went wrong on our side; try again later"
        words = _problem(became)
        if words.startswith("4"):
            self.failed("smtp_failed", error=str(became))
        return words


def for_all(answers: Sequence[str]) -> str:
    """The one answer that SMTP has for several recipients.

    If one may get it later, the sender must try again: who has it is not given it twice. Else it
    is enough that one has it, since an inbox that was removed meanwhile would have lost it anyway.
    """
    return min(answers, key=lambda words: "425".index(words[0]))


_PROBLEMS: Mapping[type[MailError], str] = {
    StorageFull: "452 4.3.1 the disk is full; try again later",
    TooLarge: "552 5.3.4 the mail is over the limit",
    NotFound: "550 5.1.1 the inbox is gone",
    InvalidInput: "554 5.6.0 the mail is empty",
}


def _problem(error: MailError) -> str:
    for kind, words in _PROBLEMS.items():
        if isinstance(error, kind):
            return words
    return "451 4.3.0 the mail cannot be stored now; try again later"
