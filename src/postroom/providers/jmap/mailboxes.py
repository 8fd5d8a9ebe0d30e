"""The mailboxes of a JMAP account: their ids, and our names for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.errors import MailError
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.jmap.client import JmapClient, MethodFailed, MethodRefused, refusal
from postroom.providers.web.places import NestedPlaces, path_of

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
class Mailboxes(NestedPlaces):
    """The mailboxes of an account: by their roles, or by their paths."""

    client: JmapClient

    async def learn(self) -> None:
        (answer,) = await self.client.call(
            ("Mailbox/get", {"ids": None, "properties": ["id", "name", "role", "parentId"]})
        )
        rows = {str(row["id"]): row for row in answer["list"]}
        self.names = {key: _mailbox_name(row, rows) for key, row in rows.items()}

    async def create(self, path: str, parent: str | None) -> str | MailError:
        role = next((role for role, ours in _ROLES.items() if ours == path), None)
        new = {"name": path.rpartition("/")[2], "parentId": parent}
        new |= {"role": role} if role else {}
        (answer,) = await self.client.call(("Mailbox/set", {"create": {"m": new}}))
        created = (answer.get("created") or {}).get("m")
        if created:
            return str(created["id"])
        error = refusal("Mailbox/set", (answer.get("notCreated") or {}).get("m", {}))
        if isinstance(error, MethodFailed):
            # QUIRK: of a name that no mailbox can have, Cyrus says that it has failed.
            return MethodRefused(str(error), error.type)
        return error


def _mailbox_name(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Our name for a mailbox: by its role, or by its path."""
    ours = _ROLES.get(str(row.get("role") or "").lower())
    if ours is not None:
        return ours
    return path_of(row, rows, name="name", parent="parentId")
