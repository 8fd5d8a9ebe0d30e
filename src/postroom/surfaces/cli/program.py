"""The program `postroom`: commands are loaded when they are used, errors become exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

import click

from postroom.config.loading import preference
from postroom.errors import InvalidInput, MailError, StorageFull
from postroom.surfaces.cli.command_table import (
    COMMANDS,
    TOP_LEVEL_HELP,
    OperationCommand,
    PlainCommand,
)
from postroom.surfaces.cli.exit_codes import (
    BROKEN_PIPE,
    EXIT_CODES,
    INTERRUPTED,
    OK,
    explain,
    unchanged_words,
)
from postroom.surfaces.cli.logs import start_logging
from postroom.surfaces.cli.session import Session

_ROWS = {row.name: row for row in COMMANDS}


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Store an option that may be given before or after the command; the last one wins."""
    session = ctx.find_object(Session)
    if session is None:
        return
    options = (one for one in ctx.command.params if isinstance(one, click.Option))
    session.options = {str(one.name): max(one.opts, key=len) for one in options}
    if value is not None and param.name is not None:
        setattr(session, param.name, value)


def _option(*names: str, **more: Any) -> click.Option:
    """An option whose value goes to the session."""
    return click.Option(names, expose_value=False, callback=_remember, **more)


def _show_version(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        from postroom import __version__

        print(f"postroom {__version__}")
        ctx.exit()


def everywhere() -> list[click.Parameter]:
    """The options that every command takes."""
    formats = click.Choice(["table", "json"])
    return [
        _option("--data", metavar="FOLDER", help="The data folder.", is_eager=True),
        _option("-o", "--output", type=formats, help="The output format.", is_eager=True),
        _option("--wide", is_flag=True, default=None, help="Show every column in full."),
    ]


def suggestions(name: str, known: Collection[str]) -> list[str]:
    """The likely meanings of a mistyped word, best first."""
    from difflib import get_close_matches

    longer = [one for one in known if len(name) > 2 and one.startswith(name)]
    return list(dict.fromkeys([*longer[:3], *get_close_matches(name, known, n=2, cutoff=0.7)]))


class Commands(click.Group):
    """A group that suggests commands for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand:
            raise click.UsageError(_no_such_command(ctx, args[0], args[1:]), ctx) from None


def _no_such_command(ctx: click.Context, word: str, rest: list[str]) -> str:
    """The likely commands: of this group, or of another that has this word."""
    group = f"{ctx.info_name} " if ctx.parent is not None else ""
    of_group = [name for name in [*_ROWS, *TOP_LEVEL_HELP] if name.startswith(group)]
    names = list(dict.fromkeys(name.removeprefix(group).split()[0] for name in of_group))
    close = [group + name for name in suggestions(word, names)]
    if not close and not group:
        close = [name for name in _ROWS if name.endswith(f" {word}")]
        close = [name for name in close if rest and name.startswith(rest[0])] or close
    said = f"no such command {group}{word}"
    if not close:
        return said
    return f"{said}; did you mean {' or '.join(f'`postroom {name}`' for name in close[:3])}?"


class CommandGroup(Commands):
    """A group of commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        prefix = f"{self.name} "
        return [name.removeprefix(prefix) for name in _ROWS if name.startswith(prefix)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        row = _ROWS.get(f"{self.name} {name}")
        return _load(row, name) if row else None


class Program(Commands):
    """The top level: it lists the commands without importing them."""

    def invoke(self, ctx: click.Context) -> Any:
        start_logging()
        return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TOP_LEVEL_HELP)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in TOP_LEVEL_HELP:
            return None
        if row := _ROWS.get(name):
            return _load(row, name)
        return CommandGroup(name, help=TOP_LEVEL_HELP[name], params=everywhere())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(TOP_LEVEL_HELP.items()))


def _load(row: OperationCommand | PlainCommand, name: str) -> click.Command:
    if isinstance(row, PlainCommand):
        name, _, attribute = row.import_path.partition(":")
        module = import_module(f"postroom.surfaces.cli.commands.{name}")
        command: click.Command = getattr(module, attribute)
    else:
        from postroom.surfaces.cli.options import bind

        command = bind(row, name)
    if isinstance(row, PlainCommand) and preference("_POSTROOM_COMPLETE"):
        from postroom.surfaces.cli.options import attach

        attach(command.params)
    known = {param.name for param in command.params}
    command.params += [param for param in everywhere() if param.name not in known]
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])
    return command


program = Program(
    "postroom",
    help="Postroom: a mail server for AI agents.",
    params=[
        *everywhere(),
        _option("--url", metavar="URL", help="Use this server instead of a data folder."),
        _option(
            "--key",
            metavar="KEY",
            help="The key for --url. Other users of this machine can see it; prefer --key-file.",
        ),
        _option("--key-file", metavar="FILE", help="A file with the key for --url."),
        _option(
            "--traceback",
            "shows_traceback",
            is_flag=True,
            default=None,
            help="Show where an internal error happened.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_version,
            help="Show the version.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    session, out = Session(unchanged=unchanged_words(given)), sys.stdout
    _never_fail_to_print()
    try:
        code = program.main(given, prog_name="postroom", standalone_mode=False, obj=session)
        sys.stdout.flush()
    except MailError as error:
        return explain(error, as_json=session.as_json, options=session.words)
    except click.ClickException as error:
        if _asks_for_json(given):
            session.output = "json"
        return _explain_usage(error, session)
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


def _explain_usage(error: click.ClickException, session: Session) -> int:
    ctx = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message())
        return EXIT_CODES["invalid_input"]
    words = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        words = _no_such_option(error.option_name, ctx)
    hint = f" (see `{ctx.command_path} --help`)" if ctx is not None else ""
    return explain(InvalidInput(words + hint), as_json=session.as_json)


def _no_such_option(name: str, ctx: click.Context | None) -> str:
    """The problem with an option: its position, or its spelling."""
    if ctx is not None and any(name in param.opts for param in program.params):
        command = ctx.command_path.partition(" ")[2]
        return f"{name} goes before the command: `postroom {name} … {command}`"
    known = [opt for p in ctx.command.params for opt in p.opts] if ctx is not None else []
    close = [option for option in suggestions(name, known) if option.startswith("--")]
    return f"no such option {name}" + (f"; did you mean {' or '.join(close)}?" if close else "")


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
