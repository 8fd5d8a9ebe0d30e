"""The door to accounts: logins, what is where at their providers, and addresses to send from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol

from postroom.model.account import Account, AccountState, Identity
from postroom.model.attachment import BlobKey
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.remote import (
    Checkpoint,
    Push,
    Pushed,
    Refusal,
    RemoteChanges,
    RemoteMessage,
    RemoteRef,
    Unfetched,
)
from postroom.model.stored import Added, NewMessage


class KeepsAccounts(Protocol):
    """Logins at providers, what is where over there, and what they have yet to be told."""

    async def add_account(self, account: Account, name: str) -> None:
        """Keep an account together with its inbox. Raises Conflict."""

    async def accounts(self, visible: Visible, page: Slice) -> Found[Account]: ...
    async def account(self, account_id: str, visible: Visible) -> Account | None: ...
    async def inboxes_of_accounts(self, account_ids: Collection[str]) -> frozenset[str]: ...
    async def change_account(self, account_id: str, options: dict[str, Any]) -> None:
        """Let an account be asked anew, after another sign-in."""

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
    async def ask_for_sync(self, account_id: str, now: datetime) -> None:
        """Have an account looked at now, by whoever does that. Raises NotFound."""

    async def asked_at(self, account_id: str) -> int: ...
    async def checkpoint_of(self, account_id: str) -> Checkpoint | None: ...
    async def unfetched(self, account_id: str) -> tuple[Unfetched, ...]:
        """What a provider has and did not give out yet."""

    async def set_unfetched(self, account_id: str, unfetched: Sequence[Unfetched]) -> None: ...
    async def unknown_refs(
        self,
        account_id: str,
        refs: Sequence[RemoteRef],
        *,
        untrashed: Collection[RemoteRef] = (),
    ) -> set[RemoteRef]:
        """Places that we know nothing of, or let go to Trash and find back."""

    async def remote_scopes(self, account_id: str) -> frozenset[str]: ...
    async def remote_keys(self, account_id: str, scope: str) -> frozenset[str]: ...
    async def remote_labels(self, account_id: str) -> frozenset[str]: ...
    async def add_remote(
        self, account_id: str, arrivals: Sequence[tuple[NewMessage, RemoteMessage]]
    ) -> list[Added]:
        """Keep mail from a provider; what came by another way before is the same message."""

    async def apply_changes(self, account_id: str, changes: RemoteChanges) -> None:
        """Follow what a provider says of mail we have, and write down how far we have read."""

    async def sweep_gone(self, account_id: str, limit: int) -> tuple[int, tuple[BlobKey, ...]]:
        """Remove some messages that are nowhere at the provider; call it after a whole pass."""

    async def due_pushes(self, account_id: str, now: datetime, limit: int) -> list[Push]: ...
    async def settle_push(self, account_id: str, push: Push, pushed: Pushed) -> None: ...
    async def defer_push(self, push: Push, next_at: datetime) -> None: ...
    async def give_up_push(self, account_id: str, push: Push, refusal: Refusal) -> None: ...
    async def next_push_at(self, account_id: str) -> datetime | None: ...


class KeepsIdentities(Protocol):
    """Addresses that one may send from."""

    async def add_identity(self, identity: Identity) -> Identity:
        """Raises Conflict when the address is taken."""

    async def keep_identities(self, inbox_id: str, identities: Sequence[Identity]) -> None:
        """Have those that a provider has, and no more those that it had before."""

    async def identities(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[Identity]: ...
    async def default_identity(self, inbox_id: str) -> Identity | None: ...
    async def identity_at(self, email: str) -> Identity | None: ...
    async def change_identity(
        self,
        identity_id: str,
        visible: Visible,
        *,
        name: str | None,
        signature: str | None,
        is_default: bool | None,
    ) -> Identity | None: ...
