"""Routing: the inbox of an address, the route of a recipient, the sender to an account or a cell.

A cell recognises a mail that it has stored already (`store/sql/messages/message_insert.py`), so an
attempt whose outcome is unknown is repeated, and the mail is stored once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.approval import is_blocked
from postroom.blocking import in_thread
from postroom.mail.addresses import base_address, canonical_address
from postroom.model.account import Account
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import Envelope, Outcome
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import RELAY_SEEN, Services
from postroom.ports.provider import Sender


async def inboxes_for(services: Services, addresses: Iterable[str]) -> dict[str, Inbox]:
    """The inboxes that receive for these addresses, by the address in lower case.

    `agent+tag@` goes to `agent@` unless there is an inbox of that name; other addresses at our
    domains go to the catch-all, if there is one.
    """
    forms = {address.lower(): _forms(address) for address in addresses}
    candidates = {form for found in forms.values() for form in found}
    if services.catch_all is not None:
        candidates.add(services.catch_all)
    found = await services.store.inboxes_at(candidates)
    chosen: dict[str, Inbox] = {}
    for address, names in forms.items():
        inbox = next((found[name] for name in names if name in found), None)
        is_ours = names[0].rpartition("@")[2] in services.domains
        if inbox is None and is_ours and services.catch_all is not None:
            inbox = found.get(services.catch_all)
        # Mail to an account arrives at its provider, unless its domain is ours.
        if inbox is not None and (is_ours or inbox.account_id is None):
            chosen[address] = inbox
    return chosen


def _forms(address: str) -> tuple[str, str, str]:
    """The forms under which an address may be stored: canonical, as written, without its tag."""
    plain = canonical_address(address)
    return plain, address.lower(), base_address(plain)


async def refuses_sender(services: Services, inbox_id: str, sender: str) -> bool:
    """Whether an inbox refuses mail of an envelope sender; a report, without one, is taken."""
    found = await services.store.sender_lists([inbox_id]) if sender else {}
    lists = found.get(inbox_id)
    return lists is not None and lists.action == "refuse" and is_blocked(lists, [sender])


async def is_without_relay(services: Services) -> bool:
    """Whether no running process has a relay."""
    if services.has_relay or await services.store.has_heartbeat("relaying", services.clock()):
        return False
    return not await services.store.has_heartbeat("relay_only", services.clock())


async def route_all(
    services: Services,
    addresses: Sequence[str],
    local: Mapping[str, Inbox],
    account_id: str | None = None,
) -> dict[str, Recipient]:
    """The route of each recipient: an inbox here, the account's provider, another cell, the
    relay, or none.

    The relay may be one of this process, or of a process that was running lately.
    """
    has_external_route = (
        account_id is not None
        or services.has_relay
        or await services.store.has_heartbeat(RELAY_SEEN, services.clock())
    )
    return {
        address: _route(services, address, local, has_external_route=has_external_route)
        for address in addresses
    }


def _route(
    services: Services, address: str, local: Mapping[str, Inbox], *, has_external_route: bool
) -> Recipient:
    if address.lower() in local:
        return Recipient(address, "delivered")
    if _domain(address) in services.domains:
        return Recipient(address, "failed", "no inbox has this address")
    if has_external_route or _domain(address) in services.cell_domains:
        return Recipient(address, "queued")
    return Recipient(address, "captured", "no relay is configured, so it was not sent")


def external_recipients(
    services: Services, addresses: Iterable[str], local: Mapping[str, Inbox]
) -> list[str]:
    """The recipients to whom a mail leaves once there is a relay."""
    others = (address for address in addresses if address.lower() not in local)
    return [address for address in others if _domain(address) not in services.domains]


class NoLogin(Exception):
    """This process has no password or token for the account."""


@dataclass(eq=False)
class _OpenSender:
    """A sender, the account and login it was made for, and the number of its users."""

    sender: Sender
    made_from: tuple[Any, ...]
    users: int = 0
    is_current: bool = True

    async def close_if_unused(self) -> None:
        if not self.users and not self.is_current:
            await self.sender.close()


@dataclass(eq=False)
class AccountSenders:
    """Caches the senders of accounts.

    A sender is replaced when the account or its login changes, and closed by its last user.
    """

    services: Services
    _senders: dict[str, _OpenSender] = field(default_factory=dict)

    @asynccontextmanager
    async def of(self, account_id: str) -> AsyncIterator[Sender | None]:
        """The sender of an account for one mail; None if the account is gone. Raises NoLogin."""
        account = await self.services.store.account(account_id, EVERYTHING)
        if account is None:
            await _close_if_unused(self._senders.pop(account_id, None))
            yield None
            return
        entry = await self._current(account)
        entry.users += 1
        try:
            yield entry.sender
        finally:
            entry.users -= 1
            await entry.close_if_unused()

    async def close(self) -> None:
        for account_id in list(self._senders):
            await _close_if_unused(self._senders.pop(account_id, None))

    async def _current(self, account: Account) -> _OpenSender:
        login = await in_thread(self.services.providers.login_fingerprint, account.id)
        if login is None:
            raise NoLogin(account.id)
        made_from = (account.created_at, account.provider, account.address, account.options, login)
        entry = self._senders.get(account.id)
        if entry is not None and entry.made_from == made_from:
            return entry
        new = _OpenSender(self.services.providers.sender(account), made_from)
        self._senders[account.id] = new
        await _close_if_unused(entry)
        return new


async def _close_if_unused(entry: _OpenSender | None) -> None:
    if entry is not None:
        entry.is_current = False
        await entry.close_if_unused()


SLOW_S = 5.0
"""A transmission that takes longer does not count as concurrent."""

PAUSE_S = 5.0
"""How long nothing is sent to a cell that did not answer; then one mail tries it."""

UNAVAILABLE = "the cell of {} does not answer; sending is retried"
UNCONFIRMED = "the cell did not confirm the mail; it is sent again, and stored only once"


@dataclass(eq=False)
class _Cell:
    """The sender to a cell, and whether it answers."""

    sender: Sender
    paused_until: float = 0.0
    is_failing: bool = False
    attempts: list[float] = field(default_factory=list)
    """The start of each transmission in progress."""

    def may_try(self, now: float) -> bool:
        """Whether a mail may try this cell: not while it hangs; while it fails, one at a time."""
        if self.is_failing:
            return not self.attempts and now >= self.paused_until
        return not self.attempts or now - self.attempts[0] <= SLOW_S

    def record(self, outcomes: Mapping[str, Outcome], now: float) -> None:
        """Record whether it accepted or permanently rejected anything: then it responds."""
        self.is_failing = all(o.result in ("deferred", "unknown") for o in outcomes.values())
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
        """Whether a mail is being transmitted."""
        return bool(self._since)

    def is_slow(self, message_id: str) -> bool:
        """Whether a transmission takes so long that other mail should not wait."""
        since = self._since.get(message_id)
        return since is not None and self.clock() - since > SLOW_S

    async def transmit(self, message_id: str, envelope: Envelope, raw: bytes) -> dict[str, Outcome]:
        """Send a mail to all cells of its recipients concurrently; no outcome is `unknown`."""
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
        cell.attempts.append(now)
        try:
            outcomes = dict(await cell.sender.transmit(envelope, raw, _accepted))
            unknown = tuple(a for a, outcome in outcomes.items() if outcome.result == "unknown")
            if unknown:  # only the connection may have been lost
                again = replace(envelope, recipients=unknown)
                outcomes |= await cell.sender.transmit(again, raw, _accepted)
        finally:
            cell.attempts.remove(now)
        cell.record(outcomes, self.clock())
        unconfirmed = Outcome("deferred", UNCONFIRMED)
        return {a: unconfirmed if o.result == "unknown" else o for a, o in outcomes.items()}

    async def close(self) -> None:
        for cell in set(self._cells.values()):
            await cell.sender.close()


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()
