"""The labels of an account at Gmail that are its owner's: their ids, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from postroom.errors import MailError
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.gmail.client import GmailClient
from postroom.providers.web.api import ApiRefused
from postroom.providers.web.places import Places

_MAILBOXES = {"INBOX": INBOX, "SENT": SENT, "DRAFT": DRAFTS, "SPAM": JUNK, "TRASH": TRASH}
IDS = {name: key for key, name in _MAILBOXES.items()}
"""The system labels that are mailboxes for us."""

_EXISTS = (400, 409)


@dataclass(eq=False)
class GmailLabels(Places):
    """The labels of an account; a slash in a name is a part of it, and no level."""

    client: GmailClient

    async def learn(self) -> None:
        self.names = {
            str(row["id"]): str(row["name"])
            for row in await self.client.labels()
            if row.get("type") != "system"
        }

    async def learn_new(self, keys: Iterable[str]) -> None:
        """Ask again if there is one among labels of messages that we do not know."""
        if any(key.startswith("Label_") and key not in self.names for key in keys):
            await self.learn()

    def among(self, keys: Sequence[str]) -> tuple[str, ...]:
        """The names of those labels of a message that are its owner's."""
        return tuple(self.names[key] for key in keys if key in self.names)

    def renamed_since(self, before: Mapping[str, str]) -> list[str]:
        """Labels that are called otherwise than they were."""
        return [key for key, name in self.names.items() if before.get(key, name) != name]

    async def create(self, path: str, parent: str | None) -> str | MailError:
        try:
            return str((await self.client.create_label(path))["id"])
        except ApiRefused as refusal:
            if refusal.status not in _EXISTS:
                raise
            return refusal


def mailboxes_of(keys: Sequence[str]) -> tuple[str, ...]:
    """Where labels put a message: what is in Trash or Spam is nowhere else, as Gmail shows it."""
    found = tuple(_MAILBOXES[key] for key in keys if key in _MAILBOXES)
    aside = tuple(name for name in found if name in (TRASH, JUNK))
    return aside or found or (ARCHIVE,)
