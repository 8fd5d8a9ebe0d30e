"""The store of accounts, their remote messages and pending changes, and of identities."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol

from postroom.model.account import (
    Account,
    AccountState,
    Checkpoint,
    Identity,
    Push,
    Pushed,
    Refusal,
    RemoteChanges,
    RemoteMessage,
    RemoteRef,
    Unfetched,
)
from postroom.model.inbox import OWNERS_RIGHTS, AddressRights, QuestionableAddress, Visible
from postroom.model.message import BlobKey
from postroom.model.page import Found, Slice
from postroom.model.storage import Added, NewMessage


class AccountStore(Protocol):
    """Accounts, where their messages are at the provider, and changes to push there."""

    async def add_account(
        self, account: Account, name: str, rights: AddressRights = OWNERS_RIGHTS
    ) -> None:
        """Add an account and its inbox. Raises Conflict."""

    async def accounts(self, visible: Visible, page: Slice) -> Found[Account]: ...
    async def account(self, account_id: str, visible: Visible) -> Account | None: ...
    async def inboxes_of_accounts(self, account_ids: Collection[str]) -> frozenset[str]: ...
    async def change_account(self, account_id: str, options: dict[str, Any]) -> None:
        """Replace the options of an account after a new login; it is synced again."""

    async def set_account_state(
        self,
        account_id: str,
        state: AccountState,
        detail: str = "",
        *,
        synced_at: datetime | None = None,
    ) -> None: ...
    async def set_capabilities(self, account_id: str, capabilities: dict[str, Any]) -> None: ...
    async def capabilities_of(self, account_id: str) -> dict[str, Any] | None: ...
    async def request_sync(self, account_id: str, now: datetime) -> None:
        """Ask for a sync pass now. Raises NotFound."""

    async def asked_at(self, account_id: str) -> int: ...
    async def checkpoint_of(self, account_id: str) -> Checkpoint | None: ...
    async def unfetched(self, account_id: str) -> tuple[Unfetched, ...]:
        """Messages that the provider has and that could not be fetched yet."""

    async def set_unfetched(self, account_id: str, unfetched: Sequence[Unfetched]) -> None: ...
    async def unknown_refs(
        self,
        account_id: str,
        refs: Sequence[RemoteRef],
        *,
        untrashed: Collection[RemoteRef] = (),
    ) -> set[RemoteRef]:
        """The refs that are not known here, and those that came back out of Trash."""

    async def remote_scopes(self, account_id: str) -> frozenset[str]: ...
    async def remote_keys(self, account_id: str, scope: str) -> frozenset[str]: ...
    async def remote_labels(self, account_id: str) -> frozenset[str]: ...
    async def add_remote(
        self, account_id: str, arrivals: Sequence[tuple[NewMessage, RemoteMessage]]
    ) -> list[Added]:
        """Add mail of a provider; a message that is here already gets its place there."""

    async def apply_changes(self, account_id: str, changes: RemoteChanges) -> None:
        """Apply changes of the provider to messages, and store the new checkpoint."""

    async def sweep_gone(self, account_id: str, limit: int) -> tuple[int, tuple[BlobKey, ...]]:
        """Remove messages that are gone at the provider; only after a complete pass."""

    async def due_pushes(self, account_id: str, now: datetime, limit: int) -> list[Push]: ...
    async def settle_push(self, account_id: str, push: Push, pushed: Pushed) -> None: ...
    async def defer_push(self, push: Push, next_at: datetime) -> None: ...
    async def abandon_push(self, account_id: str, push: Push, refusal: Refusal) -> None: ...
    async def next_push_at(self, account_id: str) -> datetime | None: ...


class IdentityStore(Protocol):
    """Addresses that one may send from."""

    async def check_alias(self, email: str, inbox_id: str, rights: AddressRights) -> None:
        """Raise what `add_identity` would raise."""

    async def add_identity(
        self, identity: Identity, rights: AddressRights = OWNERS_RIGHTS
    ) -> Identity:
        """Raises Conflict if the address is taken, Forbidden if these rights do not include it."""

    async def replace_identities(
        self, inbox_id: str, identities: Sequence[Identity], served: Collection[str] = ()
    ) -> None:
        """Replace the identities of an inbox by those that the provider has.

        At a domain that is *served* here, reserved names are left out.
        """

    async def questionable_addresses(self) -> list[QuestionableAddress]:
        """Addresses in use that would be refused to anyone but the owner today."""

    async def identities(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[Identity]: ...
    async def default_identity(self, inbox_id: str) -> Identity | None: ...
    async def identity_at(self, email: str) -> Identity | None: ...
    async def remove_identity(self, identity_id: str, visible: Visible) -> bool:
        """Whether there was one. Raises Conflict for the first address of an inbox."""

    async def change_identity(
        self,
        identity_id: str,
        visible: Visible,
        *,
        name: str | None,
        signature: str | None,
        is_default: bool | None,
    ) -> Identity | None: ...
