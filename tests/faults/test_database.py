"""A small run of the drills on PostgreSQL; they also detect planted defects.

`make faults` runs those that are marked `long`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.faults.database import cut_off, restarted, shared
from tests.faults.importing import killed_while_importing
from tests.faults.receiving import killed_while_receiving
from tests.faults.sending import killed_while_sending, one_key, strange_relays
from tests.faults.server_under_test import Outcome
from tests.faults.syncing import killed_while_syncing


def test_many_processes_share_one_sqlite_file() -> None:
    found = shared(4, 60)

    assert found.is_clean, found
    assert found.reads > 0
    assert found.plans > 0


def test_killing_the_database_under_load_only_delays_requests() -> None:
    found = restarted(2, 1.5)

    assert found.is_clean, found
    assert found.acknowledged > 0
    assert found.reads > 0
    assert found.plans > 0
    assert float("inf") not in found.back_after_s


@pytest.mark.long
def test_broken_connections_only_delay_requests() -> None:
    found = cut_off(3, 1.0)

    assert found.is_clean, found
    assert found.acknowledged > 0
    assert float("inf") not in found.back_after_s


@pytest.mark.parametrize(
    "drill",
    [
        partial(killed_while_receiving, 1),
        pytest.param(partial(killed_while_importing, 1), marks=pytest.mark.long),
        pytest.param(partial(killed_while_syncing, 1), marks=pytest.mark.long),
        partial(killed_while_sending, 2),
        pytest.param(partial(strange_relays, 8), marks=pytest.mark.long),
        pytest.param(partial(one_key, 1), marks=pytest.mark.long),
    ],
    ids=lambda drill: drill.func.__name__,
)
def test_each_drill_is_clean_on_postgresql(
    drill: Callable[..., Outcome], database_url: str
) -> None:
    assert drill(POSTROOM_DATABASE_URL=database_url).is_clean


@pytest.mark.parametrize(
    ("drill", "defect"),
    [
        (partial(killed_while_receiving, 2), "ack_before_commit"),
        pytest.param(partial(one_key, 1), "ignore_idempotency_keys", marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else value.func.__name__,
)
def test_a_drill_notices_a_defect(
    drill: Callable[..., Outcome], defect: str, database_url: str
) -> None:
    assert not drill(defect=defect, POSTROOM_DATABASE_URL=database_url).is_clean


@pytest.mark.long
def test_asynchronous_commits_are_detected() -> None:
    assert restarted(2, 1.5, defect="commit_asynchronously").lost
