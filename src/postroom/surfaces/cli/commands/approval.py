"""`outbox approve` and `outbox reject`: a person at a terminal decides about held mail."""

from __future__ import annotations

import sys
from typing import Any

import click

from postroom.calls.operation import Operation
from postroom.errors import Forbidden
from postroom.operations.outgoing.approvals import approve_message, get_held_mail, reject_message
from postroom.surfaces.cli.backends import Backend, Body, with_whole_ids
from postroom.surfaces.cli.exit_codes import OK
from postroom.surfaces.cli.output import show
from postroom.surfaces.cli.session import Session

_NO_TERMINAL = (
    "a person decides about held mail: run this in a terminal, use the web pages, or use a key "
    "with the scope approve over REST"
)


@click.command(help="Let a held mail leave: shows it first, and asks.")
@click.argument("message_id")
@click.pass_obj
def approve(session: Session, *, message_id: str) -> int:
    return _decide(session, approve_message, message_id, "Let this mail leave?")


@click.command(help="Keep a held mail from leaving: shows it first, and asks.")
@click.argument("message_id")
@click.option("--note", metavar="TEXT", help="Why; its sender is told.")
@click.pass_obj
def reject(session: Session, *, message_id: str, note: str | None) -> int:
    return _decide(session, reject_message, message_id, "Reject this mail?", note=note)


def _decide(
    session: Session, operation: Operation[Any, Any], message_id: str, question: str, **more: Any
) -> int:
    """Show a held mail, ask, and decide about exactly the mail that was shown.

    Raises Forbidden if no person is at the terminal.
    """
    held = session.perform(lambda at: _held(at, message_id))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Forbidden(_NO_TERMINAL)
    show(session, get_held_mail, held)
    if not click.confirm(question, default=False):
        print("nothing was decided", file=sys.stderr)
        return OK
    decision = {"message_id": held["message_id"], "sha256": held["hold"]["sha256"]}
    given = {name: value for name, value in more.items() if value is not None}
    answer = session.perform(lambda at: at.body(operation, {**decision, **given}))
    show(session, operation, answer)
    return OK


async def _held(at: Backend, message_id: str) -> Body:
    arguments = await with_whole_ids(at, {"message_id": message_id})
    return await at.body(get_held_mail, arguments)
