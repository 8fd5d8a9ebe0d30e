"""How a shelf stood when a list was begun: what relevance is told from on every page of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from postroom.errors import InvalidInput
from postroom.model.page import Place

CANNOT_GO_ON = (
    "cursor: what it was made from has changed too much since; start again without it, from the"
    " first page"
)
_KEY_PARTS, _CENSUS_PARTS, _LINES = 2, 5, 2


@dataclass(frozen=True, slots=True)
class Census:
    """The numbers of a shelf at a moment; `size` is the number of the next leaf."""

    epoch: int
    changes: int
    size: int
    living: int
    words: int

    @property
    def usual_length(self) -> float:
        """How many words a leaf has on the average."""
        return max(self.words / self.living if self.living else 1.0, 1.0)

    def rarity(self, count: int) -> float:
        """What a term counts for that so many leaves have."""
        return math.log1p((self.living - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first page of a list was made with.

    With it the relevance of a leaf depends on that leaf alone, so that a later page goes on where
    the last one ended, whatever has come, gone or been learnt since. `counts` are the leaves that
    had each term; `lines` is where the ranking drew its lines, as it sees fit.
    """

    census: Census
    counts: tuple[int, ...]
    lines: tuple[int, int]

    @property
    def whole(self) -> float:
        """What a leaf of usual length weighs that has every term."""
        return max(sum(self.census.rarity(count) for count in self.counts), 1e-6)

    @property
    def place(self) -> Place:
        """This as a cursor carries it."""
        return (*astuple(self.census), *self.lines, *self.counts)


def begun_with(after: Place | None, terms: Sequence[str], now: Census) -> Begun | None:
    """What a list was begun with, if a cursor goes on with it.

    Raises:
        InvalidInput: its leaves have other numbers by now, or another version made it.
    """
    if after is None:
        return None
    numbers = [int(number) for number in after[_KEY_PARTS:]]
    census, lines = numbers[:_CENSUS_PARTS], numbers[_CENSUS_PARTS : _CENSUS_PARTS + _LINES]
    counts = numbers[_CENSUS_PARTS + _LINES :]
    if len(lines) != _LINES or len(counts) != len(terms) or census[0] != now.epoch:
        raise InvalidInput(CANNOT_GO_ON)
    return Begun(Census(*census), tuple(counts), (lines[0], lines[1]))
