"""Every label that is allowed here follows both ways, whatever its provider makes of it."""

from __future__ import annotations

import pytest

from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.worlds import World

LONG = ("x" * 128, "ü" * 30, "名" * 128, "Invoices that are to be paid before the end of the month")
MACHINES = ("Junk", "NonJunk", "Forwarded", "Submitted")


@pytest.mark.parametrize("labels", [LONG, MACHINES], ids=["long", "of machines"])
async def test_labels_reach_the_provider_and_come_back(
    desk: Desk, world: World, labels: tuple[str, ...]
) -> None:
    world.deliver(outgoing_mail("Hello"))
    world.deliver(outgoing_mail("Another"))
    await desk.sync()
    here = await desk.message("Hello")
    for label in labels:
        await ask(desk, message_changes.apply_label, message_ids=[here.id], label=label)
    await desk.sync()
    world.flag("Hello")
    await desk.sync()

    there = world.find("Hello")
    assert there is not None
    assert len(labels) == len(there.labels)
    after = await desk.message("Hello")
    assert "flagged" in after.flags
    assert set(labels) == set(after.labels)
    for label in labels:
        await ask(
            desk, message_changes.apply_label, message_ids=[here.id], label=label, remove=True
        )
    await desk.sync()
    there = world.find("Hello")
    assert there is not None
    assert not there.labels
