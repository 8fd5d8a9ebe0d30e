"""A small run of the drills on cells; `make faults-cells` runs them for longer.

`make faults` runs those that are marked `long`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.cell_commits import killed_in_commits
from tests.faults.cell_mail import killed_by_turns
from tests.faults.cells import added_cells, followed_events, promoted, stopped_databases
from tests.servers import postgres
from tests.servers.cells import Cell, cells, routed
from tests.servers.nginx import Nginx


def test_mail_between_cells_arrives_once_although_both_are_killed(two_cells: list[Cell]) -> None:
    found = killed_by_turns(2, *two_cells)

    assert found.is_clean, found
    assert found.acknowledged


@pytest.mark.long
def test_a_cell_is_added_under_load(
    router: Nginx, two_cells: list[Cell], postgres_server: postgres.Postgres, tmp_path: Path
) -> None:
    found = added_cells(1, tmp_path, router, two_cells, postgres_server)

    assert found.is_clean, found


def test_a_client_that_follows_events_of_eight_writers_misses_none(
    router: Nginx, two_cells: list[Cell]
) -> None:
    found = followed_events(40, router, two_cells[0])

    assert found.is_clean, found
    assert 40 == found.acknowledged


@pytest.mark.long
def test_a_cell_without_a_database_is_unavailable_and_the_others_work(
    postgres_server: postgres.Postgres, tmp_path: Path
) -> None:
    with (
        postgres.running(is_durable=True) as second,
        cells(tmp_path, {"a": postgres_server.new_database(), "b": second.new_database()}) as used,
        routed(tmp_path / "router", used) as router,
    ):
        found = stopped_databases(2, router, used, second)

    assert found.is_clean, found


@pytest.mark.long
def test_the_standby_of_a_cell_is_promoted_under_load() -> None:
    found = promoted(1, 1.0, processes=1)

    assert found.is_clean, found
    assert found.acknowledged > 0
    assert float("inf") not in found.back_after_s


def test_a_writer_killed_inside_a_commit_loses_and_doubles_nothing(
    postgres_server: postgres.Postgres, tmp_path: Path
) -> None:
    found = killed_in_commits(2, tmp_path, postgres_server)

    assert found.is_clean, found
    assert 2 == found.acknowledged
