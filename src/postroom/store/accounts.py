"""The part of the store that knows of accounts and identities; see `ports.accounts`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

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
from postroom.store.audited import Audited, was_found
from postroom.store.sql import accounts, identities, pushes, remote_places, remotes


class SqlAccounts(Audited):
    """Each method is one function of `store.sql`, run in one transaction."""

    async def add_account(self, account: Account, name: str) -> None:
        await self._write(lambda tx: accounts.add_account(tx, account, name))

    async def accounts(self, visible: Visible, page: Slice) -> Found[Account]:
        return await self._engine.read(lambda tx: accounts.list_accounts(tx, visible, page))

    async def account(self, account_id: str, visible: Visible) -> Account | None:
        return await self._engine.read(lambda tx: accounts.get_account(tx, account_id, visible))

    async def inboxes_of_accounts(self, account_ids: Collection[str]) -> frozenset[str]:
        return await self._engine.read(lambda tx: accounts.inboxes_of(tx, account_ids))

    async def change_account(self, account_id: str, options: dict[str, Any]) -> None:
        await self._write(lambda tx: accounts.change_account(tx, account_id, options))

    async def set_account_state(
        self,
        account_id: str,
        state: AccountState,
        detail: str = "",
        *,
        synced_at: datetime | None = None,
    ) -> None:
        await self._engine.write(
            lambda tx: accounts.set_account_state(tx, account_id, state, detail, synced_at)
        )

    async def set_capabilities(self, account_id: str, capabilities: dict[str, Any]) -> None:
        await self._engine.write(lambda tx: accounts.set_capabilities(tx, account_id, capabilities))

    async def capabilities_of(self, account_id: str) -> dict[str, Any] | None:
        return await self._engine.read(lambda tx: accounts.capabilities_of(tx, account_id))

    async def ask_for_sync(self, account_id: str, now: datetime) -> None:
        await self._write(lambda tx: accounts.ask_for_sync(tx, account_id, now))

    async def asked_at(self, account_id: str) -> int:
        return await self._engine.read(lambda tx: accounts.asked_at(tx, account_id))

    async def checkpoint_of(self, account_id: str) -> Checkpoint | None:
        return await self._engine.read(lambda tx: accounts.checkpoint_of(tx, account_id))

    async def unfetched(self, account_id: str) -> tuple[Unfetched, ...]:
        return await self._engine.read(lambda tx: accounts.unfetched_of(tx, account_id))

    async def set_unfetched(self, account_id: str, unfetched: Sequence[Unfetched]) -> None:
        await self._engine.write(lambda tx: accounts.set_unfetched(tx, account_id, unfetched))

    async def unknown_refs(
        self,
        account_id: str,
        refs: Sequence[RemoteRef],
        *,
        untrashed: Collection[RemoteRef] = (),
    ) -> set[RemoteRef]:
        return await self._engine.read(
            lambda tx: remote_places.unknown_refs(tx, account_id, refs, untrashed=untrashed)
        )

    async def remote_scopes(self, account_id: str) -> frozenset[str]:
        return await self._engine.read(lambda tx: remote_places.scopes(tx, account_id))

    async def remote_labels(self, account_id: str) -> frozenset[str]:
        return await self._engine.read(lambda tx: remote_places.labels(tx, account_id))

    async def remote_keys(self, account_id: str, scope: str) -> frozenset[str]:
        return await self._engine.read(lambda tx: remote_places.keys(tx, account_id, scope))

    async def add_remote(
        self, account_id: str, arrivals: Sequence[tuple[NewMessage, RemoteMessage]]
    ) -> list[Added]:
        return await self._engine.write(lambda tx: remotes.add_remote(tx, account_id, arrivals))

    async def apply_changes(self, account_id: str, changes: RemoteChanges) -> None:
        await self._engine.write(lambda tx: remotes.apply_changes(tx, account_id, changes))

    async def sweep_gone(self, account_id: str, limit: int) -> tuple[int, tuple[BlobKey, ...]]:
        return await self._engine.write(lambda tx: remotes.sweep_gone(tx, account_id, limit))

    async def due_pushes(self, account_id: str, now: datetime, limit: int) -> list[Push]:
        return await self._engine.read(lambda tx: pushes.due_pushes(tx, account_id, now, limit))

    async def settle_push(self, account_id: str, push: Push, pushed: Pushed) -> None:
        await self._engine.write(lambda tx: remotes.settle_push(tx, account_id, push, pushed))

    async def defer_push(self, push: Push, next_at: datetime) -> None:
        await self._engine.write(lambda tx: pushes.defer_push(tx, push, next_at))

    async def give_up_push(self, account_id: str, push: Push, refusal: Refusal) -> None:
        await self._engine.write(lambda tx: remotes.give_up_push(tx, account_id, push, refusal))

    async def next_push_at(self, account_id: str) -> datetime | None:
        at = await self._engine.read(lambda tx: pushes.next_push_at(tx, account_id))
        return None if at is None else datetime.fromtimestamp(at, UTC)

    async def add_identity(self, identity: Identity) -> Identity:
        return await self._write(lambda tx: identities.add_identity(tx, identity))

    async def keep_identities(self, inbox_id: str, found: Sequence[Identity]) -> None:
        await self._engine.write(lambda tx: identities.keep_identities(tx, inbox_id, found))

    async def identities(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[Identity]:
        return await self._engine.read(
            lambda tx: identities.list_identities(tx, visible, inbox_id, page)
        )

    async def default_identity(self, inbox_id: str) -> Identity | None:
        return await self._engine.read(lambda tx: identities.default_identity(tx, inbox_id))

    async def identity_at(self, email: str) -> Identity | None:
        return await self._engine.read(lambda tx: identities.identity_at(tx, email))

    async def change_identity(
        self,
        identity_id: str,
        visible: Visible,
        *,
        name: str | None,
        signature: str | None,
        is_default: bool | None,
    ) -> Identity | None:
        return await self._write(
            lambda tx: identities.change_identity(
                tx,
                identity_id,
                visible,
                name=name,
                signature=signature,
                is_default=is_default,
            ),
            is_act=was_found,
        )
