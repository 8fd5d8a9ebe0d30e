"""Where mail goes: to an inbox of ours, to a provider, to the relay, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.pipeline.attendance import can_relay
from postroom.pipeline.house import House


async def route_all(
    house: House,
    addresses: Sequence[str],
    local: Mapping[str, Inbox],
    account_id: str | None = None,
) -> dict[str, Recipient]:
    """Where each copy goes: to an inbox of ours, the account's provider, the relay, or nowhere."""
    goes_out = account_id is not None or await can_relay(house)
    return {address: _route(house, address, local, goes_out=goes_out) for address in addresses}


def _route(house: House, address: str, local: Mapping[str, Inbox], *, goes_out: bool) -> Recipient:
    if address.lower() in local:
        return Recipient(address, "delivered")
    if address.rpartition("@")[2].lower() in house.domains:
        return Recipient(address, "failed", "no inbox has this address")
    if goes_out:
        return Recipient(address, "queued")
    return Recipient(address, "captured", "no relay is configured, so it was not sent")
