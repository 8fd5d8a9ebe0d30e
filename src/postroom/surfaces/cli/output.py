"""Results of operations: JSON or text on standard output, or a file."""

from __future__ import annotations

import codecs
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from postroom.calls.operation import Operation
from postroom.errors import Conflict
from postroom.mail.mime.attachments import download_name
from postroom.model.message import Download
from postroom.surfaces.cli.backends import Body, Events
from postroom.surfaces.cli.rendering.screen import Screen, Text
from postroom.surfaces.cli.rendering.views import render
from postroom.surfaces.cli.rendering.wording import in_our_words
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import cell, inert, write_bytes, write_json


def show(session: Session, operation: Operation[Any, Any], body: Body) -> None:
    """Print the result of an operation."""
    if session.as_json:
        write_json(body)
        return
    if "hint" in body:
        body = {**body, "hint": in_our_words(body["hint"], session.options)}
    text = Text(Screen.here(is_wide=session.wide))
    render(text, operation.result, body)
    text.show()


async def follow(events: Events, *, as_json: bool) -> None:
    """Print events as they happen, one per line, until interrupted."""
    async for event in events:
        if event is None:
            continue
        if as_json:
            write_json(event)
        else:
            print(_event_line(event), flush=True)


def _event_line(event: Body) -> str:
    told = [f"{name}={cell(value)}" for name, value in event["data"].items()]
    about = event.get("message_id") or event["inbox_id"]
    return "\t".join([event["at"], cell(event["type"]), about, *told])


async def save(download: Download, to: str, *, as_json: bool) -> None:
    """Write a download to a new file, or to standard output.

    Raises:
        Conflict: the file exists.
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
    """Raw bytes to a pipe; on a terminal, control characters are replaced."""
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
        raise Conflict(f"{path} exists; choose another name with --to") from None
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
