"""Exit codes, one per kind of error, and error messages on stderr in the words of the command line.

They name options and commands, not arguments and operations.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from postroom.errors import MailError, RateLimited, Unavailable
from postroom.surfaces.cli.command_table import COMMANDS, OperationCommand
from postroom.surfaces.cli.terminal import without_controls, write_json

if TYPE_CHECKING:
    from postroom.model.mail.message import FailedAction
    from postroom.surfaces.cli.session import Session


Options = Mapping[str, str]
"""The option for each argument of an operation."""

_VERBS = "give|drop|without|repeat|leave out|leave|set|pass|add|use|needs|such as|mean"
_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
_WORD = re.compile(r"(?<![\w/.@-])[a-z]+(?:_[a-z]+)+(?![\w@/-])")


def in_cli_words(text: str, options: Options) -> str:
    """A message with options for arguments, and commands for operations and endpoints."""
    if " /v1/" in text:
        from postroom.surfaces.rest.client import operations_named  # late, for a quick start

        text = operations_named(text)
    return _with_commands(_with_options(text, options), options)


def field_in_cli_words(field: str, options: Options) -> str:
    """The place of a problem, such as `attachments[0].filename`: `--attach[0].filename`."""
    name = re.match(r"[a-z_]*", field)
    assert name is not None
    return options.get(name[0], name[0]) + field[name.end() :]


def _with_options(text: str, options: Options) -> str:
    if not options:
        return text
    # Longest first, so that no name is taken for the beginning of another.
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    named = rf"(?P<name>{names})"
    text = re.sub(
        rf"(?<![\w-])\??{named}=(?P<value>\"[^\"]*\"|[\w*@.+-]*\w|\*)",
        lambda found: _with_value(options[found["name"]], found["value"].strip('"')),
        text,
    )
    # A list of arguments, or one where only an argument can stand: names without an underscore are
    # words as well.
    several = rf"(?<![\w-])(?:{names})(?:(?:, | or | and |, or | nor )(?:{names})(?![\w-]))+"
    alone = rf"(?<=[`‘“]){named}(?=[`’”])"
    begins = rf"^{named}(?=(?:\[\d+\])?: | cannot | must | is required| needs | and )"
    after = rf"(?<=\bcombined with ){named}(?![\w-])"
    told = rf"\b(?P<verb>{_VERBS}) {named}(?=$|[.,;:?)]| or | and | too\b| instead\b| out\b)"

    def option(found: re.Match[str]) -> str:
        return found[0].replace(found["name"], options[found["name"]])

    def each(found: re.Match[str]) -> str:
        return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda one: options[one[0]], found[0])

    text = re.sub(several, each, text)
    text = re.sub(told, lambda found: f"{found['verb']} {options[found['name']]}", text)
    for pattern in (alone, begins, after):
        text = re.sub(pattern, option, text)
    return _WORD.sub(lambda found: options.get(found[0], found[0]), text)


def _with_value(option: str, value: str) -> str:
    """`--force` for `force=true`, `--mode words` for `mode=words`."""
    if value == "true":
        return option
    return f"--no-{option[2:]}" if value == "false" else f"{option} {shlex.quote(value)}"


def _with_commands(text: str, options: Options) -> str:
    commands = _commands()
    return _NAME.sub(
        lambda found: found[0] if found[0] in options else commands.get(found[0], found[0]), text
    )


def unchanged_words(arguments: Sequence[str]) -> dict[str, str]:
    """Options that leave the names that the user has written, such as a label, as they are."""
    return {name: name for argument in arguments for name in _NAME.findall(argument)}


@cache
def _commands() -> dict[str, str]:
    return {
        row.operation.rpartition(".")[2]: f"`postroom {row.name}`"
        for row in reversed(COMMANDS)
        if isinstance(row, OperationCommand)
    }


OK = 0
PARTIAL = 10
"""Some of it was done, and the rest is named."""

TIMED_OUT = 124
"""As `timeout` of the GNU core utilities."""

INTERRUPTED = 130
BROKEN_PIPE = 141
EXIT_CODES = {
    "internal": 1,
    "invalid_input": 2,
    "malformed": 2,
    "not_found": 3,
    "feature_disabled": 3,
    "unauthenticated": 4,
    "forbidden": 4,
    "write_disabled": 4,
    "conflict": 5,
    "too_large": 6,
    "too_slow": 7,
    "rate_limited": 7,
    "provider_error": 8,
    "provider_auth": 8,
    "provider_timeout": 8,
    "unavailable": 7,
    "storage_full": 9,
}
"""From error codes to exit codes. They are stable: scripts rely on them."""


def explain(error: MailError, *, as_json: bool, options: Options | None = None) -> int:
    """Print an error on stderr, in the words of these options, and return its exit code."""
    if as_json:
        _write_json(error)
    else:
        _write(_lines(error, options or {}))
    return EXIT_CODES[error.code]


def explain_failures(failed: Sequence[FailedAction], session: Session) -> int:
    """Print the failures of an action; the first one decides the exit code."""
    if session.as_json:
        from postroom.surfaces.to_json import with_clean_text

        body: dict[str, Any] = {"error": {"code": failed[0].code, "message": failed[0].message}}
        is_untrusted = failed[0].code.startswith("provider")
        write_json(
            with_clean_text({"untrusted": True, **body}) if is_untrusted else body, sys.stderr
        )
    else:
        _write([in_cli_words(failure.message, session.words) for failure in failed])
    return EXIT_CODES[failed[0].code]


def _write(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"error: {without_controls(line)}", file=sys.stderr)


def _lines(error: MailError, options: Options) -> list[str]:
    problems = error.details.get("problems")
    if not isinstance(problems, list):
        return [in_cli_words(str(error), options)]
    return [_problem_line(problem, options) for problem in problems]


def _problem_line(problem: Mapping[str, Any], options: Options) -> str:
    """One problem as a line; problems in a document keep the words of that document."""
    field, words = problem["field"], str(problem["problem"])
    if "line" in problem:
        return f"{options.get(field, field)}: {words}" if field else words
    words = in_cli_words(words, options)
    return f"{field_in_cli_words(field, options)}: {words}" if field else words


def _write_json(error: MailError) -> None:
    from postroom.surfaces.to_json import mark_untrusted, to_json

    body: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.details:
        body["details"] = to_json(error.details)
    if isinstance(error, (RateLimited, Unavailable)):
        body["retry_after"] = error.retry_after
    write_json(mark_untrusted(error, {"error": body}), sys.stderr)
