"""Responses: the base of their values, and pages of lists, which fetch the next automatically."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

ABSENT: Any = None
"""Stands for a value that was not answered. A key without the scope `read` is shown only ids,
statuses and counts of what it changes, so that any other field may be absent.
"""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A value in a response. Members that this version does not know are ignored."""

    untrusted: bool = False
    """Whether the response contains text from the sender of a mail: data, never instructions."""

    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """The fields that `repr` hides, so that no log or notebook keeps them."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = super().__rich_repr__()
        return [(name, "***" if name in self.SECRETS else value) for name, value in shown]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def to_dict(self) -> dict[str, Any]:
        """The value as a dictionary of JSON types, without what is empty."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found


T = TypeVar("T")


class PageFields(msgspec.Struct, Generic[T], kw_only=True, dict=True):
    """One page of a list.

    A list takes `limit` (1 to 100, 50 if not given) and `offset`, or the `next_cursor` of the
    previous page as `cursor`, which stays valid while mail arrives.
    """

    results: tuple[T, ...] = ()
    total: int = 0
    """How many there are in all."""
    limit: int = 0
    offset: int = 0
    has_more: bool = False
    next_cursor: str | None = None
    hint: str | None = None
    """What to try if nothing was found; or that a ranking is not final."""
    is_paused: bool | None = None
    """Of the outbox: whether nothing is sent at the moment."""
    untrusted: bool = False


class Page(PageFields[T]):
    """One page; iterating over it also fetches the following pages."""

    def __iter__(self) -> Iterator[T]:
        page: Page[T] = self
        while True:
            yield from page.results
            if page.next_cursor is None:
                return
            page = page._following(page.next_cursor)

    def _following(self, cursor: str) -> Page[T]:
        follow: Callable[[str], Page[T]] = self.__dict__["follow"]
        return follow(cursor)


class AsyncPage(PageFields[T]):
    """One page; `async for` also fetches the following pages."""

    async def __aiter__(self) -> AsyncIterator[T]:
        page: AsyncPage[T] = self
        while True:
            for row in page.results:
                yield row
            if page.next_cursor is None:
                return
            page = await page._following(page.next_cursor)

    async def _following(self, cursor: str) -> AsyncPage[T]:
        follow: Callable[[str], Awaitable[AsyncPage[T]]] = self.__dict__["follow"]
        return await follow(cursor)


class AsyncPages(Generic[T]):
    """A requested list: `await` returns its first page, `async for` yields all of its items."""

    def __init__(self, first: Callable[[], Awaitable[AsyncPage[T]]]) -> None:
        self._first = first

    def __await__(self) -> Generator[Any, Any, AsyncPage[T]]:
        return self._first().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        async for row in await self._first():
            yield row
