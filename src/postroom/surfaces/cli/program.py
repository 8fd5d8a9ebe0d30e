"""The program `postroom`: commands are loaded when they are used, errors end in exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from postroom.errors import InvalidInput, MailError, StorageFull
from postroom.surfaces.cli.commands import COMMANDS, TOP, Bound, Own
from postroom.surfaces.cli.exits import BROKEN_PIPE, EXIT_CODES, INTERRUPTED, OK, explain
from postroom.surfaces.cli.session import Session

_ROWS = {row.name: row for row in COMMANDS}


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option that stands before or after the command; the last one counts."""
    if value is not None and param.name is not None:
        setattr(ctx.find_object(Session), param.name, value)


def everywhere() -> list[click.Parameter]:
    """The options that every command takes."""
    return [
        click.Option(
            ["--data"],
            metavar="FOLDER",
            help="The data folder.",
            expose_value=False,
            is_eager=True,
            callback=_remember,
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(["table", "json"]),
            help="How to show the answer.",
            expose_value=False,
            is_eager=True,
            callback=_remember,
        ),
    ]


class Family(click.Group):
    """A group whose commands stand in the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        prefix = f"{self.name} "
        return [name.removeprefix(prefix) for name in _ROWS if name.startswith(prefix)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        row = _ROWS.get(f"{self.name} {name}")
        return _load(row, name) if row else None


class Program(click.Group):
    """The top: it says what there is without importing any of it."""

    def invoke(self, ctx: click.Context) -> Any:
        from postroom.surfaces.cli.logs import start_logging

        start_logging()
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TOP)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in TOP:
            return None
        row = _ROWS.get(name)
        return _load(row, name) if row else Family(name, help=TOP[name], params=everywhere())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(TOP.items()))


def _load(row: Bound | Own, name: str) -> click.Command:
    if isinstance(row, Own):
        module, _, attribute = row.place.partition(":")
        command: click.Command = getattr(
            import_module(f"postroom.surfaces.cli.{module}"), attribute
        )
    else:
        from postroom.surfaces.cli.binding import bind

        command = bind(row, name)
    known = {param.name for param in command.params}
    command.params += [param for param in everywhere() if param.name not in known]
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])
    return command


program = Program(
    "postroom",
    help="Postroom: the mail room for AI agents.",
    params=[
        *everywhere(),
        click.Option(
            ["--traceback", "shows_traceback"],
            is_flag=True,
            default=None,
            help="Show where an internal error happened.",
            expose_value=False,
            callback=_remember,
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    session, out = Session(), sys.stdout
    _never_fail_to_print()
    try:
        code = program.main(given, prog_name="postroom", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except MailError as error:
        return explain(error, as_json=session.as_json)
    except click.ClickException as error:
        return _explain_usage(error, as_json=session.as_json or _asks_for_json(given))
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _stop_writing()
    except SystemExit:
        # When the pipe breaks inside a command, click puts a silent stdout in place and leaves.
        if sys.stdout is out:
            raise
        return _stop_writing()
    except OSError as error:
        return _explain_system(error, session)
    except Exception as error:  # noqa: BLE001  at the door, a bug ends in words too
        return _explain_bug(error, session)
    return code if isinstance(code, int) else OK


def _never_fail_to_print() -> None:
    """Show what the locale cannot write as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _explain_usage(error: click.ClickException, *, as_json: bool) -> int:
    ctx = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message())
        return EXIT_CODES["invalid_input"]
    hint = f" (see `{ctx.command_path} --help`)" if ctx is not None else ""
    return explain(InvalidInput(error.format_message().rstrip(".") + hint), as_json=as_json)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """What was asked for when the arguments could not even be read."""
    text = "\0".join(arguments)
    return any(way in text for way in ("-o\0json", "-ojson", "--output\0json", "--output=json"))


def _stop_writing() -> int:
    """Whoever read our output has gone: say nothing more, also at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _explain_system(error: OSError, session: Session) -> int:
    import errno

    where = f"{error.filename}: " if error.filename else ""
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else MailError
    return explain(kind(f"{where}{error.strerror or error}"), as_json=session.as_json)


def _explain_bug(error: Exception, session: Session) -> int:
    if session.shows_traceback:
        import traceback

        traceback.print_exception(error)
    return explain(
        MailError(
            f"an error of ours: {type(error).__name__}: {error}; "
            "`postroom --traceback …` shows where it happened"
        ),
        as_json=session.as_json,
    )
