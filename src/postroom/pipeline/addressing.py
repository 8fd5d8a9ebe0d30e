"""Which inbox an address belongs to: its own, the one before the plus, or the one for all."""

from __future__ import annotations

from collections.abc import Iterable

from postroom.model.inbox import Inbox
from postroom.pipeline.house import House


async def inboxes_for(house: House, addresses: Iterable[str]) -> dict[str, Inbox]:
    """The inboxes that receive for these addresses, by the address in lower case.

    `agent+tag@` goes to `agent@` unless there is an inbox of just that name; what is left at a
    domain of ours goes to the catch-all, if there is one.
    """
    wanted = [address.lower() for address in addresses]
    candidates = {a for address in wanted for a in (address, _without_tag(address))}
    if house.catch_all is not None:
        candidates.add(house.catch_all)
    found = await house.store.inboxes_at(candidates)
    chosen = {address: _choose(house, address, found) for address in wanted}
    return {
        address: inbox
        for address, inbox in chosen.items()
        if inbox is not None and _is_kept_here(house, address, inbox)
    }


def _is_kept_here(house: House, address: str, inbox: Inbox) -> bool:
    """Mail to the address of an account goes to its provider, and comes from there."""
    return inbox.account_id is None or address.rpartition("@")[2] in house.domains


def _choose(house: House, address: str, found: dict[str, Inbox]) -> Inbox | None:
    inbox = found.get(address) or found.get(_without_tag(address))
    is_ours = address.rpartition("@")[2] in house.domains
    if inbox is None and is_ours and house.catch_all is not None:
        return found.get(house.catch_all)
    return inbox


def _without_tag(address: str) -> str:
    local, _, domain = address.rpartition("@")
    return f"{local.partition('+')[0] or local}@{domain}"
