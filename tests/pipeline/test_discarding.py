"""Mail that was removed is gone, whatever becomes of its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest

from postroom.blobs.objects import ObjectBlobs
from postroom.errors import Conflict
from postroom.operations.context import Context
from postroom.operations.inboxes import delete_inbox
from postroom.operations.operation import call
from postroom.operations.organising import delete_message
from postroom.pipeline import discarding, upkeep
from postroom.pipeline.ownership import own_blobs
from tests.mails import deliver, mail, new_inbox
from tests.servers.s3 import Faults, running


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def house(ctx: Context, faults: Faults) -> Iterator[Context]:
    """A house with its mail in a bucket."""
    with running(faults=faults) as bucket:
        yield replace(ctx, blobs=ObjectBlobs(bucket))


async def test_a_message_is_removed_while_the_bucket_refuses_and_its_bytes_with_a_sweep(
    house: Context, faults: Faults
) -> None:
    added = await deliver(house, await new_inbox(house), mail("Secret"))
    stored = await house.store.message(added.message_id, None)
    assert stored is not None
    faults.instead = lambda _request: "403 Forbidden"

    done = await call(house, delete_message, {"message_id": added.message_id, "permanent": True})

    assert (added.message_id,) == done.succeeded
    assert await house.store.message(added.message_id, None) is None
    faults.instead = lambda _request: None
    assert not await house.blobs.missing([stored.raw])
    await house.blobs.sweep(house.store.used_blobs, older_than=timedelta(seconds=-1))
    assert await house.blobs.missing([stored.raw])


async def test_nobody_waits_for_the_bytes_of_what_was_removed(
    house: Context, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = await new_inbox(house)
    await deliver(house, inbox, mail())
    monkeypatch.setattr(discarding, "_PATIENCE_S", 0.01)
    is_over = Event()

    def hang(_request: object) -> str:
        is_over.wait()
        return "403 Forbidden"

    faults.instead = hang
    await call(house, delete_inbox, {"inbox_id": inbox.id, "force": True})

    assert not is_over.is_set()
    assert await house.store.inbox(inbox.id, None) is None
    is_over.set()


async def test_neither_a_sweep_nor_a_removal_takes_the_blobs_of_another_house(
    house: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SWEEP_OLDER_THAN", timedelta(seconds=-60))
    await own_blobs(house.store, house.blobs)
    added = await deliver(house, await new_inbox(house), mail("Shared"))
    (theirs,) = await house.blobs.put([b"of the house that moved on"])
    stored = await house.store.message(added.message_id, None)
    assert stored is not None
    await house.blobs.mark.write("another house")

    await call(house, delete_message, {"message_id": added.message_id, "permanent": True})
    with pytest.raises(Conflict, match="another house"):
        await upkeep.sweep(house)

    assert not await house.blobs.missing([stored.raw, theirs])
