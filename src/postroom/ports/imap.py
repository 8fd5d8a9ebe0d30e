"""The door to live mailboxes on IMAP servers.

Nothing here is kept: each call asks the server. Whatever takes a locator opens its mailbox and
checks its UIDVALIDITY first, so that no call can touch another message than the one it names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from postroom.model.imap import (
    ImapAccount,
    ImapCopyOf,
    ImapCriteria,
    ImapDescription,
    ImapFound,
    ImapLocator,
    ImapMailbox,
    ImapPieces,
    ImapSection,
    ImapSummary,
)

T = TypeVar("T")


class ImapSession(Protocol):
    """A connection to one account, for the time of one piece of work.

    Every method raises ProviderError (or its kinds) when the server fails or refuses, NotFound for
    a mailbox that is not there, and Conflict for a UIDVALIDITY that is not the expected one.
    """

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the server says it can do."""

    async def mailboxes(self) -> list[ImapMailbox]:
        """The mailboxes that can be opened, INBOX first."""

    async def find(
        self,
        mailbox: str,
        criteria: ImapCriteria,
        *,
        limit: int,
        most: int,
        uidvalidity: int | None = None,
        below: int | None = None,
    ) -> ImapFound:
        """The newest *limit* matches with a UID *below* one; no UIDs if more than *most* match."""

    async def summaries(
        self,
        mailbox: str,
        uidvalidity: int,
        uids: Sequence[int],
        *,
        snippet_chars: int | None,
        into: dict[int, ImapSummary],
    ) -> None:
        """Describe messages, each as it comes: what is in *into* is whole, even on failure."""

    async def describe(self, at: ImapLocator) -> ImapDescription | None:
        """Flags, header and structure of a message; None if it is gone."""

    async def pieces(
        self, at: ImapLocator, sections: Sequence[ImapSection], sized: Sequence[str] = ()
    ) -> ImapPieces:
        """Read stretches of a message, and how large the parts *sized* are when decoded."""

    async def source(self, at: ImapLocator, most_bytes: int) -> tuple[bytes, int] | None:
        """The first bytes of a message as it is, and its whole size; None if it is gone."""

    async def whole(self, at: ImapLocator, most_bytes: int) -> ImapCopyOf | None:
        """A message with flags and date. Raises TooLarge."""

    async def exists(self, at: ImapLocator, *, for_writing: bool = True) -> bool:
        """Open the mailbox and see whether the message is there."""

    async def change_flags(
        self, at: ImapLocator, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Add flags, or remove some."""

    async def flags(self, at: ImapLocator) -> tuple[str, ...] | None:
        """The flags as they are now; None if the message is gone."""

    async def copy(self, at: ImapLocator, mailbox: str) -> ImapLocator | None:
        """Copy within the account; where to, if the server tells."""

    async def move(self, at: ImapLocator, mailbox: str) -> ImapLocator | None:
        """Move in one step; only for servers that can MOVE."""

    async def append(self, mailbox: str, message: ImapCopyOf) -> ImapLocator | None:
        """Put a message into a mailbox; where to, if the server tells."""

    async def expunge(self, at: ImapLocator) -> None:
        """Remove this one message, which is flagged as deleted; only for servers with UIDPLUS."""


class LiveImap(Protocol):
    """The accounts that tools may work on live."""

    @property
    def accounts(self) -> tuple[ImapAccount, ...]:
        """All of them, by name."""

    @property
    def is_write_enabled(self) -> bool:
        """Whether the gate for changes is open."""

    async def read(self, account_id: str, work: Callable[[ImapSession], Awaitable[T]]) -> T:
        """Do work that changes nothing; if the connection is lost, once more on a new one."""

    def session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        """A connection that was found to be alive, for work that must not be done twice."""

    def fresh_session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        """A connection that is made now."""

    async def close(self) -> None:
        """Leave every server."""
