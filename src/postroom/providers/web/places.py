"""Where an account behind an API keeps its mail: the ids of its places, and our names for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import MailError

_MOST_LEVELS = 20


@dataclass(eq=False)
class Places(ABC):
    """What is known of the labels of an account; `names` has our name for each id."""

    names: dict[str, str] = field(default_factory=dict, init=False)

    @abstractmethod
    async def learn(self) -> None:
        """Ask which there are."""

    @abstractmethod
    async def create(self, path: str, parent: str | None) -> str | MailError:
        """Make one and return its id, or why that is refused if it may be there by now."""

    def named(self, name: str) -> str | None:
        """The id of one, if we know it."""
        folded = name.casefold()
        return next((k for k, known in self.names.items() if known.casefold() == folded), None)

    async def id_of(self, name: str) -> str:
        """The id of one; it is made if it is not there."""
        return self.named(name) or await self._make(name, None)

    async def _make(self, path: str, parent: str | None) -> str:
        """Make one; what its owner has made meanwhile is good, too."""
        made = await self.create(path, parent)
        if isinstance(made, str):
            self.names[made] = path
            return made
        await self.learn()
        found = self.named(path)
        if found is None:
            raise made
        return found


class NestedPlaces(Places):
    """What is known of the folders of an account, which are inside of each other."""

    async def id_of(self, name: str) -> str:
        """The id of a folder of ours; it is made if it is not there, level by level."""
        found, levels = self.named(name), name.split("/")
        for depth in range(1, len(levels) + 1) if found is None else ():
            path = "/".join(levels[:depth])
            found = self.named(path) or await self._make(path, found)
        return str(found)


def path_of(
    row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], *, name: str, parent: str
) -> str:
    """The path of a folder, from the top; `name` and `parent` say what a row calls them."""
    levels, above = [str(row[name])], row.get(parent)
    while above is not None and str(above) in rows and len(levels) < _MOST_LEVELS:
        levels.insert(0, str(rows[str(above)][name]))
        above = rows[str(above)].get(parent)
    return "/".join(levels)
