"""Allow and block lists of senders of an inbox."""

from __future__ import annotations

import pytest

from postroom.approval import is_blocked
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import InvalidInput
from postroom.model.mail.approval import SenderLists
from postroom.operations.outgoing.approvals import get_policy, set_policy
from tests.mails import deliver, mail

INBOX = {"inbox_id": "me@postroom.localhost"}


@pytest.mark.parametrize(
    ("lists", "senders", "expected"),
    [
        (SenderLists(), ["a@x.example"], False),
        (SenderLists(block=("@x.example",)), ["a@x.example"], True),
        (SenderLists(block=("@x.example",)), ["a@sub.x.example"], False),
        (SenderLists(block=("@x.example",)), ["A@X.Example."], True),
        (SenderLists(block=("a@x.example",)), ["b@x.example"], False),
        (SenderLists(("a@x.example",), ("@x.example",)), ["a@x.example"], False),
        (SenderLists(("a@x.example",), ("@x.example",)), ["b@x.example"], True),
        (SenderLists(allow=("@x.example",)), ["a@y.example"], True),
        (SenderLists(allow=("@x.example",)), ["a@x.example", "bounce@y.example"], True),
        (SenderLists(block=("@y.example",)), ["a@x.example", "bounce@y.example"], True),
        (SenderLists(block=("@y.example",)), ["", ""], False),
    ],
)
def test_which_senders_are_blocked(lists: SenderLists, senders: list[str], expected: bool) -> None:
    assert expected == is_blocked(lists, senders)


async def test_mail_of_a_blocked_sender_goes_to_junk(
    outbox_ctx: RequestContext, received: str
) -> None:
    inbox = (await outbox_ctx.store.inboxes_at([INBOX["inbox_id"]]))[INBOX["inbox_id"]]
    await call(outbox_ctx, set_policy, {**INBOX, "senders": {"block": ["@spam.example"]}})

    added = [
        await deliver(outbox_ctx, inbox, mail("Hi", sender=sender))
        for sender in ("x@spam.example", "x@ham.example")
    ]

    found = [await outbox_ctx.store.message(one.message_id, outbox_ctx.visible) for one in added]
    assert [("Junk",), ("Inbox",)] == [message.mailboxes for message in found if message]
    policy = await call(outbox_ctx, get_policy, INBOX)
    assert ("@spam.example",) == policy.senders.block


@pytest.mark.parametrize("wrong", ["x.example", "@", "@x example", "x@", "@a@b", "@-x.example"])
async def test_an_entry_that_is_no_address_or_domain_is_refused(
    outbox_ctx: RequestContext, wrong: str
) -> None:
    with pytest.raises(InvalidInput, match=r"senders\.block.*(address|at least)"):
        await call(outbox_ctx, set_policy, {**INBOX, "senders": {"block": [wrong]}})
