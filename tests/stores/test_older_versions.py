"""An earlier version may still use the database while it is upgraded."""

from __future__ import annotations

import json
from dataclasses import replace

from postroom.model.mail.message import Recipient
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from tests.mails import SOME
from tests.stores.accounts import new_account
from tests.stores.sends import a_send

READ_BY_ALL = {
    "places",
    "add_flags",
    "remove_flags",
    "add_labels",
    "remove_labels",
    "move_to",
}
"""The kinds of changes that every version knows; an unknown one stops its sync."""


async def test_an_older_version_can_read_that_a_draft_is_to_go(services: Services) -> None:
    account = await new_account(services, provider="outlook")
    inbox = await services.store.inbox(account.inbox_id, EVERYTHING)
    assert inbox is not None
    send = await a_send(services, inbox)
    to = (Recipient("x@example.com", "queued"),)
    message = replace(send.message, recipients=to, internet_message_id="1@example.com")
    await services.store.record_send(replace(send, message=message))
    now = services.clock()
    lease = {"now": now, "until": now, "free": SOME, "max_per_domain": 9}
    (job,) = (await services.store.claim_mail("worker", **lease)).jobs  # type: ignore[arg-type]
    refused = {"x@example.com": Recipient("x@example.com", "failed", "550 no")}
    await services.store.settle_mail(job, refused, now=now, next_at=now)

    engine = services.store.engine  # type: ignore[attr-defined]
    ((change,),) = await engine.read(lambda tx: tx.all("SELECT change FROM pushes"))
    (push,) = await services.store.due_pushes(account.id, now, 10)
    assert set(json.loads(change)) <= READ_BY_ALL
    assert ("drop_draft", "1@example.com") == (push.kind, push.internet_message_id)
    assert ((), None) == (push.refs, push.move_to)
