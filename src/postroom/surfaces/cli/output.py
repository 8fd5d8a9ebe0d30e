"""Answers of operations: JSON as every surface says it, something to look at, or a file."""

from __future__ import annotations

import codecs
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from postroom.errors import Conflict
from postroom.mail.filenames import download_name
from postroom.model.attachment import Download
from postroom.model.event import EventStream
from postroom.operations.operation import Operation
from postroom.surfaces.cli.streams import write_bytes, write_json
from postroom.surfaces.cli.tables import inert
from postroom.surfaces.cli.views import line_of, view
from postroom.surfaces.shapes import answer, to_json


def show(operation: Operation[Any, Any], result: Any, *, as_json: bool) -> None:
    """Show the answer of an operation."""
    if as_json:
        write_json(answer(operation, result))
    else:
        view(result)


async def follow(stream: EventStream, *, as_json: bool) -> None:
    """Write events as they happen, a line each, until the caller has enough."""
    async for event in stream.events:
        if event is None:
            continue
        if as_json:
            write_json({"untrusted": True, **to_json(event)})
        else:
            print(line_of(event), flush=True)


async def save(download: Download, to: str, *, as_json: bool) -> None:
    """Write a download to a file that is not there yet, or to standard output.

    Raises:
        Conflict: there is a file already.
    """
    if to == "-":
        await _write_out(download)
        return
    path = Path(to or download_name(download.filename))
    await _write_file(download, path)
    if as_json:
        write_json({"path": str(path), "size": download.size})
    else:
        print(f"{path}: {download.size} bytes")


async def _write_out(download: Download) -> None:
    """Bytes as they are into a pipe; a terminal sees them, but need not obey them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    async for chunk in download.chunks:
        if sys.stdout.isatty():
            sys.stdout.write(inert(decoder.decode(chunk)))
        else:
            write_bytes(chunk)


async def _write_file(download: Download, path: Path) -> None:
    try:
        file = path.open("xb")
    except FileExistsError:
        raise Conflict(f"{path} exists already; name another with --to") from None
    try:
        with file:
            async for chunk in download.chunks:
                file.write(chunk)
    except BaseException:
        _remove(path)
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
