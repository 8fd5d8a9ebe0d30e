"""`config`, `completion`, `version`, `audit verify` and `reparse`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from postroom import __version__
from postroom.config import SETTINGS
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import Progress, cell, write_json

_NAMES = "\n".join(f"{setting.variable}: {setting.summary}" for setting in SETTINGS)


@click.command(
    help="Show every setting and its origin. "
    "The command line overrides the environment, which overrides postroom.toml."
    f"\n\n\b\n{_NAMES}"
)
@click.pass_obj
def config(session: Session) -> None:
    from postroom.surfaces.cli.terminal import table, write_json

    values = session.configuration().values
    if session.as_json:
        write_json({v.setting.variable: {"value": v.shown, "origin": v.origin} for v in values})
    else:
        table(
            ("setting", "value", "origin"),
            [(v.setting.variable, v.shown, v.origin) for v in values],
        )


@click.command(help="Show the version.")
@click.pass_obj
def version(session: Session) -> None:
    if session.as_json:
        from postroom.surfaces.cli.terminal import write_json

        write_json({"version": __version__})
    else:
        print(f"postroom {__version__}")


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


if TYPE_CHECKING:
    from postroom.app import App
    from postroom.model.audit import AuditCheck


@click.command(
    help="Check the whole audit log: that no entry was altered, removed, moved "
    "or truncated. Exits with 1 if there is a problem."
)
@click.pass_obj
def verify(session: Session) -> int:
    found = session.run(_check)
    if session.as_json:
        from postroom.surfaces.to_json import to_json  # slow to import

        write_json(to_json(found))
    else:
        for problem in found.problems:
            print(f"problem: {cell(problem)}")
        verdict = "no problems" if found.is_whole else f"{len(found.problems)} problems"
        print(f"{found.entries} entries checked: {verdict}")
    return OK if found.is_whole else EXIT_CODES["internal"]


async def _check(app: App) -> AuditCheck:
    return await app.services.store.check_audit()


if TYPE_CHECKING:
    from postroom.app import App


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of messages that were parsed again."""

    reparsed: int


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
    outcome = session.run(lambda app: read_again(app, everything=everything))
    if session.as_json:
        from postroom.surfaces.to_json import to_json  # slow to import

        write_json(to_json(outcome))
    else:
        print(f"{outcome.reparsed} messages parsed again")


async def read_again(app: App, *, everything: bool) -> Outcome:
    """Parse all messages that an older parser has parsed."""
    from postroom.mail.message import PARSER_VERSION
    from postroom.pipeline.reparse import reparse as batches

    version = PARSER_VERSION + everything
    total = await app.services.store.count_outdated(version)
    done = 0
    with Progress("parsing", unit="messages") as progress:
        async for count in batches(app.services, version=version):
            done += count
            progress.tell(done, share=min(done / total, 1.0) if total else None)
    return Outcome(done)
