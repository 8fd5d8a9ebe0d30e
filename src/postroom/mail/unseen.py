"""Collecting the text of an HTML mail that its reader does not see."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from postroom.mail.charsets import clean
from postroom.mail.message import HiddenText

EXCERPT = 200
_MOST_FOUND = 200
_TAG = re.compile(r"<[^>]{0,2000}>?")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Titles, comments and alternative texts never show, and ordinary mail is full of them. They
# are only worth a word if they speak to a machine, or ask for something to be sent.
_WHAT_TO_DO = (
    "must|should|shall|will|please|forward|send|reply|call|run|execute|ignore|never|always|are"
)
_TO_A_MACHINE = re.compile(
    r"(?:ignore|disregard|forget|override|bypass)\b.{0,80}\b(?:instruction|previous|prior|above"
    r"|earlier|prompt|rule|polic|guideline|said)|system (?:prompt|message|override|note)"
    r"|\b(?:ai|llm|gpt|claude|gemini|copilot|language model|assistant|chatbot|agents?|bot)\b.{0,80}"
    rf"\b(?:{_WHAT_TO_DO})\b|\byou (?:are|must|should|will) (?:now |an? )?(?:ai\b|assistant|agent"
    r"|forward|send|reply|delete|comply)|\b(?:forward|send|exfiltrate|transmit|copy|e-?mail|post"
    r"|upload|leak|reveal|share)\b.{0,100}(?:credential|secret|api.?key|(?:all|every|any|each|whole"
    r"|entire|latest)\b.{0,40}(?:mail|message|invoice|contact|file|document|inbox|token|thread"
    r"|password))|(?:call|use|invoke) the \w{1,40} tool|prompt injection",
    re.IGNORECASE,
)
_MOST_CHARS = 20_000
_FEW_CHARS = 20


@dataclass(slots=True)
class Unseen:
    """Hidden texts with the reason why each is hidden; neighbours of one reason are one."""

    found: list[HiddenText] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _reason: str = ""
    _chars_left: int = 100_000

    def add(self, text: str, reason: str) -> None:
        """Text that would show if nobody had hidden it."""
        if reason != self._reason:
            self.flush()
            self._reason = reason
        self._pieces.append(text)

    def flush(self) -> None:
        if not self._pieces:
            return
        text = " ".join("".join(self._pieces).split())
        self._pieces = []
        if _WORD.search(text):
            self._keep(text, self._reason)

    def mention(self, text: str, reason: str) -> None:
        """Text of a kind that never shows: kept if it speaks to a machine."""
        text = text[: min(_MOST_CHARS, self._chars_left)]
        if len(text) < _FEW_CHARS:
            return
        self._chars_left -= len(text)
        if not _TO_A_MACHINE.search(text):
            return
        prose = " ".join(_TAG.sub(" ", text).split())
        if _TO_A_MACHINE.search(prose):
            self._keep(prose, reason)

    def _keep(self, text: str, reason: str) -> None:
        if len(self.found) < _MOST_FOUND:
            self.found.append(HiddenText(reason, clean(text[:EXCERPT]), len(text)))
