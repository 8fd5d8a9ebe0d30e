"""Nothing is lost, doubled or torn when a node is killed at the worst moment."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import psycopg

from tests.faults.database import drilled
from tests.servers.citus import SLOW_COMMITS, Cluster

COMMITTING = """
    SELECT pid FROM pg_stat_activity
     WHERE datname = %s AND state = 'active' AND query = 'COMMIT' LIMIT 1
"""
KILLS = int(os.environ.get("CLUSTER_KILLS", "3"))


def test_a_writer_that_is_killed_while_it_commits_costs_time_and_nothing_else(
    cluster: Cluster,
) -> None:
    url = cluster.new_database()
    cluster.coordinator.set(*SLOW_COMMITS)
    found = drilled(url, lambda: _kill_while_committing(cluster, url), KILLS, 2.0)
    cluster.coordinator.set("commit_delay = 0")

    assert found.is_clean, found
    assert found.acknowledged > 0
    assert found.reads > 0
    assert float("inf") not in found.back_after_s


def test_a_worker_that_is_killed_under_load_costs_time_and_nothing_else(cluster: Cluster) -> None:
    url = cluster.new_database()
    workers = iter(cluster.workers * KILLS)
    found = drilled(url, lambda: next(workers).control("restart", "-m", "immediate"), KILLS, 2.0)

    assert found.is_clean, found
    assert found.acknowledged > 0
    assert float("inf") not in found.back_after_s


def _kill_while_committing(cluster: Cluster, url: str) -> None:
    """Kill the backend of a writer inside its commit, and wait until the coordinator is back."""
    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as admin:
        while (row := admin.execute(COMMITTING, [url.rpartition("/")[2]]).fetchone()) is None:
            pass
        time.sleep(random.uniform(0, 0.15))
        os.kill(row[0], signal.SIGKILL)
    cluster.until_up()
