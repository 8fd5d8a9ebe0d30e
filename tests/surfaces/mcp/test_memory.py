"""What an agent cannot do to memories with any tool and any key."""

from __future__ import annotations

import pytest

from postroom.model.key import OWNER
from tests.callers import a_caller
from tests.mails import deliver, mail
from tests.surfaces.mcp.conftest import acting


@pytest.mark.parametrize(
    "caller",
    [OWNER, a_caller("key_1")],
    ids=["owners", "agents"],
)
async def test_no_tool_has_an_argument_for_trust(app, ctx, inbox, caller):
    added = await deliver(ctx, inbox, mail())
    async with acting(app, caller) as agent:
        learnt = {"key": "iban", "text": "Pay to account 7."}
        links = [{"type": "source", "to": added.message_id}]
        await agent.call("memory_add", **learnt, links=links)

        for tool in ("memory_update", "memory_add"):
            error = await agent.fail(tool, **learnt, trust="user")
            assert "INVALID_REQUEST" == error["code"]
            assert error["message"].startswith("trust: ")

        assert "mail" == (await agent.call("memory_get", key="iban"))["trust"]
