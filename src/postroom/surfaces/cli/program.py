"""The program `postroom`: commands are loaded when they are used, errors become exit codes."""

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
from postroom.surfaces.cli.exit_codes import BROKEN_PIPE, EXIT_CODES, INTERRUPTED, OK, explain
from postroom.surfaces.cli.logs import start_logging
from postroom.surfaces.cli.session import Session

_ROWS = {row.name: row for row in COMMANDS}


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store an option that may be given before or after the command; the last one wins."""
    if value is not None and param.name is not None:
        setattr(ctx.find_object(Session), param.name, value)


def _option(*names: str, **more: Any) -> click.Option:
    """An option whose value goes to the session."""
    return click.Option(names, expose_value=False, callback=_remember, **more)


def everywhere() -> list[click.Parameter]:
    """The options that every command takes."""
    formats = click.Choice(["table", "json"])
    return [
        _option("--data", metavar="FOLDER", help="The data folder.", is_eager=True),
        _option("-o", "--output", type=formats, help="The output format.", is_eager=True),
    ]


class Family(click.Group):
    """A group of commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        prefix = f"{self.name} "
        return [name.removeprefix(prefix) for name in _ROWS if name.startswith(prefix)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        row = _ROWS.get(f"{self.name} {name}")
        return _load(row, name) if row else None


class Program(click.Group):
    """The top level: it lists the commands without importing them."""

    def invoke(self, ctx: click.Context) -> Any:
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
        name, _, attribute = row.place.partition(":")
        module = import_module(f"postroom.surfaces.cli.{name}")
        command: click.Command = getattr(module, attribute)
    else:
        from postroom.surfaces.cli.options import bind

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
        _option(
            "--traceback",
            "shows_traceback",
            is_flag=True,
            default=None,
            help="Show where an internal error happened.",
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
        # When the pipe breaks inside a command, click replaces stdout and exits.
        if sys.stdout is out:
            raise
        return _stop_writing()
    except OSError as error:
        return _explain_system(error, session)
    except Exception as error:  # noqa: BLE001  a bug ends with a message, too
        return _explain_bug(error, session)
    return code if isinstance(code, int) else OK


def _never_fail_to_print() -> None:
    """Print a question mark for what the locale cannot encode."""
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
    """Whether JSON was asked for, when the arguments cannot be parsed."""
    text = "\0".join(arguments)
    return any(way in text for way in ("-o\0json", "-ojson", "--output\0json", "--output=json"))


def _stop_writing() -> int:
    """The reader of the output has closed it: write nothing more, not even at exit."""
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
    message = f"internal error: {type(error).__name__}: {error}"
    fault = MailError(f"{message}; `postroom --traceback …` shows where it happened")
    return explain(fault, as_json=session.as_json)
