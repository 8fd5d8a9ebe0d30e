"""`config`, `completion`, `version`, `web`, `verify`, `reparse`, and decisions on held mail."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from postroom import __version__
from postroom.config import SETTINGS
from postroom.config.settings import base_url
from postroom.errors import Forbidden
from postroom.extras import is_installed, missing
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import Progress, cell, table

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.calls.operation import Operation
    from postroom.model.event import AuditCheck
    from postroom.model.mail.message import BlobKey
    from postroom.surfaces.cli.backends import Backend, Body


_NAMES = "\n".join(f"{setting.variable}: {setting.summary}" for setting in SETTINGS)


@click.command(
    help="Show every setting and its origin. "
    "The command line overrides the environment, which overrides postroom.toml."
    f"\n\n\b\n{_NAMES}"
)
@click.pass_obj
def config(session: Session) -> None:
    rows = [(v.setting.variable, v.masked_value, v.origin) for v in session.configuration().values]
    session.report(
        {name: {"value": value, "origin": origin} for name, value, origin in rows},
        lambda: table(("setting", "value", "origin"), rows),
    )


@click.command(help="Show the version.")
@click.pass_obj
def version(session: Session) -> None:
    session.report({"version": __version__}, lambda: print(f"postroom {__version__}"))


@click.command(
    help="Print a completion script for a shell. Use it as "
    '`eval "$(postroom completion bash)"` in ~/.bashrc.'
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    from postroom.surfaces.cli.program import program

    found = get_completion_class(shell)
    assert found is not None
    print(found(program, {}, "postroom", "_POSTROOM_COMPLETE").source())


@click.command(
    help="Verify the whole audit log: that no entry was altered, removed or "
    "moved. Exits with 1 if there is a problem."
)
@click.pass_obj
def verify_audit(session: Session) -> int:
    found = session.run(lambda app: app.services.store.check_audit())
    session.report(found, lambda: _print_audit(found))
    return OK if found.is_whole else EXIT_CODES["internal"]


def _print_audit(found: AuditCheck) -> None:
    for problem in found.problems:
        print(f"problem: {cell(problem)}")
    verdict = "no problems" if found.is_whole else f"{len(found.problems)} problems"
    print(f"{found.entries} entries checked: {verdict}")


@click.command(
    help="Parse stored mail again with the current parser, and update text, threads and the search "
    "index. Skips mail that this version has parsed, and resumes "
    "after an interruption."
)
@click.option(
    "--all", "everything", is_flag=True, help="Include mail that this version has parsed."
)
@click.pass_obj
def reparse(session: Session, *, everything: bool) -> None:
    count = session.run(lambda app: _reparse(app, everything=everything))
    session.report({"reparsed": count}, lambda: print(f"{count} messages parsed again"))


async def _reparse(app: App, *, everything: bool) -> int:
    """Parse all messages that an older parser has parsed, and return their number."""
    from postroom.mail.message import PARSER_VERSION
    from postroom.pipeline.maintenance import reparse as batches

    version = PARSER_VERSION + everything
    total = await app.services.store.count_outdated(version)
    done = 0
    with Progress("parsing", unit="messages") as progress:
        async for count in batches(app.services, version=version):
            done += count
            progress.update(done, share=min(done / total, 1.0) if total else None)
    return done


SWEEP_AGE = timedelta(hours=1)
"""A blob that nothing uses may belong to a message that is being stored right now."""


NO_INDEX = "the search index was checked by its checksums only: " + missing(
    "index", "building one to compare it with"
)


@dataclass(slots=True)
class VerifyResult:
    """What verify checked, and the problems that it found."""

    blobs: int = 0
    bytes: int = 0
    messages: int = 0
    problems: list[str] = field(default_factory=list)
    repaired: int | None = None
    swept: int | None = None
    note: str | None = None
    outdated: int | None = None
    """Messages that an older parser has parsed, so that they were not compared."""


@click.command(
    help="Check that blobs, rows and the index agree, and that each message matches its raw bytes. "
    "If not, report each problem with its fix and exit with 1."
)
@click.option("--quick", is_flag=True, help="Do not compare messages with their raw bytes.")
@click.option("--repair", is_flag=True, help="First rebuild the search index if it is wrong.")
@click.option(
    "--sweep",
    is_flag=True,
    help="Delete unused blobs older than an hour, and deleted mail from the search index.",
)
@click.pass_obj
def verify(session: Session, *, quick: bool, repair: bool, sweep: bool) -> int:
    result = session.run(lambda app: examine(app, quick=quick, repair=repair, sweep=sweep))
    session.report(result, lambda: _print_result(result))
    return EXIT_CODES["internal"] if result.problems else OK


async def examine(app: App, *, quick: bool, repair: bool, sweep: bool) -> VerifyResult:
    """Check every row, every blob and every mail."""
    from postroom.pipeline.blobs import sweep_blobs

    store = app.services.store
    repaired = await store.repair() if repair else None
    has_index = repaired or (await store.sizes()).index_bytes
    note = NO_INDEX if has_index and not is_installed("index") else None
    result = VerifyResult(repaired=repaired, problems=list(await store.problems()), note=note)
    damaged = await _examine_blobs(app, result)
    if not quick:
        await _read_again(app, result, damaged)
    if sweep:
        await store.purge()
        result.swept = await sweep_blobs(app.services, older_than=SWEEP_AGE)
    return result


async def _examine_blobs(app: App, result: VerifyResult) -> set[BlobKey]:
    """Read every blob that must exist; returns the damaged ones."""
    damaged: set[BlobKey] = set()
    with Progress("verifying", unit="blobs") as progress:
        async for key, size in app.services.store.all_blobs():
            result.blobs += 1
            result.bytes += size
            damage = await app.services.blobs.find_damage(key, size)
            # What was removed meanwhile is gone with its message.
            if damage is not None and await app.services.store.used_blobs([key]):
                damaged.add(key)
                result.problems.append(damage)
            progress.update(result.blobs)
    return damaged


async def _read_again(app: App, result: VerifyResult, damaged: set[BlobKey]) -> None:
    from postroom.mail.message import PARSER_VERSION
    from postroom.pipeline.maintenance import parse_differences

    with Progress("parsing", unit="messages") as progress:
        async for count, problems in parse_differences(app.services, damaged=damaged):
            result.messages += count
            result.problems += problems
            progress.update(result.messages)
    result.outdated = await app.services.store.count_outdated(PARSER_VERSION) or None


def _print_result(result: VerifyResult) -> None:
    for problem in result.problems:
        print(f"problem: {cell(problem)}")
    count = len(result.problems)
    verdict = f"{count} problem{'s' * (count != 1)}" if count else "no problems"
    print(f"{result.blobs} blobs with {result.bytes} bytes and all rows checked", end=", ")
    print(f"{result.messages} messages parsed again: {verdict}")
    if result.outdated:
        print(f"not compared: {result.outdated}, parsed by an older version; run: postroom reparse")
    if result.repaired:
        how = "emptied, and mail is searched without it" if result.note else "rebuilt"
        print(f"search index {how}; problems found: {result.repaired}")
    if result.swept is not None:
        print(f"{result.swept} unused blobs removed")
    if result.note:
        print(f"note: {result.note}")


@click.command(
    help="Print a link that signs you in to the web pages of the running server, once, within 10 "
    "minutes. It is printed to a terminal only, because anyone who has it can approve held mail."
)
@click.option("--host", metavar="ADDRESS", help="The address of the server.  [default: 127.0.0.1]")
@click.option("--port", metavar="NUMBER", help="The port of the server.  [default: 8700]")
@click.option("--sign-out", is_flag=True, help="End every session of the web pages instead.")
@click.pass_obj
def web(session: Session, /, *, sign_out: bool, **given: Any) -> None:
    if sign_out:
        ended = session.run(_sign_out)
        session.report({"ended": ended}, lambda: print(f"Sessions ended: {ended}"))
        return
    settings = session.configuration(**given).settings
    url = settings.public_url or base_url(settings.host, settings.port)
    link = session.run(lambda app: _link(app, url))
    session.report({"url": link}, lambda: print(link))
    if not session.as_json:
        print("It signs you in once, within 10 minutes.", file=sys.stderr)


async def _link(app: App, url: str) -> str:
    if not sys.stdout.isatty():
        raise Forbidden("the link is printed to a terminal only; run `postroom web` on one")
    from postroom.surfaces.web.server import sign_in_link

    return await sign_in_link(app, url)


async def _sign_out(app: App) -> int:
    from postroom.calls.authentication import sign_out
    from postroom.model.key import OWNER

    return await sign_out(app.services, OWNER)


_NO_TERMINAL = (
    "a person decides about held mail: run this in a terminal, use the web pages, or use a key "
    "with the scope approve over REST"
)


@click.command(help="Approve a held mail: shows it first, and asks for confirmation.")
@click.argument("message_id")
@click.pass_obj
def approve(session: Session, *, message_id: str) -> int:
    from postroom.operations.outgoing.approvals import approve_message

    return _decide(session, approve_message, message_id, "Send this mail?")


@click.command(help="Reject a held mail: shows it first, and asks for confirmation.")
@click.argument("message_id")
@click.option("--note", metavar="TEXT", help="The reason. It is shown to the sender of the mail.")
@click.pass_obj
def reject(session: Session, *, message_id: str, note: str | None) -> int:
    from postroom.operations.outgoing.approvals import reject_message

    return _decide(session, reject_message, message_id, "Reject this mail?", note=note)


def _decide(
    session: Session, operation: Operation[Any, Any], message_id: str, question: str, **more: Any
) -> int:
    """Show a held mail, ask, and decide about exactly the mail that was shown.

    Raises Forbidden if no person is at the terminal.
    """
    from postroom.operations.outgoing.approvals import get_held_mail
    from postroom.surfaces.cli.output import show

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
    from postroom.operations.outgoing.approvals import get_held_mail
    from postroom.surfaces.cli.backends import with_whole_ids

    arguments = await with_whole_ids(at, {"message_id": message_id})
    return await at.body(get_held_mail, arguments)
