"""Reading a message: its text is not repeated, and its ids are short."""

from __future__ import annotations

import re

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.inbox import Inbox
from postroom.operations.mail.messages import get_message
from tests.mails import deliver, mail


@pytest.mark.parametrize("end", ["", " ", "\t\u00a0", "\nü \u3000"])
async def test_the_new_text_does_not_repeat_a_text_that_ends_with_white_space(
    ctx: RequestContext, inbox: Inbox, end: str
) -> None:
    added = await deliver(ctx, inbox, mail("Hello", f"One.\nTwo.{end}"))

    message = await call(ctx, get_message, {"message_id": added.message_id})

    assert message.text.startswith("One.\nTwo.")
    assert message.new_text is None


async def test_the_ids_of_a_message_are_short(ctx: RequestContext, inbox: Inbox) -> None:
    raw = mail("Hello", "Text", attachments=[("a.txt", "text/plain", b"a")])
    added = await deliver(ctx, inbox, raw)

    message = await call(ctx, get_message, {"message_id": added.message_id})

    ids = (message.id, message.thread_id, message.inbox_id, message.attachments[0].id)
    assert ids == tuple(id_ for id_ in ids if re.fullmatch(r"[a-z]{3}_[0-9a-z]{12}", id_))
