"""What is asked for, in the terms of the index, and the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from postroom.store.search.kinds import COLUMNS

EVERYWHERE = "*"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages. Texts and names are folded; None asks for nothing.

    `inboxes` None is every inbox. `mailbox` None leaves out what is hidden, `*` nothing.
    `sender` and `recipient` are looked for in the text that holds all of them.
    `after` is the date and number of the message before the page.
    """

    inboxes: tuple[int, ...] | None = None
    thread: int | None = None
    q: str | None = None
    sender: str | None = None
    recipient: str | None = None
    labels: tuple[str, ...] = ()
    mailbox: str | None = None
    has_attachment: bool | None = None
    since: int | None = None
    before: int | None = None
    limit: int = 50
    offset: int = 0
    after: tuple[int, int] | None = None

    def texts(self) -> Iterator[tuple[int, str]]:
        """What to look for, and in which text of the message."""
        for stream, text in enumerate((self.q, self.sender, self.recipient)):
            if text is not None:
                yield stream, text

    def columns(self) -> tuple[str, ...]:
        """The names of these texts."""
        return tuple(COLUMNS[stream] for stream, _ in self.texts())


@dataclass(frozen=True, slots=True)
class Answer:
    """The numbers of the messages of one page, newest first, and how many there are in all."""

    numbers: tuple[int, ...]
    total: int
    offset: int


Match = tuple[int, int]
"""The date and the number of a message: the order of every list, backwards."""
