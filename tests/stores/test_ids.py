"""Ids by their first characters."""

from __future__ import annotations

import pytest

from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING, NOTHING, only
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox


@pytest.mark.parametrize("kind", ["inb", "msg", "thr", "att"])
async def test_an_id_is_found_by_its_beginning_within_a_view(
    services: Services, inbox: Inbox, kind: str
) -> None:
    files = [("a.txt", "text/plain", b"a")]
    other = await new_inbox(services, "eve")
    added = await deliver(services, inbox, mail(attachments=files))
    hidden = await deliver(services, other, mail(attachments=files))
    message = await services.store.message(added.message_id, EVERYTHING)
    secret = await services.store.message(hidden.message_id, EVERYTHING)
    assert message is not None
    assert secret is not None
    own, others = (
        {"inb": m.inbox_id, "msg": m.id, "thr": m.thread_id, "att": m.attachments[0].id}[kind]
        for m in (message, secret)
    )

    async def found(prefix: str, view: object) -> tuple[str, ...]:
        return await services.store.ids_from(prefix, view, limit=10)  # type: ignore[arg-type]

    assert (own,) == await found(own[:9], only(inbox.id))
    assert (own,) == await found(own, only(inbox.id))
    assert () == await found(others[:9], only(inbox.id))
    assert () == await found(own[:9], NOTHING)
    assert tuple(sorted((own, others))) == await found(f"{kind}_", EVERYTHING)
    assert () == await found(own[:9] + "~", EVERYTHING)
    assert 1 == len(await services.store.ids_from(f"{kind}_", EVERYTHING, limit=1))
