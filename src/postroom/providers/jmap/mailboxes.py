"""The mailboxes of a JMAP account: their ids, and our names for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.jmap.client import JmapClient, MethodFailed, MethodRefused, refusal

_ROLES = {
    "inbox": INBOX,
    "sent": SENT,
    "drafts": DRAFTS,
    "archive": ARCHIVE,
    "junk": JUNK,
    "spam": JUNK,
    "trash": TRASH,
}


@dataclass(eq=False)
class Mailboxes:
    """What is known of the mailboxes of an account; `names` has our name for each id."""

    client: JmapClient
    names: dict[str, str] = field(default_factory=dict)

    async def learn(self) -> None:
        """Ask which mailboxes there are."""
        (answer,) = await self.client.call(
            ("Mailbox/get", {"ids": None, "properties": ["id", "name", "role", "parentId"]})
        )
        rows = {str(row["id"]): row for row in answer["list"]}
        self.names = {key: _mailbox_name(row, rows) for key, row in rows.items()}

    def named(self, name: str) -> str | None:
        """The id of a mailbox, if we know it."""
        folded = name.casefold()
        return next((k for k, known in self.names.items() if known.casefold() == folded), None)

    async def id_of(self, name: str) -> str:
        """The id of a mailbox of ours; it is made if it is not there, level by level."""
        found, levels = self.named(name), name.split("/")
        for depth in range(1, len(levels) + 1) if found is None else ():
            path = "/".join(levels[:depth])
            found = self.named(path) or await self._make(path, levels[depth - 1], found)
        return str(found)

    async def _make(self, path: str, level: str, parent: str | None) -> str:
        """Make a mailbox; one that its owner has made meanwhile is good, too."""
        role = next((role for role, ours in _ROLES.items() if ours == path), None)
        new = {"name": level, "parentId": parent} | ({"role": role} if role else {})
        (answer,) = await self.client.call(("Mailbox/set", {"create": {"m": new}}))
        created = (answer.get("created") or {}).get("m")
        if created:
            self.names[str(created["id"])] = path
            return str(created["id"])
        await self.learn()
        found = self.named(path)
        if found is None:
            refused = (answer.get("notCreated") or {}).get("m", {})
            error = refusal("Mailbox/set", refused)
            if isinstance(error, MethodFailed):
                # QUIRK: of a name that no mailbox can have, Cyrus says that it has failed.
                raise MethodRefused(str(error), error.type)
            raise error
        return found


def _mailbox_name(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Our name for a mailbox: by its role, or by its path."""
    ours = _ROLES.get(str(row.get("role") or "").lower())
    if ours is not None:
        return ours
    names, parent = [str(row["name"])], row.get("parentId")
    while parent is not None and str(parent) in rows and len(names) < 20:
        names.insert(0, str(rows[str(parent)]["name"]))
        parent = rows[str(parent)].get("parentId")
    return "/".join(names)
