"""Responses: the base of their values, and pages of lists, which fetch the next automatically."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
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


C = TypeVar("C")


@dataclass(frozen=True)
class MergedPages(Generic[C, T]):
    """The lists of several servers in one order; iterating yields pairs of client and item."""

    clients: Sequence[C]
    pages: Sequence[Page[T]]
    order_by: str
    oldest_first: bool

    @property
    def total(self) -> int:
        """How many there are on all servers."""
        return sum(page.total for page in self.pages)

    def __iter__(self) -> Iterator[tuple[C, T]]:
        time_of = attrgetter(self.order_by)
        pairs = zip(self.clients, self.pages, strict=True)
        lists = [zip(repeat(client), page, strict=False) for client, page in pairs]
        return heapq.merge(*lists, key=lambda pair: time_of(pair[1]), reverse=not self.oldest_first)


def merge_pages(
    clients: Sequence[C],
    list_items: Callable[[C], Page[T]],
    *,
    order_by: str = "date",
    oldest_first: bool = False,
) -> MergedPages[C, T]:
    """Request the same list of several servers at once, and merge the pages by a time.

    *order_by* is the attribute by which the lists are sorted, such as `last_date` of threads.

    Raises:
        MailError: a server did not answer; the total would not be exact.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(1, len(clients))) as threads:
        pages = list(threads.map(list_items, clients))
    return MergedPages(clients, pages, order_by, oldest_first)
