"""The labels of an account at Gmail that are its owner's: their ids, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.gmail.client import GmailClient
from postroom.providers.web.api import ApiRefused

_MAILBOXES = {"INBOX": INBOX, "SENT": SENT, "DRAFT": DRAFTS, "SPAM": JUNK, "TRASH": TRASH}
IDS = {name: key for key, name in _MAILBOXES.items()}
"""The system labels that are mailboxes for us."""

_EXISTS = (400, 409)


@dataclass(eq=False)
class GmailLabels:
    """What is known of the labels of an account; `names` has the name of each id."""

    client: GmailClient
    names: dict[str, str] = field(default_factory=dict)

    async def learn(self) -> None:
        """Ask which labels there are."""
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

    def named(self, name: str) -> str | None:
        """The id of a label, if we know it."""
        folded = name.casefold()
        return next((k for k, other in self.names.items() if other.casefold() == folded), None)

    def renamed_since(self, before: Mapping[str, str]) -> list[str]:
        """Labels that are called otherwise than they were."""
        return [key for key, name in self.names.items() if before.get(key, name) != name]

    async def id_of(self, name: str) -> str:
        """The id of a label; it is made if it is not there, by us or meanwhile by its owner."""
        found = self.named(name)
        if found is not None:
            return found
        try:
            key = str((await self.client.create_label(name))["id"])
        except ApiRefused as refusal:
            if refusal.status not in _EXISTS:
                raise
            await self.learn()
            found = self.named(name)
            if found is None:
                raise
            return found
        self.names[key] = name
        return key


def mailboxes_of(keys: Sequence[str]) -> tuple[str, ...]:
    """Where labels put a message: what is in Trash or Spam is nowhere else, as Gmail shows it."""
    found = tuple(_MAILBOXES[key] for key in keys if key in _MAILBOXES)
    aside = tuple(name for name in found if name in (TRASH, JUNK))
    return aside or found or (ARCHIVE,)
