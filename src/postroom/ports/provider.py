"""The door to a mailbox elsewhere: a small port, and abilities that not every provider has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from postroom.errors import FeatureDisabled
from postroom.model.account import Account, Capabilities
from postroom.model.remote import (
    Checkpoint,
    Push,
    Pushed,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
)
from postroom.ports.sender import Sender
from postroom.ports.vault import Secret


class Known(Protocol):
    """What we hold of an account already, for providers that cannot tell what is gone."""

    async def scopes(self) -> frozenset[str]: ...
    async def keys(self, scope: str) -> frozenset[str]: ...
    async def labels(self) -> frozenset[str]: ...


class Provider(Protocol):
    """One account, logged in.

    Every method raises ProviderError or its kinds when the other side fails, ProviderAuthFailed
    when it does not let us in, and RateLimited when it wants us to wait.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this account can do; asked after `check`."""

    async def check(self) -> None:
        """Log in and find out what the account can do."""

    def changes(
        self, since: Checkpoint | None, known: Known
    ) -> AsyncGenerator[RemoteChanges, None]:
        """What changed since a checkpoint, newest first; from None on, everything there is.

        Each part holds on its own: after it is stored, its checkpoint may be gone on from.
        """

    def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        """The messages themselves, as they come; what is gone meanwhile is left out."""

    async def push(self, push: Push) -> Pushed:
        """Make a change that was made here. Doing it twice does no harm."""

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        """Put a copy of mail into Sent that the provider did not send, unless it is there."""

    async def look(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        """How some messages stand now; what is gone is left out."""

    async def identities(self) -> list[RemoteIdentity]:
        """The addresses one may send from; the account's own first."""

    async def close(self) -> None:
        """Leave the provider."""


@runtime_checkable
class WaitsForChanges(Protocol):
    """Tells when something changed, instead of being asked."""

    async def wait(self) -> None:
        """Return when something may have changed, or when it is time to listen anew."""


@runtime_checkable
class MakesAliases(Protocol):
    """Lets us add addresses to send from."""

    async def create_alias(self, identity: RemoteIdentity) -> RemoteIdentity:
        """Make an address. Raises ProviderError with what the provider says against it."""


class Providers(Protocol):
    """Opens accounts."""

    def open(self, account: Account) -> AbstractAsyncContextManager[Provider]:
        """An account, not asked anything yet. Raises ProviderAuthFailed without its secret."""

    def sender(self, account: Account) -> Sender:
        """What takes mail of this account out."""

    async def check(self, account: Account, secret: Secret | None) -> Capabilities:
        """Log in with a secret, or with the one that is kept, and tell what the account can do."""

    async def create_alias(self, account: Account, alias: RemoteIdentity) -> RemoteIdentity:
        """Make an address to send from at the provider."""

    def has_secret(self, account_id: str) -> bool:
        """Whether what logs an account in is kept on this machine, in whatever state."""

    def login_mark(self, account_id: str) -> str | None:
        """Another text for every login, which does not tell it; None without one here."""

    def keep_secret(self, account_id: str, secret: Secret) -> None:
        """Keep what logs an account in, in place of what was kept before.

        This and the next wait for whoever renews it at the moment: not for an event loop.
        """

    def forget_secret(self, account_id: str) -> None: ...


class NoProviders:
    """For a house that only keeps its own mail."""

    def open(self, account: Account) -> AbstractAsyncContextManager[Provider]:
        raise RuntimeError(f"nobody can open {account.id} here")

    def sender(self, account: Account) -> Sender:
        raise RuntimeError(f"nobody can send for {account.id} here")

    async def check(self, account: Account, secret: Secret | None) -> Capabilities:
        raise FeatureDisabled("this house keeps its own mail only")

    async def create_alias(self, account: Account, alias: RemoteIdentity) -> RemoteIdentity:
        raise FeatureDisabled("this house keeps its own mail only")

    def has_secret(self, account_id: str) -> bool:
        return False

    def login_mark(self, account_id: str) -> str | None:
        return None

    def keep_secret(self, account_id: str, secret: Secret) -> None:
        raise FeatureDisabled("this house keeps its own mail only")

    def forget_secret(self, account_id: str) -> None:
        """There is none."""
