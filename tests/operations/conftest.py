"""An inbox with an invoice in it."""

from __future__ import annotations

import pytest

from postroom.calls.context import RequestContext
from postroom.model.inbox import Inbox
from tests.mails import deliver, mail, new_inbox


@pytest.fixture
async def inbox(ctx: RequestContext) -> Inbox:
    return await new_inbox(ctx)


@pytest.fixture
async def invoice(ctx: RequestContext, inbox: Inbox) -> str:
    """The id of the invoice."""
    return (await deliver(ctx, inbox, mail("Invoice 7"))).message_id
