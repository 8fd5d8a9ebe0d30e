"""Live mailboxes on IMAP servers.

Nothing is stored: each call asks the server. A call with a locator opens its mailbox and checks its
UIDVALIDITY first, so that it cannot affect another message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
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
    """A connection to one account, for one task.

    Every method raises ProviderError (or its kinds) when the server fails or refuses, NotFound for
    a mailbox that is not there, and Conflict for a UIDVALIDITY that is not the expected one.
    """

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that the server announces."""

    async def mailboxes(self) -> list[ImapMailbox]:
        """The mailboxes that can be opened, INBOX first."""

    async def find(
        self,
        mailbox: str,
        criteria: ImapCriteria,
        *,
        limit: int,
        max_matches: int,
        uidvalidity: int | None = None,
        below: int | None = None,
    ) -> ImapFound:
        """The newest *limit* matches with a UID *below* one.

        If more than *max_matches* match, only their number is returned.
        """

    async def summaries(
        self,
        mailbox: str,
        uidvalidity: int,
        uids: Sequence[int],
        *,
        snippet_chars: int | None,
        into: dict[int, ImapSummary],
    ) -> None:
        """Add a summary of each message to *into* as it arrives; after an error, those stay."""

    async def describe(self, at: ImapLocator) -> ImapDescription | None:
        """Flags, header and structure of a message; None if it is gone."""

    async def fetch_sections(
        self, at: ImapLocator, sections: Sequence[ImapSection], sized: Sequence[str] = ()
    ) -> ImapPieces:
        """Read sections of a message, and the decoded sizes of the parts *sized*."""

    async def source(self, at: ImapLocator, max_bytes: int) -> tuple[bytes, int] | None:
        """The first bytes of the raw message, and its size; None if it is gone."""

    async def fetch_message(self, at: ImapLocator, max_bytes: int) -> ImapCopyOf | None:
        """A whole message with flags and date. Raises TooLarge."""

    async def exists(self, at: ImapLocator, *, for_writing: bool = True) -> bool:
        """Open the mailbox and check whether the message is there."""

    async def change_flags(
        self, at: ImapLocator, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Add flags, or remove some."""

    async def flags(self, at: ImapLocator) -> tuple[str, ...] | None:
        """The flags as they are now; None if the message is gone."""

    async def copy(self, at: ImapLocator, mailbox: str) -> ImapLocator | None:
        """Copy within the account; returns the new locator if the server reports it."""

    async def move(self, at: ImapLocator, mailbox: str) -> ImapLocator | None:
        """Move in one step; only for servers with MOVE."""

    async def append(self, mailbox: str, message: ImapCopyOf) -> ImapLocator | None:
        """Append a message to a mailbox; returns its locator if the server reports it."""

    async def expunge(self, at: ImapLocator) -> None:
        """Expunge this message, which has the flag deleted; only for servers with UIDPLUS."""


class LiveImap(Protocol):
    """The accounts that tools can use live."""

    @property
    def accounts(self) -> tuple[ImapAccount, ...]:
        """All accounts, by name."""

    @property
    def is_write_enabled(self) -> bool:
        """Whether changes are enabled."""

    async def read(self, account_id: str, work: Callable[[ImapSession], Awaitable[T]]) -> T:
        """Run *work*, which changes nothing; once more on a new connection if it is lost."""

    def session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        """A connection that was checked, for work that must not be repeated."""

    def fresh_session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        """A new connection."""

    async def close(self) -> None:
        """Close all connections."""
