"""Every valid label is synced both ways, however the provider represents it."""

from __future__ import annotations

import pytest

from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import RemoteMailbox
from tests.providers.accounts.test_every_provider import ask, outgoing_mail

LONG = ("x" * 128, "ü" * 30, "名" * 128, "Invoices that are to be paid before the end of the month")
MACHINES = ("Junk", "NonJunk", "Forwarded", "Submitted")


@pytest.mark.parametrize("labels", [LONG, MACHINES], ids=["long", "of machines"])
async def test_labels_reach_the_provider_and_come_back(
    synced: SyncedAccount, remote: RemoteMailbox, labels: tuple[str, ...]
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    remote.deliver(outgoing_mail("Another"))
    await synced.sync()
    here = await synced.message("Hello")
    for label in labels:
        await ask(synced, message_changes.apply_label, message_ids=[here.id], label=label)
    await synced.sync()
    remote.flag("Hello")
    await synced.sync()

    there = remote.find("Hello")
    assert there is not None
    assert len(labels) == len(there.labels)
    after = await synced.message("Hello")
    assert "flagged" in after.flags
    assert set(labels) == set(after.labels)
    for label in labels:
        await ask(
            synced, message_changes.apply_label, message_ids=[here.id], label=label, remove=True
        )
    await synced.sync()
    there = remote.find("Hello")
    assert there is not None
    assert not there.labels
