"""A real PostgreSQL: its own folder, a free loopback port, a new database for each test."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from postroom.store.postgres.connection import connect
from postroom.store.postgres.migrations import migrate
from tests.servers.ports import free_port

_USER = "postgres"
_QUICK = "-c fsync=off -c synchronous_commit=on -c full_page_writes=off -c shared_buffers=64MB"
_SAFE = "-c fsync=on -c synchronous_commit=on -c shared_buffers=64MB"
_PARTITIONS = 2
TEMPLATE = "postroom_template"


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server."""

    folder: Path
    port: int
    is_durable: bool
    programs: Path
    options: str = ""

    def url(self, database: str) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, is_empty: bool = False) -> str:
        """The URL of a database with empty tables, or without tables."""
        name = f"test_{secrets.token_hex(6)}"
        self.copy_template(name, "template1" if is_empty else TEMPLATE)
        return self.url(name)

    def copy_template(self, name: str, template: str = TEMPLATE) -> None:
        """Create a database as a copy of a template."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as admin:
            # Copied as files, as before version 15, so that the pages are not written to the log as
            # well.
            strategy = "STRATEGY FILE_COPY" if admin.info.server_version >= 150_000 else ""
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} {strategy}".encode())

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[2]
        with psycopg.connect(self.url("postgres"), autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def control(self, *arguments: str) -> None:
        """Start, stop or restart the server, and wait until it has."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        options += f"'{self.folder}' -c max_connections=200 {_SAFE if self.is_durable else _QUICK}"
        options += f" {self.options}"
        log = str(self.folder / "log")
        run_program(self.folder, self.programs / "pg_ctl", "-w", "-t", "60",
             "-D", str(self.folder / "data"), "-l", log, "-o", options, *arguments)  # fmt: skip

    def stop(self) -> None:
        """Stop the server at once, if it is running."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.control("stop", "-m", "immediate")

    def set(self, *settings: str) -> None:
        """Change settings of the running server."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as admin:
            for setting in settings:
                admin.execute(f"ALTER SYSTEM SET {setting}".encode())
            admin.execute("SELECT pg_reload_conf()")

    def make_template(self) -> None:
        """Create the database that new ones are copies of."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {TEMPLATE}".encode())
        with connect(self.url(TEMPLATE)) as connection:
            migrate(connection, _PARTITIONS)


def _programs() -> Path:
    """The folder of the newest installed version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    if found:
        return found[-1].parent
    return Path(shutil.which("initdb") or "/usr/bin/initdb").parent


def run_program(folder: Path, program: Path, *arguments: str) -> None:
    """Run a program of PostgreSQL as its user. Raises RuntimeError with its output."""
    line = [str(program), *arguments]
    if os.geteuid() == 0:
        line = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups", "--", *line]
    done = subprocess.run(
        line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=False, check=False,
        stdout=(folder / "out").open("ab"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{program} failed:\n{(folder / 'out').read_text(errors='replace')}")


def new_folder() -> Path:
    """A folder for a server that runs as another user."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-pg-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)
    return folder


@contextmanager
def node(
    programs: Path | None = None, options: str = "", *, is_durable: bool
) -> Iterator[Postgres]:
    """Run a server without any of our databases in a temporary folder."""
    folder = new_folder()
    server = Postgres(folder, free_port(), is_durable, programs or _programs(), options)
    try:
        run_program(folder, server.programs / "initdb", "-D", str(folder / "data"), "-U", _USER,
             "-A", "trust", "--no-sync", "--locale=C.UTF-8", "-E", "UTF8")  # fmt: skip
        server.control("start")
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(*, is_durable: bool = False) -> Iterator[Postgres]:
    """Run a server in a temporary folder."""
    with node(is_durable=is_durable) as server:
        server.make_template()
        yield server
