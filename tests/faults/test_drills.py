"""A small run of the fault drills; each also detects a planted defect.

`make faults` runs every drill for longer and plants every defect; a normal run has only some.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from tests.faults.approvals import killed_while_approving
from tests.faults.auto_replies import two_machines
from tests.faults.crashes import crash_points, failing_syncs
from tests.faults.disks import broken_disk, full_disk
from tests.faults.drills import DRILLS
from tests.faults.importing import killed_while_importing
from tests.faults.receiving import killed_while_posting, killed_while_receiving
from tests.faults.scheduling import killed_while_scheduled
from tests.faults.sending import killed_while_sending, lost_answers, one_key, strange_relays
from tests.faults.server_under_test import Outcome
from tests.faults.syncing import killed_while_syncing
from tests.faults.webhooks import killed_while_calling_webhooks


def only_root(drill: partial[Outcome]) -> None:
    if drill.func is full_disk and os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")


QUICK = [
    partial(killed_while_receiving, 2),
    partial(killed_while_posting, 2),
    partial(killed_while_importing, 2),
    partial(killed_while_syncing, 2),
    partial(killed_while_sending, 5),
    partial(killed_while_approving, 3),
    partial(killed_while_scheduled, 2),
    partial(killed_while_calling_webhooks, 2),
    partial(crash_points, 2, mails=1),
    partial(failing_syncs, 2, mails=2),
    partial(broken_disk, 1),
    partial(full_disk, 1),
    partial(strange_relays, 12),
    partial(lost_answers, 4),
    partial(one_key, 1),
    partial(two_machines, 1),
]


NOTICED = [
    (partial(killed_while_receiving, 2), "ack_before_commit"),
    (partial(killed_while_receiving, 3), "skip_deduplication"),
    (partial(killed_while_posting, 3), "skip_deduplication"),
    (partial(killed_while_importing, 2), "skip_deduplication"),
    (partial(killed_while_syncing, 3), "store_checkpoint_first"),
    (partial(killed_while_sending, 4), "skip_attempt_record"),
    (partial(killed_while_approving, 2), "send_held_mail"),
    (partial(killed_while_scheduled, 1), "ignore_send_at"),
    (partial(killed_while_calling_webhooks, 4), "mark_delivered_first"),
    (partial(crash_points, 3, mails=2), "commit_before_bytes"),
    (partial(failing_syncs, 4, mails=20), "continue_after_failed_sync"),
    (partial(broken_disk, 1), "never_sync"),
    (partial(full_disk, 1), "accept_when_full"),
    (partial(strange_relays, 24), "retry_unknown_outcomes"),
    (partial(lost_answers, 1), "retry_unknown_outcomes"),
    (partial(one_key, 1), "ignore_idempotency_keys"),
    (partial(two_machines, 1), "reply_to_machines"),
]
"""Each drill, and defects that it must detect."""

OFTEN = {
    killed_while_receiving,
    killed_while_syncing,
    killed_while_sending,
    killed_while_calling_webhooks,
    crash_points,
    broken_disk,
    one_key,
}
"""What a normal run makes fail: each way in and out, the order of writes, and the disk."""
ALWAYS = {"ack_before_commit", "skip_attempt_record", "never_sync"}
"""Defects that a normal run plants."""


def quick(drill: partial[Outcome]) -> Any:
    marks = [] if drill.func in OFTEN else [pytest.mark.long]
    return pytest.param(drill, marks=marks, id=drill.func.__name__)


def planted(drill: partial[Outcome], defect: str) -> Any:
    marks = [] if defect in ALWAYS else [pytest.mark.long]
    return pytest.param(drill, defect, marks=marks, id=f"{drill.func.__name__}-{defect}")


def test_every_drill_has_a_quick_run_and_a_defect() -> None:
    drills = {drill for drill, _ in DRILLS}

    assert drills == {quick.func for quick in QUICK}
    assert drills == {drill.func for drill, _ in NOTICED}


@pytest.mark.may_skip("needs root, to mount a small disk")
@pytest.mark.parametrize("drill", [quick(one) for one in QUICK])
def test_nothing_is_lost_duplicated_or_corrupted(drill: partial[Outcome]) -> None:
    only_root(drill)

    assert drill().is_clean


@pytest.mark.may_skip("needs root, to mount a small disk")
@pytest.mark.parametrize(("drill", "defect"), [planted(*row) for row in NOTICED])
def test_a_drill_notices_a_defect(drill: partial[Outcome], defect: str) -> None:
    only_root(drill)

    assert not drill(defect=defect).is_clean
