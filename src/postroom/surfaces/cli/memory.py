"""`memory import` and `memory export`: memories as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, BinaryIO

import click

from postroom.errors import Conflict, InvalidInput
from postroom.model.key import OWNER
from postroom.model.memory import Memory
from postroom.surfaces.cli.exits import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.streams import write_json
from postroom.surfaces.shapes import to_json

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.operations.exchanging import ImportedMemories


@click.command(
    help="Take in memories from a file of `memory export`: a JSON object on each line. What came "
    "out of mail stays marked. - is standard input."
)
@click.argument("path", metavar="PATH")
@click.pass_obj
def import_(session: Session, *, path: str) -> int:
    from postroom.operations.exchanging import import_memories

    async def work(app: App) -> ImportedMemories:
        with _opened(path) as lines:
            return await import_memories(app.context(OWNER), lines)

    tally = session.run(work)
    if session.as_json:
        write_json(asdict(tally))
    else:
        _tell(tally)
    return EXIT_CODES["invalid_input"] if tally.refused else OK


def _tell(tally: ImportedMemories) -> None:
    for problem in tally.problems:
        print(f"refused: {problem}", file=sys.stderr)
    print(
        f"{tally.read} memories read: {tally.created} new, {tally.changed} changed, "
        f"{tally.refused} refused"
    )


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    with file:
        yield file


@click.command(
    help="Write memories to a file that is not there yet, a JSON object on each line. - is "
    "standard output."
)
@click.argument("path", metavar="PATH")
@click.option("--namespace", multiple=True, metavar="NAME", help="Only this one.  [default: all]")
@click.pass_obj
def export(session: Session, *, path: str, namespace: tuple[str, ...]) -> int:
    from postroom.operations.exchanging import export_memories

    async def work(app: App) -> int:
        written = 0
        with _target(path) as file:
            async for memory in export_memories(app.context(OWNER), namespace or None):
                file.write(_line(memory))
                written += 1
        return written

    written = session.run(work)
    if path != "-" and session.as_json:
        write_json({"path": path, "memories": written})
    elif path != "-":
        print(f"{path}: {written} memories")
    return OK


def _line(memory: Memory) -> bytes:
    return json.dumps(to_json(memory), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@contextmanager
def _target(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = open(path, "xb", opener=_private)  # noqa: SIM115
    except FileExistsError:
        raise Conflict(f"{path} exists already; name another") from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    with file:
        yield file


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
