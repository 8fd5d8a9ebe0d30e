"""A caller without an inbox is told how to get one, as far as its key allows."""

from __future__ import annotations

import pytest

from postroom.calls.operation import call
from postroom.errors import Conflict
from postroom.model.key import AGENT, Scope
from postroom.operations.outgoing import drafts, identities, sending
from tests.mails import new_inbox
from tests.operations.rule_helpers import context_of_key

OUTGOING = {"to": ["x@example.com"], "subject": "Hi", "body_text": "Hi"}
WAYS = {
    "send": (sending.send_message, OUTGOING),
    "draft": (drafts.create_draft, OUTGOING),
    "alias": (identities.create_alias, {"email": "x@postroom.localhost"}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("has_any", [False, True])
async def test_a_key_without_inboxes_is_told_to_ask_for_another_key(app, ctx, way, has_any):
    if has_any:
        await new_inbox(ctx)
    limited = await context_of_key(app, ctx, inboxes=[])

    with pytest.raises(Conflict, match="ask the owner for a key that sees one") as told:
        await call(limited, *WAYS[way])

    assert "create_inbox" not in str(told.value)


@pytest.mark.parametrize("way", WAYS)
async def test_a_key_that_may_create_an_inbox_is_told_how(app, ctx, way):
    for by in (ctx, app.context(AGENT), await context_of_key(app, ctx)):
        with pytest.raises(Conflict, match="create_inbox makes one"):
            await call(by, *WAYS[way])


async def test_a_key_that_only_sends_is_told_to_name_an_inbox(app, ctx):
    sender = await context_of_key(app, ctx, scopes=[Scope.SEND])

    with pytest.raises(Conflict, match="this key cannot create one; ask the owner for an inbox"):
        await call(sender, *WAYS["send"])
