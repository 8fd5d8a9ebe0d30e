"""A PostgreSQL with a synchronous standby that can be promoted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.servers.ports import free_port
from tests.servers.postgres import Postgres, new_folder, run_program, running


class Pair:
    """A primary and its standby; every confirmed commit is on both."""

    def __init__(self, primary: Postgres) -> None:
        self.primary, self._folders = primary, list[Path]()
        self.standby = self._new_standby(free_port())

    def url(self, database: str) -> str:
        """The addresses of both servers; the one that accepts writes is used."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in (self.primary, self.standby))
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def promote(self) -> None:
        """Stop the primary immediately, and promote the standby."""
        self.primary.control("stop", "-m", "immediate")
        self.standby.control("promote")
        self.primary, self.standby = self.standby, self.primary

    def rebuild(self) -> None:
        """Turn the former primary into a standby of the other server, on its port."""
        self.standby = self._new_standby(self.standby.port)

    def _new_standby(self, port: int) -> Postgres:
        folder = new_folder()
        self._folders.append(folder)
        standby = replace(self.primary, folder=folder, port=port)
        run_program(
            folder, standby.programs / "pg_basebackup", "-D", str(folder / "data"), "-R",
            "-h", "127.0.0.1", "-p", str(self.primary.port), "-U", "postgres", "-c", "fast",
        )  # fmt: skip
        standby.control("start")
        self.primary.set("synchronous_standby_names = '*'")
        return standby

    def stop(self) -> None:
        for server in (self.primary, self.standby):
            server.stop()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replicated() -> Iterator[Pair]:
    """Run both servers."""
    with running(is_durable=True) as primary:
        pair = Pair(primary)
        try:
            yield pair
        finally:
            pair.stop()
