"""Shared by providers with a web API: folders and labels by name, listings, concurrent fetches."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from postroom.errors import MailError, ProviderError
from postroom.model.account import Checkpoint, RemoteChanges, RemoteMessage, RemoteRef
from postroom.ports.provider import StoredRefs
from postroom.providers.server_text import plain_name

Parts: TypeAlias = AsyncGenerator[RemoteChanges, None]
"""Changes at a provider, each with the checkpoint after it."""

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


class HistoryExpired(Exception):
    """The history does not reach back to this position; the mail has to be listed again."""


class HistoryReader(ABC):
    """Reads an account whose provider has one history for all of its mail.

    A checkpoint has the position in that history under `position_key`, and the names of folders or
    labels under `names_key`. While `listing` is set, the first listing is not complete, and its
    position is that of its start. `look_again` asks it to read known messages, too.
    """

    position_key: ClassVar[str]
    names_key: ClassVar[str]
    refusals: ClassVar[tuple[type[Exception], ...]] = (HistoryExpired,)
    folders: FolderNames
    _latest: str

    @abstractmethod
    def _messages_in(self, folder: str) -> AsyncIterator[tuple[RemoteMessage, ...]]:
        """All messages of a folder."""

    @abstractmethod
    def _since(self, position: str) -> Parts:
        """The changes since a position. Raises HistoryExpired."""

    @abstractmethod
    def _full_listing(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        """List every message, newest first, from the position of *since* if it has one."""

    async def changes(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        await self.folders.load()
        names, at = dict(self.folders.names), since or {}
        before = at.get(self.names_key, {})
        # Renames are not in the history.
        for folder in [key for key, name in names.items() if before.get(key, name) != name]:
            async for messages in self._messages_in(folder):
                yield RemoteChanges(at, messages)
        async for part in self._changes(since, known):
            yield replace(part, checkpoint={**part.checkpoint, self.names_key: names})

    async def _changes(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        if since is not None and not since.get("listing"):
            try:
                async for part in self._since(since[self.position_key]):
                    yield part
            except HistoryExpired:
                since = {"look_again": True}
            else:
                return
        async for part in self._full_listing(since, known):
            yield part

    async def _new_mail(self, listing: Checkpoint) -> Parts:
        """The changes since `_latest` during a long listing; removals are found at its end."""
        with suppress(*self.refusals):
            async for part in self._since(self._latest):
                self._latest = part.checkpoint[self.position_key]
                yield replace(part, checkpoint=listing, removed=())


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
    levels, above = [plain_name(str(row[name]))], row.get(parent)
    while above is not None and str(above) in rows and len(levels) < _MAX_LEVELS:
        levels.insert(0, plain_name(str(rows[str(above)][name])))
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
