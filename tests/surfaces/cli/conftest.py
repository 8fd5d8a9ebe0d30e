"""Run commands: in this process where that makes no difference, in a new one where it does."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from postroom.surfaces.cli.program import main
from tests.servers.fork_server import shared_fork_server
from tests.servers.postroom import command, create_store, environment


@dataclass(frozen=True)
class CliResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.err)["error"]

    @property
    def rows(self) -> list[list[str]]:
        """The rows of a table on a pipe, without the header."""
        return [line.split("\t") for line in self.out.splitlines()[1:]]


Postroom = Callable[..., CliResult]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder for one test, with free ports; the working folder is another one."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("POSTROOM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("POSTROOM_SMTP_LISTEN", "127.0.0.1:0")
    return tmp_path / "data"


CREATING = ("serve", "worker", "mcp", "import", "restore", "config", "doctor", "migrate")


def create_missing_store(data: Path, words: tuple[object, ...]) -> None:
    """Create the store that most commands need, unless the command creates or names one."""
    creates = not words or str(words[0]) in CREATING or words[:2] == ("inbox", "create")
    if creates or not {"--data", "--help", "-h"}.isdisjoint(map(str, words)):
        return
    if not data.exists() and "POSTROOM_DATABASE_URL" not in os.environ:
        create_store(data)


@pytest.fixture
def postroom(data: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> Postroom:
    """Run a command in this process; `stdin` is its standard input."""

    def run(*words: object, stdin: bytes = b"") -> CliResult:
        create_missing_store(data, words)
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return CliResult(code, out, err)

    return run


@pytest.fixture
def process(data: Path) -> Postroom:
    """Run a command in a new process."""

    def run(*words: object, stdin: bytes = b"", **env: str) -> CliResult:
        create_missing_store(data, words)
        done = subprocess.run(
            command(*(str(word) for word in words)),
            env=environment(data, env),
            input=stdin,
            capture_output=True,
            timeout=300,
            check=False,
        )
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def forked(data: Path) -> Postroom:
    """Run a command in a fork of a process that has imported everything."""

    def run(*words: object, stdin: bytes = b"", **env: str) -> CliResult:
        create_missing_store(data, words)
        done = shared_fork_server().run(list(map(str, words)), environment(data, env), stdin)
        return CliResult(done.code, done.out.decode(), done.err.decode())

    return run


def run_sql(data: Path, sql: str) -> Any:
    """Run a statement on the store in this folder; the first value of its result."""
    with apsw.Connection(str(data / "postroom.db")) as database:
        return database.execute(sql).get


@pytest.fixture
def inbox(postroom: Postroom) -> dict[str, Any]:
    """An inbox for Bo."""
    return postroom("inbox", "create", "--username", "bo", "--name", "Bo", "-o", "json").json


@pytest.fixture
def receive(postroom: Postroom, inbox: dict[str, Any]) -> Callable[[bytes], dict[str, Any]]:
    """Deliver a mail to Bo's inbox."""

    def run(raw: bytes) -> dict[str, Any]:
        words = ("message", "receive", inbox["address"], "-", "-o", "json")
        return postroom(*words, stdin=raw).json

    return run
