"""`config`, `completion`, `version`, `audit verify` and `reparse`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom import __version__
from postroom.config import SETTINGS
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import Progress, cell, table

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.model.audit import AuditCheck

_NAMES = "\n".join(f"{setting.variable}: {setting.summary}" for setting in SETTINGS)


@click.command(
    help="Show every setting and its origin. "
    "The command line overrides the environment, which overrides postroom.toml."
    f"\n\n\b\n{_NAMES}"
)
@click.pass_obj
def config(session: Session) -> None:
    rows = [(v.setting.variable, v.shown, v.origin) for v in session.configuration().values]
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
    help="Check the whole audit log: that no entry was altered, removed, moved "
    "or truncated. Exits with 1 if there is a problem."
)
@click.pass_obj
def verify(session: Session) -> int:
    found = session.run(lambda app: app.services.store.check_audit())
    session.report(found, lambda: _tell(found))
    return OK if found.is_whole else EXIT_CODES["internal"]


def _tell(found: AuditCheck) -> None:
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
    from postroom.pipeline.reparse import reparse as batches

    version = PARSER_VERSION + everything
    total = await app.services.store.count_outdated(version)
    done = 0
    with Progress("parsing", unit="messages") as progress:
        async for count in batches(app.services, version=version):
            done += count
            progress.tell(done, share=min(done / total, 1.0) if total else None)
    return done
