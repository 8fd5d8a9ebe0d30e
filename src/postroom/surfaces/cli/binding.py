"""A command on an operation: options in, the answer of every surface out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import click

from postroom.app import App
from postroom.model.attachment import Download
from postroom.model.event import EventStream
from postroom.model.key import OWNER, Scope
from postroom.model.message import ActionResult
from postroom.operations.operation import Operation, call
from postroom.surfaces.cli.commands import Bound
from postroom.surfaces.cli.exits import OK, explain_failures
from postroom.surfaces.cli.options import arguments_of, fields_of, parameters_of
from postroom.surfaces.cli.output import follow, save, show
from postroom.surfaces.cli.session import Session


def operation_of(row: Bound) -> Operation[Any, Any]:
    """The operation that a row of the table names."""
    module, _, name = row.operation.partition(".")
    found = getattr(import_module(f"postroom.operations.{module}"), name)
    assert isinstance(found, Operation)
    return found


def bind(row: Bound, name: str) -> click.Command:
    """Make the command of a row."""
    operation = operation_of(row)
    fields = fields_of(operation.request, row.plain)
    params = parameters_of(fields)
    if row.saves_to is not None:
        params.append(
            click.Option(
                ["--to", "save_to"],
                metavar="FILE",
                default=row.saves_to,
                help="Where to; - is standard output."
                + ("" if row.saves_to else "  [default: its own name, in this folder]"),
            )
        )

    @click.pass_obj
    def run(session: Session, /, **values: Any) -> int:
        arguments = arguments_of(fields, values, session.settings.limits)
        return session.run(_work(session, operation, arguments, values.get("save_to")))

    return click.Command(name, params=params, callback=run, help=operation.description)


def _work(
    session: Session, operation: Operation[Any, Any], arguments: dict[str, Any], save_to: str | None
) -> Callable[[App], Awaitable[int]]:
    async def work(app: App) -> int:
        async with app.sending() if operation.scope is Scope.SEND else nullcontext():
            result = await call(app.context(OWNER), operation, arguments)
        if isinstance(result, Download):
            await save(result, save_to or "", as_json=session.as_json)
            return OK
        if isinstance(result, EventStream):
            await follow(result, as_json=session.as_json)
            return OK
        show(operation, result, as_json=session.as_json)
        return _outcome(result, as_json=session.as_json)

    return work


def _outcome(result: Any, *, as_json: bool) -> int:
    """An action that failed on a message ends like the error that it names."""
    if not isinstance(result, ActionResult) or not result.failed:
        return OK
    return explain_failures(result.failed, as_json=as_json)
