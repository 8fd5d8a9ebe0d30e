"""The folders of an account at Microsoft: their ids, and our names for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from postroom.errors import MailError
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.graph.client import GraphClient
from postroom.providers.web.api import ApiRefused
from postroom.providers.web.places import NestedPlaces, path_of

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
class Folders(NestedPlaces):
    """The folders of an account: by what Microsoft knows them as, or by their path."""

    client: GraphClient
    _standard: dict[str, str] = field(default_factory=dict)

    async def learn(self) -> None:
        if not self._standard:
            for name, ours in _WELL_KNOWN.items():
                key = await self.client.well_known(name)
                if key is not None:
                    self._standard[key] = ours
        standard = self._standard
        rows = {str(row["id"]): row for row in await self.client.folders()}
        named = {
            key: standard.get(key)
            or path_of(row, rows, name="displayName", parent="parentFolderId")
            for key, row in rows.items()
        }
        self.names = {**named, **standard}

    async def create(self, path: str, parent: str | None) -> str | MailError:
        try:
            return str((await self.client.create_folder(path.rpartition("/")[2], parent))["id"])
        except ApiRefused as refusal:
            if refusal.status != _EXISTS:
                raise
            return refusal
