"""A cell moves to another database by `postroom migrate` while the others work."""

from __future__ import annotations

import subprocess

from tests.faults.cells import traffic, until
from tests.servers.cells import Cell
from tests.servers.nginx import Nginx
from tests.servers.postgres import Postgres
from tests.servers.postroom import command

TOLD = "SELECT subject FROM messages ORDER BY subject"


def test_a_cell_is_migrated_while_the_other_is_in_use(
    router: Nginx, two_cells: list[Cell], postgres_server: Postgres
) -> None:
    other, moving = two_cells
    target = postgres_server.new_database(is_empty=True)
    with traffic(router, two_cells) as (going_on, stopping):
        until(lambda: len(stopping.acknowledged) > 5)
        source = moving.env["POSTROOM_DATABASE_URL"]
        moving.stop()
        before = len(going_on.acknowledged)
        places = ("--from", source, "--to", target, "--data", str(moving.data))
        done = subprocess.run(
            command("migrate", *places), env=moving.env, capture_output=True, check=False, text=True
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        until(lambda: len(going_on.acknowledged) > before)
        moving.use_database(target)
        moving.start()
        known = len(stopping.acknowledged)
        until(lambda: len(stopping.acknowledged) > known)

    stored = {row[0] for row in moving.rows(TOLD)}
    assert [] == going_on.refused + stopping.unexplained + going_on.wrong + stopping.wrong
    assert set(stopping.acknowledged) <= stored
    assert 0 == moving.problems() == other.problems()
