"""A Citus cluster: a coordinator and workers, each a real PostgreSQL on a random loopback port."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from postroom.store.postgres.connection import connect
from postroom.store.postgres.migrations import migrate
from tests.servers.postgres import TEMPLATE, Postgres, node

PROGRAMS = "CITUS_PROGRAMS"
"""The variable that names the folder of the programs that `scripts/citus` built."""

_OPTIONS = (
    "-c shared_preload_libraries=citus -c max_prepared_transactions=200 "
    "-c max_locks_per_transaction=256 -c citus.recover_2pc_interval=5s "
    "-c citus.enable_statistics_collection=off -c citus.node_conninfo=sslmode=prefer"
)
SLOW_COMMITS = ("commit_delay = 100000", "commit_siblings = 0")
"""Each commit of a node waits 0.1 s before it is on disk: much can happen meanwhile."""

_CLOSE = "ALTER DATABASE {} ALLOW_CONNECTIONS false"
_END = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster; its databases are those of its coordinator."""

    coordinator: Postgres
    workers: tuple[Postgres, ...]

    @property
    def nodes(self) -> tuple[Postgres, ...]:
        return (self.coordinator, *self.workers)

    @property
    def port(self) -> int:
        return self.coordinator.port

    def url(self, database: str) -> str:
        return self.coordinator.url(database)

    def control(self, *arguments: str) -> None:
        """Start, stop or restart the coordinator."""
        self.coordinator.control(*arguments)

    def until_up(self) -> None:
        """Wait until the coordinator answers again after a crash."""
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def new_database(self) -> str:
        """The address of a database with our tables and nothing in them."""
        name = f"test_{secrets.token_hex(6)}"
        for server in self.nodes:
            server.copy_template(name)
        return self.url(name)

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[2]
        for server in self.nodes:
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                # Citus may start a session of its own between the two.
                admin.execute(_CLOSE.format(name).encode())
                admin.execute(_END, [name])
            server.drop(server.url(name))

    def empty_database(self, *, with_workers: bool = True) -> str:
        """The address of a database on all nodes, without our tables."""
        url = self.url(f"test_{secrets.token_hex(6)}")
        self._create(url)
        if with_workers:
            self.add_workers(url)
        return url

    def add_workers(self, url: str) -> None:
        """Tell the coordinator of its workers."""
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("SELECT citus_set_coordinator_host('127.0.0.1', %s)", [self.port])
            for worker in self.workers:
                admin.execute("SELECT citus_add_node('127.0.0.1', %s)", [worker.port])

    def make_template(self) -> None:
        """Create the databases that new ones are copies of.

        A copy knows the same nodes: they are named without the database.
        """
        self._create(self.url(TEMPLATE))
        self.add_workers(self.url(TEMPLATE))
        with connect(self.url(TEMPLATE)) as connection:
            migrate(connection)
        for server in self.nodes:
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                admin.execute(_CLOSE.format(TEMPLATE).encode())
                admin.execute(_END, [TEMPLATE])

    def _create(self, url: str) -> None:
        name = url.rpartition("/")[2]
        for server in self.nodes:
            with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
                admin.execute(f"CREATE DATABASE {name}".encode())
            with psycopg.connect(server.url(name), autocommit=True) as admin:
                admin.execute("CREATE EXTENSION citus")


@contextmanager
def running(*, is_durable: bool = False, workers: int = 2) -> Iterator[Cluster]:
    """Start a cluster in temporary folders and stop it in the end."""
    programs = Path(os.environ[PROGRAMS])
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(node(programs, _OPTIONS, is_durable=is_durable))
            for _ in range(workers + 1)
        ]
        cluster = Cluster(nodes[0], tuple(nodes[1:]))
        cluster.make_template()
        yield cluster
