"""Mistyped commands and options get a suggestion; the version is an option, too."""

from __future__ import annotations

import pytest

from postroom import __version__
from postroom.surfaces.cli.command_table import COMMANDS

NAMES = [row.name for row in COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_a_command_with_a_typing_error_is_suggested(postroom, name):
    *group, word = name.split()
    mistyped = word[:1] + word[2:] if len(word) > 4 else word + word[-1]

    refused = postroom(*group, mistyped)

    assert 2 == refused.code
    assert f"`postroom {name}`" in refused.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["mesage", "list"], "`postroom message`"),
        (["lst"], None),
        (["list", "message"], "`postroom message list`"),
        (["mess"], "`postroom message`"),
        (["message", "ls"], None),
        (["xyzzy"], None),
    ],
)
def test_only_similar_commands_are_suggested(postroom, words, meant):
    refused = postroom(*words)

    assert 2 == refused.code
    assert refused.err.startswith("error: no such command ")
    assert meant is None or f"did you mean {meant}?" in refused.err
    assert words != ["xyzzy"] or "did you mean" not in refused.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["search", "--fro", "x"], "--from"),
        (["search", "--limt", "3"], "--limit"),
        (["message", "list", "--inboxid", "x"], "--inbox-id"),
        (["send", "--attachment", "x"], "--attach"),
        (["serve", "--prt", "1"], "--port"),
    ],
)
def test_a_mistyped_option_is_suggested(postroom, words, meant):
    refused = postroom(*words)

    assert 2 == refused.code
    assert "did you mean " in refused.err
    assert meant in refused.err


def test_an_option_of_the_program_says_where_it_goes(postroom):
    refused = postroom("inbox", "list", "--url", "http://127.0.0.1:1")

    assert "--url goes before the command: `postroom --url … inbox list`" in refused.err


def test_the_version_is_an_option_as_well(postroom):
    assert (0, f"postroom {__version__}\n") == (
        postroom("--version").code,
        postroom("--version").out,
    )
