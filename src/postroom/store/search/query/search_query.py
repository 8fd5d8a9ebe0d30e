"""The query that the index answers, and its result."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.model.values import dataclass
from postroom.model.view import Numbers
from postroom.store.search.segments.segment import COLUMNS

EVERYWHERE = "*"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Which messages to find. Texts and names are folded; None does not restrict.

    A `mailbox` of None excludes hidden messages, `*` excludes nothing. `sender` and `recipient` are
    searched in the joined addresses. `after` is the date and number of the last message of the page
    before.
    """

    inboxes: Numbers
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
        """The streams to search, and the text to find in each."""
        for stream, text in enumerate((self.q, self.sender, self.recipient)):
            if text is not None:
                yield stream, text

    def columns(self) -> tuple[str, ...]:
        """The columns of these streams."""
        return tuple(COLUMNS[stream] for stream, _ in self.texts())


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The message numbers of one page, newest first, and the total of all matches."""

    numbers: tuple[int, ...]
    total: int
    offset: int


Match = tuple[int, int]
"""Date and number of a message; lists are sorted by it, descending."""
