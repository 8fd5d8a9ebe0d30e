"""Calling the operation of a command; its result as JSON, text or a file; its exit code."""

from __future__ import annotations

import codecs
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from postroom.calls.operation import Operation
from postroom.errors import Conflict
from postroom.mail.mime.attachments import download_name
from postroom.model.event import Waited, WebhookPing
from postroom.model.mail.message import ActionResult, Download, FailedAction, Message
from postroom.surfaces.cli.backends import Backend, Body, Events, with_whole_ids
from postroom.surfaces.cli.editor import keep_text_on_failure, wants_editor, write
from postroom.surfaces.cli.exit_codes import (
    EXIT_CODES,
    OK,
    TIMED_OUT,
    explain_failures,
    in_cli_words,
)
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.tables import Screen, Text
from postroom.surfaces.cli.terminal import cell, without_controls, write_bytes, write_json
from postroom.surfaces.cli.views import render


def show(session: Session, operation: Operation[Any, Any], body: Body) -> None:
    """Print the result of an operation."""
    if session.as_json:
        write_json(body)
        return
    if "hint" in body:
        body = {**body, "hint": in_cli_words(body["hint"], session.words)}
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
            sys.stdout.write(without_controls(decoder.decode(chunk)))
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


_MOST_CHARS = 100_000


def perform(
    session: Session,
    operation: Operation[Any, Any],
    arguments: dict[str, Any],
    save_to: str = "",
    *,
    creates: bool = False,
) -> int:
    """Call an operation and print its result; the first failure decides the exit code."""
    if not wants_editor(session, operation, arguments):
        return session.perform(
            lambda at: _perform(session, at, operation, arguments, save_to), creates=creates
        )
    written = write(session, operation, arguments)
    with keep_text_on_failure(session, operation, written) as done:
        code = session.perform(lambda at: _perform(session, at, operation, written, save_to))
        if code == OK:
            done()
    return code


async def _perform(
    session: Session,
    backend: Backend,
    operation: Operation[Any, Any],
    arguments: dict[str, Any],
    save_to: str,
) -> int:
    arguments = await with_whole_ids(backend, arguments)
    result = await backend.call(operation, arguments)
    if isinstance(result, Download):
        await save(result, save_to, as_json=session.as_json)
    elif isinstance(result, dict):
        if not session.as_json:
            result = await _whole(backend, operation, arguments, result)
        show(session, operation, result)
        return _exit_code(session, operation, result)
    else:
        await follow(result, as_json=session.as_json)
    return OK


async def _whole(
    backend: Backend, operation: Operation[Any, Any], arguments: dict[str, Any], body: Body
) -> Body:
    """A message with all of its text, unless a part of it was asked for."""
    if operation.result is not Message or {"max_chars", "text_offset"} & arguments.keys():
        return body
    texts, part = [body.get("text", "")], body
    while (start := part.get("next_offset")) is not None:
        at = {"message_id": body["id"], "text_offset": start, "max_chars": _MOST_CHARS}
        part = await backend.body(operation, at)
        texts.append(part["text"])
    return {**body, "text": "".join(texts), "next_offset": None}


def _exit_code(session: Session, operation: Operation[Any, Any], body: Body) -> int:
    if operation.result is ActionResult and body.get("failed"):
        failed = [FailedAction(**failure) for failure in body["failed"]]
        return explain_failures(failed, session)
    if operation.result is Waited and body.get("timed_out"):
        return TIMED_OUT
    if operation.result is WebhookPing and body.get("status") == "failed":
        return EXIT_CODES["provider_error"]
    return OK
