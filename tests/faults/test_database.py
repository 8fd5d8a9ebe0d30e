"""A quick share of the drill on PostgreSQL."""

from __future__ import annotations

from tests.faults.database import restarted


def test_a_database_that_is_killed_under_load_costs_time_and_nothing_else() -> None:
    found = restarted(2, 1.5)

    assert found.is_clean, found
    assert found.acknowledged > 0
    assert float("inf") not in found.back_after_s
