"""The table of commands is complete, fast to load, and matches the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import click
import pytest

from postroom import operations
from postroom.calls.operation import Operation
from postroom.calls.request import argument_names
from postroom.surfaces.cli.command_table import (
    COMMANDS,
    TOP_LEVEL_HELP,
    OperationCommand,
    operation_at,
)
from postroom.surfaces.cli.program import program
from tests.page_operations import ON_PAGES

DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
MODULES = sorted(
    module.name
    for module in walk_packages(operations.__path__, "postroom.operations.")
    if not module.name.startswith(("postroom.operations.agent", "postroom.operations.imap"))
)
OTHER_NAMES = {
    *("send_email", "send_email_with_attachments", "receive_posting", "find_ids"),
    *ON_PAGES,
}
"""Operations without a command: MCP aliases of `send`, calls of providers and pages, short ids."""

WITH_A_PERSON = {
    *("add_account", "log_in_account", "sync_account"),
    *("approve_message", "reject_message"),
}
"""Operations with special commands, which are interactive or long-running."""


def load(name: str) -> click.Command:
    command: click.Command | None = program
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return command


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_loads_and_explains_itself(row):
    assert load(row.name).help


@pytest.mark.parametrize(
    "row", [r for r in COMMANDS if isinstance(r, OperationCommand)], ids=lambda r: r.name
)
def test_every_argument_of_the_operation_is_an_option(row):
    options = {option for param in load(row.name).params for option in param.opts}
    unseen = {*dict(row.pin), *row.hide}
    names = [n for n in argument_names(operation_at(row.operation).request) if n not in unseen]
    wanted = {f"--{name.replace('_', '-')}" for name in names}

    assert wanted - options <= {"--attachments"}
    assert "--attachments" not in wanted or {"--attach", "--attach-id"} <= options


def test_every_operation_has_a_command():
    known = {
        value.name
        for name in MODULES
        for value in vars(import_module(name)).values()
        if isinstance(value, Operation)
    }

    bound = {
        operation_at(row.operation).name for row in COMMANDS if isinstance(row, OperationCommand)
    }

    assert known - OTHER_NAMES - WITH_A_PERSON == bound


def test_every_command_is_under_a_name_of_the_top():
    assert list(TOP_LEVEL_HELP) == list(dict.fromkeys(row.name.split()[0] for row in COMMANDS))


def test_the_documentation_lists_exactly_the_commands_there_are():
    documented = re.findall(r"^\| `postroom (.+?)` \|", DOCS, flags=re.MULTILINE)

    assert [_usage(row.name) for row in COMMANDS] == documented


def _usage(name: str) -> str:
    arguments = [p for p in load(name).params if isinstance(p, click.Argument)]
    metavars = [p.metavar or p.name.upper() for p in arguments]
    return " ".join([name, *metavars])


@pytest.mark.parametrize("words", [["--help"], ["version"], ["config"], ["completion", "bash"]])
def test_simple_commands_import_no_large_modules(words):
    code = (
        "import sys; from postroom.surfaces.cli.program import main; "
        f"main({words!r}); heavy = {{'pydantic', 'mcp', 'starlette', 'apsw', 'rich', 'numpy'}}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)


def test_a_shell_completes_commands_and_options(forked):
    env = {"_POSTROOM_COMPLETE": "bash_complete", "COMP_CWORD": "2"}

    commands = forked(COMP_WORDS="postroom message ", **env)
    options = forked(COMP_WORDS="postroom search --has", **env)

    assert "plain,receive" in commands.out.splitlines()
    assert "plain,--has-attachment" in options.out.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(postroom, shell):
    result = postroom("completion", shell)

    assert 0 == result.code
    assert "_POSTROOM_COMPLETE" in result.out
