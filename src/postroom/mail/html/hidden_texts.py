"""What a reader of HTML does not see, gathered while the tree is walked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

from postroom.mail.data import load, pattern
from postroom.mail.html.elements import Attributes
from postroom.mail.message import HiddenText
from postroom.mail.mime.decoding import clean
from postroom.mail.text.invisible import hidden_text

_MAX_FOUND = 200
_TAG = re.compile(r"<[^>]{0,2000}>?")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Titles, comments and alternative texts never show, and ordinary mail is full of them. They
# are reported only if they address a machine, or ask for something to be sent.
_TO_A_MACHINE = pattern(load("html")["to_a_machine"])
_MAX_CHARS = 20_000
_FEW_CHARS = 20


class Observer(Protocol):
    """Receives what the walk decides about each node, in document order.

    This is all that marking (`marks`) knows of the detection, so that both can change apart.
    """

    def on_open(self, tag: str, attributes: Attributes) -> None:
        """An element begins."""

    def on_close(self) -> None:
        """The innermost open element ends."""

    def on_visible_text(self, text: str) -> None:
        """Text that a reader sees; it is written to the page next."""

    def on_hidden_start(self) -> None:
        """Text that a reader does not see begins here."""

    def on_hidden_end(self, text: str, reason: str) -> None:
        """What was hidden from there on; without text, it was nothing to report."""

    def on_machine_text(self, text: str, reason: str) -> None:
        """Text that is never displayed, and that addresses a machine."""

    def on_picture(self, attributes: Attributes, *, is_remote: bool, is_pixel: bool) -> None:
        """A picture."""


@dataclass(slots=True)
class HiddenTexts:
    """Hidden texts and the reason for each; adjacent texts with one reason are joined."""

    observer: Observer | None = None
    found: list[HiddenText] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _reason: str = ""
    _chars_left: int = 100_000

    def add(self, text: str, reason: str) -> None:
        """Text that is hidden by a style or an attribute."""
        if reason != self._reason:
            self.flush()
            self._reason = reason
        if self.observer and not self._pieces:
            self.observer.on_hidden_start()
        self._pieces.append(text)

    def flush(self) -> None:
        if not self._pieces:
            return
        text = " ".join("".join(self._pieces).split())
        self._pieces = []
        text = text if _WORD.search(text) else ""
        if self.observer:
            self.observer.on_hidden_end(text, self._reason)
        if text:
            self._keep(text, self._reason)

    def mention(self, text: str, reason: str) -> None:
        """Text that is never displayed, recorded only if it addresses a machine."""
        text = text[: min(_MAX_CHARS, self._chars_left)]
        if len(text) < _FEW_CHARS:
            return
        self._chars_left -= len(text)
        if not _TO_A_MACHINE.search(text):
            return
        prose = " ".join(_TAG.sub(" ", text).split())
        if _TO_A_MACHINE.search(prose):
            if self.observer:
                self.observer.on_machine_text(prose, reason)
            self._keep(prose, reason)

    def _keep(self, text: str, reason: str) -> None:
        if len(self.found) < _MAX_FOUND:
            self.found.append(hidden_text(reason, clean(text), len(text)))
