"""Whose mail an inbox takes: allow and block lists of senders."""

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
def test_who_is_blocked(lists: SenderLists, senders: list[str], expected: bool) -> None:
    assert expected == is_blocked(lists, senders)


async def test_mail_of_a_blocked_sender_goes_to_junk(post: RequestContext, heard: str) -> None:
    inbox = (await post.store.inboxes_at([INBOX["inbox_id"]]))[INBOX["inbox_id"]]
    await call(post, set_policy, {**INBOX, "senders": {"block": ["@spam.example"]}})

    added = [
        await deliver(post, inbox, mail("Hi", sender=sender))
        for sender in ("x@spam.example", "x@ham.example")
    ]

    found = [await post.store.message(one.message_id, post.visible) for one in added]
    assert [("Junk",), ("Inbox",)] == [message.mailboxes for message in found if message]
    policy = await call(post, get_policy, INBOX)
    assert ("@spam.example",) == policy.senders.block


@pytest.mark.parametrize("wrong", ["x.example", "@", "@x example", "x@", "@a@b", "@-x.example"])
async def test_what_is_neither_an_address_nor_a_domain_is_refused(
    post: RequestContext, wrong: str
) -> None:
    with pytest.raises(InvalidInput, match=r"senders\.block.*(address|at least)"):
        await call(post, set_policy, {**INBOX, "senders": {"block": [wrong]}})
