"""The store: one protocol for each subject, and `Store`, which has all of them.

This is the one place where the signatures are declared. `tests/stores` runs on every store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from postroom.model.audit import AuditCheck, AuditEntry, AuditQuery, AuditRecord
from postroom.model.key import Key
from postroom.model.message import BlobKey
from postroom.model.page import Found, Slice
from postroom.model.storage import Reading
from postroom.ports.accounts import AccountStore, IdentityStore
from postroom.ports.events import EventStore, WebhookStore
from postroom.ports.mail import InboxStore, MessageStore, ThreadStore
from postroom.ports.memories import MemoryIndex, MemoryStore
from postroom.ports.outbox import DraftStore, OutboxStore
from postroom.ports.rules import RuleStore


class KeyStore(Protocol):
    """The keys of callers."""

    async def add_key(self, key: Key, secret_hash: bytes, *, replaces: bool = True) -> bool:
        """Add a key, or replace the one with the same id; False if there is one and it stays."""

    async def has_key(self, key_id: str) -> bool: ...
    async def keys(self, page: Slice) -> Found[Key]: ...
    async def keys_with(self, ids: Sequence[str]) -> list[Key]:
        """The keys with these ids; unknown ids are left out."""

    async def key_of(self, secret_hash: bytes, now: datetime) -> Key | None:
        """The key with this hash; its `last_used_at` is updated at most once a minute."""

    async def remove_key(self, key_id: str) -> bool: ...


class LeaseStore(Protocol):
    """Leases on background work, and heartbeats of the processes that do it."""

    async def claim(self, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
        """Take or renew a lease; False while another holder has it."""

    async def release(self, name: str, holder: str) -> None:
        """End a lease early."""

    async def remove_expired_leases(self, now: datetime) -> None:
        """Remove leases that have expired."""

    async def add_heartbeat(
        self, role: str, holder: str, *, now: datetime, lasting: timedelta
    ) -> None:
        """Add or renew a heartbeat; any number of holders may have one for the same role."""

    async def end_heartbeat(self, role: str, holder: str) -> None: ...
    async def has_heartbeat(self, role: str, now: datetime) -> bool:
        """Whether any holder has a heartbeat for this role."""


class InstallationStore(Protocol):
    """The installation as a whole: its id, its blobs, its search index, its checks."""

    async def secret(self) -> bytes:
        """A random secret of this installation, the same for every process."""

    async def installation_id(self) -> str | None:
        """The id of this installation, which its copies do not share; None until it has one."""

    async def ensure_installation_id(self) -> str:
        """The id of this installation, created if there is none yet."""

    async def used_blobs(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        """Those of the keys that a message or an attachment uses."""

    def every_blob(self) -> AsyncIterator[tuple[BlobKey, int]]:
        """Every blob that must exist, with its size in bytes."""

    async def problems(self) -> tuple[str, ...]:
        """Check rows, search index and audit log; one sentence for each problem."""

    async def readings(self, version: int, after: int, limit: int) -> list[Reading]:
        """What this version of the parser has stored for the next messages after a number."""

    async def compact_index(self) -> bool:
        """Do one step of compacting the search index; True if there is more to do.

        Any number of processes may call this at the same time: a step is done by one of them.
        """

    async def purge(self) -> None:
        """Remove the words of removed messages from the search index now, not with time."""

    async def repair(self) -> int:
        """Rebuild the search index if it has problems; return how many it had."""

    async def ping(self) -> None:
        """Raise an error if reads or writes would fail now."""

    def begin_shutdown(self) -> None:
        """Stop waiting for a database that does not answer; `close` follows."""

    async def close(self) -> None: ...


class AuditStore(Protocol):
    """The audit log."""

    def by(self, record: AuditRecord) -> Store:
        """The same store, acting for a caller: its writes are recorded in the audit log."""

    async def record_audit(self) -> None:
        """Record an act that changed nothing in the store."""

    async def audit(self, query: AuditQuery) -> Found[AuditEntry]: ...
    async def check_audit(self) -> AuditCheck:
        """Verify the chain of the whole audit log."""


class Store(
    InboxStore,
    MessageStore,
    ThreadStore,
    KeyStore,
    MemoryStore,
    MemoryIndex,
    LeaseStore,
    AccountStore,
    IdentityStore,
    DraftStore,
    OutboxStore,
    WebhookStore,
    EventStore,
    RuleStore,
    AuditStore,
    InstallationStore,
    Protocol,
):
    """The whole store."""
