"""The folders of an account at Microsoft: their ids, and our names for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.graph.client import GraphClient
from postroom.providers.web.api import ApiRefused

_WELL_KNOWN = {
    "inbox": INBOX,
    "sentitems": SENT,
    "drafts": DRAFTS,
    "archive": ARCHIVE,
    "junkemail": JUNK,
    "deleteditems": TRASH,
}
_EXISTS = 409


@dataclass(eq=False)
class Folders:
    """What is known of the folders of an account; `names` has our name for each id."""

    client: GraphClient
    names: dict[str, str] = field(default_factory=dict)
    _standard: dict[str, str] = field(default_factory=dict)

    async def learn(self) -> None:
        """Ask which folders there are."""
        if not self._standard:
            for name, ours in _WELL_KNOWN.items():
                key = await self.client.well_known(name)
                if key is not None:
                    self._standard[key] = ours
        standard = self._standard
        rows = {str(row["id"]): row for row in await self.client.folders()}
        named = {key: standard.get(key) or _path(row, rows) for key, row in rows.items()}
        self.names = {**named, **standard}

    def named(self, name: str) -> str | None:
        """The id of a folder, if we know it."""
        folded = name.casefold()
        return next((k for k, known in self.names.items() if known.casefold() == folded), None)

    async def id_of(self, name: str) -> str:
        """The id of a folder of ours; it is made if it is not there, level by level."""
        found, levels = self.named(name), name.split("/")
        for depth in range(1, len(levels) + 1) if found is None else ():
            path = "/".join(levels[:depth])
            found = self.named(path) or await self._make(path, levels[depth - 1], found)
        return str(found)

    async def _make(self, path: str, level: str, parent: str | None) -> str:
        """Make a folder; one that its owner has made meanwhile is good, too."""
        try:
            key = str((await self.client.create_folder(level, parent))["id"])
        except ApiRefused as refusal:
            if refusal.status != _EXISTS:
                raise
            await self.learn()
            found = self.named(path)
            if found is None:
                raise
            return found
        self.names[key] = path
        return key


def _path(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> str:
    names, parent = [str(row["displayName"])], row.get("parentFolderId")
    while parent in rows and len(names) < 20:
        names.insert(0, str(rows[str(parent)]["displayName"]))
        parent = rows[str(parent)].get("parentFolderId")
    return "/".join(names)
