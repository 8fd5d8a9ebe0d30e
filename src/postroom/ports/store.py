"""The door to everything we remember, made of a port for each subject.

One suite of tests holds every store to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from postroom.model.attachment import BlobKey
from postroom.model.audit import AuditCheck, AuditEntry, AuditQuery, Deed
from postroom.model.key import Key
from postroom.model.page import Found, Slice
from postroom.model.stored import Reading
from postroom.ports.accounts import KeepsAccounts, KeepsIdentities
from postroom.ports.events import KeepsWebhooks, TellsOfEvents
from postroom.ports.mail import StoresInboxes, StoresMessages, StoresThreads
from postroom.ports.memories import RecallsMemories, StoresMemories
from postroom.ports.outbox import KeepsDrafts, KeepsOutbox
from postroom.ports.rules import StoresRules


class StoresKeys(Protocol):
    """Callers."""

    async def add_key(self, key: Key, secret_hash: bytes, *, replaces: bool = True) -> bool:
        """Keep a key; one with the same id is replaced, or stays. Tell whether it is kept."""

    async def has_key(self, key_id: str) -> bool: ...
    async def keys(self, page: Slice) -> Found[Key]: ...
    async def key_of(self, secret_hash: bytes, now: datetime) -> Key | None:
        """Find the key with this hash; its `last_used_at` follows within a minute."""

    async def remove_key(self, key_id: str) -> bool: ...


class GrantsLeases(Protocol):
    """Who does the work that happens by itself, when several processes could."""

    async def claim(self, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
        """Take or renew a lease; False while somebody else has it."""

    async def release(self, name: str, holder: str) -> None:
        """Give a lease back before it ends."""

    async def forget_leases(self, now: datetime) -> None:
        """Forget those that have run out; they are nobody's anyway."""

    async def attend(self, role: str, holder: str, *, now: datetime, lasting: timedelta) -> None:
        """Be counted among those who do a work, which many may, until *lasting* is over."""

    async def leave(self, role: str, holder: str) -> None: ...
    async def is_attended(self, role: str, now: datetime) -> bool:
        """Whether anybody does a work now."""


class KnowsItsState(Protocol):
    """What verify, doctor and the blob sweep ask."""

    async def secret(self) -> bytes:
        """A random secret of this store, the same for every process that opens it."""

    async def house(self) -> str | None:
        """What tells this house from others and from its copies; None until it is named."""

    async def name_house(self) -> str:
        """The same; a house that has no name yet gets one."""

    async def used_blobs(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        """Return those of the keys that some message or attachment needs."""

    def every_blob(self) -> AsyncIterator[tuple[BlobKey, int]]:
        """Every blob that must exist, with its size."""

    async def problems(self) -> tuple[str, ...]:
        """Check that all rows and the search index agree; a sentence for each thing amiss."""

    async def readings(self, version: int, after: int, limit: int) -> list[Reading]:
        """What a version of the parser made of the next messages after a number."""

    async def tidy(self) -> bool:
        """Do one piece of the work that keeps searches fast; say whether there is more.

        Any number may call this at any time, here and in other processes: none does what another
        is at.
        """

    async def purge(self) -> None:
        """Leave no word of removed messages in the search index; by itself it takes a while."""

    async def repair(self) -> int:
        """Make the search index anew if it is wrong; say in how many things it was."""

    async def ping(self) -> None:
        """Return if reads and writes would work now; raise what stands in the way."""

    def hurry(self) -> None:
        """Wait no more for a database that does not answer: `close` is about to come."""

    async def close(self) -> None: ...


class KeepsAudit(Protocol):
    """The log of what everybody did."""

    def by(self, deed: Deed) -> Store:
        """The same store; what is written through it is put down to somebody in the audit log."""

    async def put_down(self) -> None:
        """Write down that somebody did what changed nothing here."""

    async def audit(self, query: AuditQuery) -> Found[AuditEntry]: ...
    async def check_audit(self) -> AuditCheck:
        """Read the whole log and tell what does not fit."""


class Store(
    StoresInboxes,
    StoresMessages,
    StoresThreads,
    StoresKeys,
    StoresMemories,
    RecallsMemories,
    GrantsLeases,
    KeepsAccounts,
    KeepsIdentities,
    KeepsDrafts,
    KeepsOutbox,
    KeepsWebhooks,
    TellsOfEvents,
    StoresRules,
    KeepsAudit,
    KnowsItsState,
    Protocol,
):
    """All of it."""
