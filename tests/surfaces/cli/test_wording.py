"""Messages name options and commands, not arguments and operations of other surfaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom.surfaces.cli.command_table import COMMANDS, OperationCommand, operation_at
from postroom.surfaces.cli.exit_codes import field_in_cli_words, in_cli_words
from postroom.surfaces.cli.options import bind, fields_of, spellings

SOURCE = Path(postroom.__file__).parent
RAISED = {
    "InvalidInput", "Conflict", "NotFound", "Forbidden", "TooLarge", "FeatureDisabled",
    "ValueError", "one_of", "not_both", "change_of", "Constraint",
}  # fmt: skip
OTHER_SURFACES = {"agent", "imap", "bulk_changes.py", "inbound.py", "receipts.py"}
OPTIONS = {
    name: option
    for row in COMMANDS
    if isinstance(row, OperationCommand)
    for name, option in spellings(fields_of(operation_at(row.operation).request, row.plain)).items()
}
OPERATIONS = {
    row.operation.rpartition(".")[2] for row in COMMANDS if isinstance(row, OperationCommand)
}


def messages() -> Iterator[str]:
    """The text of every error that an operation may raise, with … for values."""
    for path in [p for f in ("operations", "sending", "calls") for p in (SOURCE / f).rglob("*.py")]:
        if OTHER_SURFACES & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "id", None)
            if isinstance(node, ast.Call) and name in RAISED:
                yield from (text for part in node.args if " " in (text := _text(part)))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    return ""


def test_no_message_of_an_operation_names_an_argument_or_an_operation():
    left = []
    for text in messages():
        said = in_cli_words(text, OPTIONS)
        words = set(re.findall(r"(?<![\w-])[a-z]+(?:_[a-z]+)+", said))
        if words & (OPTIONS.keys() | OPERATIONS) or re.search(r"[a-z]=(true|false)\b", said):
            left.append(said)

    assert [] == left
    assert 100 < sum(1 for _ in messages())


SEARCH = {"q": "--q", "from": "--from", "limit": "--limit", "offset": "--offset", "mode": "--mode",
          "cursor": "--cursor", "inbox_id": "--inbox-id", "labels": "--label", "sort": "--sort",
          "mailbox": "--mailbox", "force": "--force", "to": "--to", "name": "--name"}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("delete it with force=true", "delete it with --force"),
        ("or force=false.", "or --no-force."),
        ('use mode="words" or mode=hybrid', "use --mode words or --mode hybrid"),
        ("mailbox=* to include Trash", "--mailbox '*' to include Trash"),
        ("limit: must be 1", "--limit: must be 1"),
        ("to[0]: 'ana' is no address", "--to[0]: 'ana' is no address"),
        ("such as q, from, labels or inbox_id", "such as --q, --from, --label or --inbox-id"),
        (
            "cursor cannot be combined with offset; drop one",
            "--cursor cannot be combined with --offset; drop one",
        ),
        ("give `to`, not 7", "give `--to`, not 7"),
        ("list_inboxes shows those", "`postroom inbox list` shows those"),
        ("download GET /v1/inboxes/{inbox_id}", "download `postroom inbox show`"),
        ("GET /v1/labels lists them", "`postroom label list` lists them"),
        # Words that are also names of arguments are kept.
        ("reply to the mail from Ana", "reply to the mail from Ana"),
        ("over the limit of your name", "over the limit of your name"),
        ("no inbox a_to@from.example", "no inbox a_to@from.example"),
        ("a=b and x_limit=3", "a=b and x_limit=3"),
    ],
)
def test_arguments_are_distinguished_from_words(said, meant):
    assert meant == in_cli_words(said, SEARCH)


def test_the_place_of_a_problem_names_the_option():
    options = {"attachments": "--attach", "body_text": "--text"}

    assert "--attach[0].filename" == field_in_cli_words("attachments[0].filename", options)
    assert "--text" == field_in_cli_words("body_text", options)
    assert "other" == field_in_cli_words("other", options)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("inbox delete bo@postroom.localhost", "delete it with --force"),
        ("search --limit 0", "--limit: must be"),
        ("message list", "(--inbox-id or --thread-id)"),
        ("search --mode hybrid --from x", "needs --q"),
        ("send --to a@b.example --subject x", "--text or --html"),
        ("message show inb_x", "`postroom "),
    ],
)
def test_text_output_names_options_and_json_arguments(postroom, inbox, receive, words, told):
    from tests.mails import mail

    receive(mail())
    refused = postroom(*words.split())
    as_json = postroom(*words.split(), "-o", "json")

    assert told in refused.err
    assert "--" not in as_json.error["message"]


def test_a_hint_names_options(postroom, inbox):
    assert "try --mode words" in postroom("search", "two unknown words").err


@pytest.mark.parametrize(
    "row", [row for row in COMMANDS if isinstance(row, OperationCommand)], ids=lambda row: row.name
)
def test_no_help_names_an_operation_or_an_argument(row: OperationCommand) -> None:
    command = bind(row, row.name.rpartition(" ")[2])
    helps = [getattr(p, "help", None) or "" for p in command.params if p.name != "rule_yaml"]
    words = {word for text in (command.help or "", *helps) for word in re.findall(r"[a-z_]+", text)}
    known = spellings(fields_of(operation_at(row.operation).request, row.plain))

    assert set() == {word for word in words if "_" in word} & (known.keys() | OPERATIONS)


NAMES = sorted({name for name in OPTIONS.keys() | OPERATIONS if "_" in name})


def test_an_error_does_not_change_a_name_in_a_value(postroom, inbox):
    commands = [("memory", "show"), ("memory", "delete"), ("label", "delete"), ("message", "show")]
    changed = [
        refused.err
        for number, name in enumerate(NAMES)
        if f" {name}" not in (refused := postroom(*commands[number % 4], name)).err
    ]

    assert [] == changed
