"""Messages in the words of the command line: options and commands, not arguments and operations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache

from postroom.surfaces.cli.commands import COMMANDS, Bound

Options = Mapping[str, str]
"""The option for each argument of an operation."""

_VERBS = "give|drop|without|repeat|leave out|leave|set|pass|add|use|needs|such as|mean"
_WORD = re.compile(r"(?<![\w/.@-])[a-z]+(?:_[a-z]+)+(?![\w@/-])")


def in_our_words(text: str, options: Options) -> str:
    """A message with options for arguments, and commands for operations and endpoints."""
    if " /v1/" in text:
        from postroom.surfaces.rest.client import operations_named  # late, for a quick start

        text = operations_named(text)
    return _with_commands(_with_options(text, options))


def field_in_our_words(field: str, options: Options) -> str:
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
    begins = rf"^{named}(?=: | cannot | must | is required| needs | and )"
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


def _with_commands(text: str) -> str:
    commands = _commands()
    return re.sub(
        r"\w+", lambda word: commands.get(word[0], word[0]) if "_" in word[0] else word[0], text
    )


@cache
def _commands() -> dict[str, str]:
    return {
        row.operation.partition(".")[2]: f"`postroom {row.name}`"
        for row in reversed(COMMANDS)
        if isinstance(row, Bound)
    }
