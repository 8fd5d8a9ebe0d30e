"""What a caller may see: everything, or only what is named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Generic, TypeVar

from postroom.model.values import dataclass

T = TypeVar("T")
_NO_TRUTH = "a view is neither true nor false; ask what it sees"


@dataclass(frozen=True, slots=True)
class Everything:
    """No limit, also for what is added later."""

    def sees(self, one: object) -> bool:
        return True

    def covers(self, other: Everything | Only[T]) -> bool:
        """Whether this view contains all of *other*."""
        return True

    def narrowed_to(self, some: Iterable[T]) -> Only[T]:
        """A view of those that are in this view."""
        return Only(tuple(some))

    def __bool__(self) -> bool:
        raise TypeError(_NO_TRUTH)


@dataclass(frozen=True, slots=True)
class Only(Generic[T]):
    """Only these; `named` keeps their order.

    `gone` were in the view before they were removed: `covers` ignores them.
    """

    named: tuple[T, ...] = field(compare=False)
    ids: frozenset[T] = field(init=False, repr=False)
    gone: frozenset[T] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozenset(self.named))

    def sees(self, one: T) -> bool:
        return one in self.ids

    def covers(self, other: Everything | Only[T]) -> bool:
        """Whether this view contains all of *other*.

        It never contains an empty view, whose owner is unknown.
        """
        if not isinstance(other, Only):
            return False
        left = other.ids - self.gone
        return len(left) > 0 and left <= self.ids

    def narrowed_to(self, some: Iterable[T]) -> Only[T]:
        """A view of those that are in this view."""
        return Only(tuple(one for one in some if one in self.ids))

    @property
    def is_empty(self) -> bool:
        return not self.ids

    def __bool__(self) -> bool:
        raise TypeError(_NO_TRUTH)


EVERYTHING = Everything()
NOTHING: Only[str] = Only(())

View = Everything | Only[str]
"""What exists for a caller, or what a rule, plan or webhook applies to, by ids or names."""

Numbers = Everything | Only[int]
"""A view by row numbers."""


def only(*named: T) -> Only[T]:
    """A view of only these."""
    return Only(named)


def view_of(named: Iterable[str] | None) -> View:
    """A view from JSON: null is everything, a list names its members."""
    if isinstance(named, (str, bytes)):
        raise TypeError("a view is a list of ids or names, and not one text")
    return EVERYTHING if named is None else Only(tuple(dict.fromkeys(named)))


def is_within(some: View, view: View) -> bool:
    """Whether a view contains all that another one sees; one that sees nothing is in every view."""
    if isinstance(view, Everything):
        return True
    return isinstance(some, Only) and some.ids <= view.ids


def view_names(view: View) -> tuple[str, ...] | None:
    """A view as JSON, in the order of its names."""
    return None if isinstance(view, Everything) else view.named
