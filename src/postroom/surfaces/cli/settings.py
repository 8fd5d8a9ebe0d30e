"""What is set, what this is, and what makes a shell complete it."""

from __future__ import annotations

import click

from postroom import __version__
from postroom.config import SETTINGS
from postroom.surfaces.cli.session import Session

_NAMES = "\n".join(f"{setting.variable}: {setting.summary}" for setting in SETTINGS)


@click.command(
    help="Show every setting and where it comes from. "
    "The command line wins over the environment, that over postroom.toml, that over the default."
    f"\n\n\b\n{_NAMES}"
)
@click.pass_obj
def config(session: Session) -> None:
    from postroom.surfaces.cli.streams import write_json
    from postroom.surfaces.cli.tables import table

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
        from postroom.surfaces.cli.streams import write_json

        write_json({"version": __version__})
    else:
        print(f"postroom {__version__}")


@click.command(
    help="Print what makes your shell complete commands, such as "
    '`eval "$(postroom completion bash)"` in ~/.bashrc.'
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    from postroom.surfaces.cli.program import program

    found = get_completion_class(shell)
    assert found is not None
    print(found(program, {}, "postroom", "_POSTROOM_COMPLETE").source())
