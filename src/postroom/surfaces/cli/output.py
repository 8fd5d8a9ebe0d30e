"""Answers on the terminal: JSON as every surface says it, or something to look at."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from postroom.errors import Conflict
from postroom.mail.filenames import download_name
from postroom.model.attachment import Download
from postroom.operations.operation import Operation
from postroom.surfaces.cli.views import view
from postroom.surfaces.shapes import answer


def as_json_line(value: Any) -> str:
    """Compact JSON, the same that REST and MCP answer."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_json(value: Any) -> None:
    """Write JSON in UTF-8, whatever the terminal is set to."""
    write_bytes(as_json_line(value).encode("utf-8", "replace") + b"\n")


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def show(operation: Operation[Any, Any], result: Any, *, as_json: bool) -> None:
    """Show the answer of an operation."""
    if as_json:
        write_json(answer(operation, result))
    else:
        view(result)


async def save(download: Download, to: str, *, as_json: bool) -> None:
    """Write a download to a file that is not there yet, or to standard output.

    Raises:
        Conflict: there is a file already.
    """
    if to == "-":
        async for chunk in download.chunks:
            write_bytes(chunk)
        return
    path = Path(to or download_name(download.filename))
    await _write_file(download, path)
    if as_json:
        write_json({"path": str(path), "size": download.size})
    else:
        print(f"{path}: {download.size} bytes")


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
