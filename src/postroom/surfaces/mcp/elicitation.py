"""Held mail: a client that can open a page is given the address where a person decides.

The page asks for sign-in. What the client answers decides nothing, so nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

_ANSWER_S = 600.0
_offers: set[asyncio.Task[None]] = set()
"""Keeps the tasks alive until the client has answered."""


def held_in(result: Mapping[str, Any]) -> str | None:
    """The id of a mail that a tool sent and that is held now."""
    body = result.get("structuredContent") or {}
    for sent in (body, *(body.get("results") or ())):
        if isinstance(sent, dict) and sent.get("status") == "held":
            return sent.get("message_id") or sent.get("id")
    return None


def offer_approval(session: ServerSession, url: str, message_id: str) -> None:
    """Ask the client to show the page, if it can; the caller goes on."""
    can = session.client_capabilities
    if can is None or can.elicitation is None or can.elicitation.url is None:
        return
    if session.can_send_request:
        task = asyncio.create_task(_offer(session, url, message_id))
        _offers.add(task)
        task.add_done_callback(_offers.discard)


async def _offer(session: ServerSession, url: str, message_id: str) -> None:
    message = "A mail waits for your approval. Open the page, sign in and decide."
    with suppress(
        Exception
    ):  # the client may leave, refuse or take too long: nothing depends on it
        async with asyncio.timeout(_ANSWER_S):
            await session.elicit_url(message, url, f"approval-{message_id}")
