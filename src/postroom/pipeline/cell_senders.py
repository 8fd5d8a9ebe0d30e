"""Mail to other cells: handed to their SMTP listeners, and again until they confirm it.

A cell recognises a mail that it has stored already (`store/sql/messages/message_insert.py`), so an
attempt whose outcome is unknown is repeated, and the mail is stored once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from postroom.model.sending import Envelope, Outcome
from postroom.ports.provider import Sender

SLOW_S = 5.0
"""A hand-over that takes longer does not count as one of those that run at once."""

PAUSE_S = 5.0
"""How long a cell that did not answer is left alone; then one mail tries it."""

UNAVAILABLE = "the cell of {} does not answer; the mail is tried again"
UNCONFIRMED = "the cell did not confirm the mail; it is sent again, and stored once"


@dataclass(eq=False)
class _Cell:
    """The sender to a cell, and whether it answers."""

    sender: Sender
    paused_until: float = 0.0
    is_failing: bool = False
    attempts: list[float] = field(default_factory=list)
    """When each hand-over in progress began."""

    def may_try(self, now: float) -> bool:
        """Whether a mail may try this cell: not while it hangs; while it fails, one at a time."""
        if self.is_failing:
            return not self.attempts and now >= self.paused_until
        return not self.attempts or now - self.attempts[0] <= SLOW_S

    @contextmanager
    def attempt(self, began: float) -> Iterator[None]:
        self.attempts.append(began)
        try:
            yield
        finally:
            self.attempts.remove(began)

    def record(self, outcomes: Mapping[str, Outcome], now: float) -> None:
        """Note whether it took or refused anything for good, which is an answer."""
        self.is_failing = all(o.verdict in ("deferred", "unknown") for o in outcomes.values())
        self.paused_until = now + PAUSE_S


async def _accepted(_addresses: Sequence[str]) -> None:
    """Nothing is recorded before a transmission that can be repeated."""


@dataclass(eq=False)
class CellSenders:
    """The senders to other cells, by the domains that they serve."""

    senders: Mapping[str, Sender] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _cells: dict[str, _Cell] = field(init=False)
    _since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cells = {id(sender): _Cell(sender) for sender in self.senders.values()}
        self._cells = {domain: cells[id(sender)] for domain, sender in self.senders.items()}

    def __bool__(self) -> bool:
        return bool(self.senders)

    def split(self, addresses: Sequence[str]) -> tuple[list[str], list[str]]:
        """The recipients of other cells, and the others."""
        inside = [address for address in addresses if _domain(address) in self._cells]
        return inside, [address for address in addresses if _domain(address) not in self._cells]

    @property
    def is_busy(self) -> bool:
        """Whether a mail is being handed over."""
        return bool(self._since)

    def is_slow(self, message_id: str) -> bool:
        """Whether a mail is being handed over for so long that other mail should not wait."""
        since = self._since.get(message_id)
        return since is not None and self.clock() - since > SLOW_S

    async def transmit(self, message_id: str, envelope: Envelope, raw: bytes) -> dict[str, Outcome]:
        """Hand a mail to all cells of its recipients at once; no outcome is `unknown`."""
        groups: dict[_Cell, list[str]] = {}
        for address in envelope.recipients:
            groups.setdefault(self._cells[_domain(address)], []).append(address)
        parts = [(cell, replace(envelope, recipients=tuple(to))) for cell, to in groups.items()]
        self._since[message_id] = self.clock()
        try:
            found = await asyncio.gather(*(self._transmit(cell, part, raw) for cell, part in parts))
        finally:
            del self._since[message_id]
        return {address: outcome for part in found for address, outcome in part.items()}

    async def _transmit(self, cell: _Cell, envelope: Envelope, raw: bytes) -> dict[str, Outcome]:
        now = self.clock()
        if not cell.may_try(now):
            outcome = Outcome("deferred", UNAVAILABLE.format(_domain(envelope.recipients[0])))
            return dict.fromkeys(envelope.recipients, outcome)
        with cell.attempt(now):
            outcomes = dict(await cell.sender.transmit(envelope, raw, _accepted))
            unknown = tuple(a for a, outcome in outcomes.items() if outcome.verdict == "unknown")
            if unknown:  # only the connection may have been lost
                again = replace(envelope, recipients=unknown)
                outcomes |= await cell.sender.transmit(again, raw, _accepted)
        cell.record(outcomes, self.clock())
        return {address: _repeatable(outcome) for address, outcome in outcomes.items()}

    async def close(self) -> None:
        """Close all connections."""
        for cell in set(self._cells.values()):
            await cell.sender.close()


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _repeatable(outcome: Outcome) -> Outcome:
    return Outcome("deferred", UNCONFIRMED) if outcome.verdict == "unknown" else outcome
