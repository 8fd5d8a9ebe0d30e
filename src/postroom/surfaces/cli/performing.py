"""Calling the operation of a command, showing its result, and the exit code that follows."""

from __future__ import annotations

from typing import Any

from postroom.calls.operation import Operation
from postroom.model.event import Waited, WebhookPing
from postroom.model.message import ActionResult, Download, FailedAction, Message
from postroom.surfaces.cli.backends import Backend, Body
from postroom.surfaces.cli.editor import kept_unless_done, wants_editor, write
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK, TIMED_OUT, explain_failures
from postroom.surfaces.cli.output import follow, save, show
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.short_ids import with_whole_ids

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
    with kept_unless_done(session, operation, written) as done:
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
