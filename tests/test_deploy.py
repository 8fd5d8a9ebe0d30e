"""What runs Postroom elsewhere names settings and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.config import SETTINGS
from postroom.surfaces.cli.commands import TOP

FOLDER = Path(__file__).parents[1] / "deploy"
FILES = sorted(FOLDER.iterdir())


def test_there_are_files_to_look_at() -> None:
    assert {"Dockerfile", "compose.yaml", "postroom.service"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_setting_that_is_named_exists(file: Path) -> None:
    named = set(re.findall(r"POSTROOM_[A-Z_]+", file.read_text()))

    assert set() == named - {setting.variable for setting in SETTINGS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_command_that_is_started_exists(file: Path) -> None:
    started = re.findall(r'(?:bin/postroom |command: \["|CMD \[")([a-z]+)', file.read_text())

    assert set() == set(started) - {*TOP, "server", "python"}
