"""Removed mail is gone even if its blobs cannot be deleted at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest

from postroom.blobs.objects import ObjectBlobs
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import delete_inbox
from postroom.operations.mail.message_changes import delete_message
from postroom.pipeline import blobs, maintenance
from postroom.pipeline.blobs import claim_blob_store
from tests.mails import deliver, mail, new_inbox
from tests.servers.s3 import Faults, running


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def services(ctx: RequestContext, faults: Faults) -> Iterator[RequestContext]:
    """An installation whose blobs are in a bucket."""
    with running(faults=faults) as bucket:
        yield replace(ctx, blobs=ObjectBlobs(bucket))


async def test_a_message_is_removed_although_the_bucket_refuses_deletions(
    services: RequestContext, faults: Faults
) -> None:
    added = await deliver(services, await new_inbox(services), mail("Secret"))
    stored = await services.store.message(added.message_id, EVERYTHING)
    assert stored is not None
    faults.instead = lambda _request: "403 Forbidden"

    done = await call(services, delete_message, {"message_id": added.message_id, "permanent": True})

    assert (added.message_id,) == done.succeeded
    assert await services.store.message(added.message_id, EVERYTHING) is None
    faults.instead = lambda _request: None
    assert not await services.blobs.missing([stored.raw])
    await services.blobs.sweep(services.store.used_blobs, older_than=timedelta(seconds=-1))
    assert await services.blobs.missing([stored.raw])


async def test_a_removal_does_not_wait_for_the_bucket(
    services: RequestContext, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = await new_inbox(services)
    await deliver(services, inbox, mail())
    monkeypatch.setattr(blobs, "_TIMEOUT_S", 0.01)
    is_over = Event()

    def hang(_request: object) -> str:
        is_over.wait()
        return "403 Forbidden"

    faults.instead = hang
    await call(services, delete_inbox, {"inbox_id": inbox.id, "force": True})

    assert not is_over.is_set()
    assert await services.store.inbox(inbox.id, EVERYTHING) is None
    is_over.set()


async def test_neither_a_sweep_nor_a_removal_takes_the_blobs_of_another_installation(
    services: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_OLDER_THAN", timedelta(seconds=-60))
    await claim_blob_store(services.store, services.blobs)
    added = await deliver(services, await new_inbox(services), mail("Shared"))
    (theirs,) = await services.blobs.put([b"of the house that moved on"])
    stored = await services.store.message(added.message_id, EVERYTHING)
    assert stored is not None
    await services.blobs.mark.write("another installation")

    await call(services, delete_message, {"message_id": added.message_id, "permanent": True})
    with pytest.raises(Conflict, match="another installation"):
        await maintenance.sweep(services)

    assert not await services.blobs.missing([stored.raw, theirs])
