"""Shared by providers with a web API: folders and labels by name, listings, concurrent fetches."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import MailError, ProviderError
from postroom.model.account import RemoteRef

CONCURRENT_REQUESTS = 8
_MAX_LEVELS = 20


@dataclass(eq=False)
class FolderNames(ABC):
    """The labels or folders of an account; `names` maps their ids to our names."""

    names: dict[str, str] = field(default_factory=dict, init=False)

    @abstractmethod
    async def load(self) -> None:
        """Request the list from the provider."""

    @abstractmethod
    async def create(self, path: str, parent: str | None) -> str | MailError:
        """Create a folder and return its id, or the error if it may exist already."""

    def find(self, name: str) -> str | None:
        """The id of a folder; None if it is not known."""
        folded = name.casefold()
        return next((k for k, known in self.names.items() if known.casefold() == folded), None)

    def renamed_since(self, before: Mapping[str, str]) -> list[str]:
        """The ids of folders that have another name now."""
        return [key for key, name in self.names.items() if before.get(key, name) != name]

    async def id_of(self, name: str) -> str:
        """The id of a folder, which is created if necessary."""
        return self.find(name) or await self._create(name, None)

    async def _create(self, path: str, parent: str | None) -> str:
        """Create a folder, or use the one that was created in the meantime."""
        created = await self.create(path, parent)
        if isinstance(created, str):
            self.names[created] = path
            return created
        await self.load()
        found = self.find(path)
        if found is None:
            raise created
        return found


class FolderPaths(FolderNames):
    """The nested folders of an account, named by their paths."""

    async def id_of(self, name: str) -> str:
        found, levels = self.find(name), name.split("/")
        for depth in range(1, len(levels) + 1) if found is None else ():
            path = "/".join(levels[:depth])
            found = self.find(path) or await self._create(path, found)
        return str(found)


def path_of(
    row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], *, name: str, parent: str
) -> str:
    """The path of a folder; *name* and *parent* are the keys of these fields in a row."""
    levels, above = [str(row[name])], row.get(parent)
    while above is not None and str(above) in rows and len(levels) < _MAX_LEVELS:
        levels.insert(0, str(rows[str(above)][name]))
        above = rows[str(above)].get(parent)
    return "/".join(levels)


def next_page(following: str | None, current: str | None) -> str | None:
    """The link or token of the next page. Raises ProviderError for one that would never end."""
    if following and following == current:
        raise ProviderError("the provider repeats the same page of a list")
    return following


def missing_refs(
    before: AbstractSet[str], listed: AbstractSet[str], total: int | None
) -> tuple[RemoteRef, ...]:
    """The messages that are no longer listed. Raises ProviderError if *total* contradicts that."""
    if total and before and not listed:
        raise ProviderError("the provider counts messages but lists none")
    return tuple(RemoteRef("", key) for key in sorted(before - listed))


async def fetch_each(
    refs: Sequence[RemoteRef],
    fetch: Callable[[RemoteRef], Awaitable[bytes | None]],
    *,
    concurrency: int = CONCURRENT_REQUESTS,
) -> AsyncIterator[tuple[RemoteRef, bytes]]:
    """Fetch messages with several concurrent requests, in order; skip those that are gone."""
    tasks: dict[int, asyncio.Future[bytes | None]] = {}
    try:
        for number, ref in enumerate(refs):
            for ahead in range(number, min(number + concurrency, len(refs))):
                if ahead not in tasks:
                    tasks[ahead] = asyncio.ensure_future(fetch(refs[ahead]))
            raw = await tasks[number]
            if raw is not None:
                yield ref, raw
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
