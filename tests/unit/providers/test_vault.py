"""Secrets in files: encrypted, private, replaced in one step."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.errors import MailError
from postroom.providers.vault.files import FileVault
from postroom.providers.vault.keyrings import open_vault

SECRET = {"password": "canary-correct-horse"}


def test_a_secret_comes_back_and_can_be_removed(tmp_path: Path) -> None:
    vault = FileVault(tmp_path / "secrets")
    vault.write("work", SECRET)

    assert SECRET == FileVault(tmp_path / "secrets").read("work")
    vault.remove("work")
    vault.remove("work")
    assert vault.read("work") is None


def test_nothing_in_the_folder_shows_it_to_others(tmp_path: Path) -> None:
    vault = FileVault(tmp_path / "secrets")
    vault.write("work", SECRET)

    files = [path for path in (tmp_path / "secrets").iterdir() if path.is_file()]
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in files}
    assert not [path for path in files if b"canary" in path.read_bytes()]


def test_the_secret_of_one_account_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    vault = FileVault(tmp_path / "secrets")
    vault.write("work", SECRET)
    os.replace(tmp_path / "secrets" / "work.sealed", tmp_path / "secrets" / "home.sealed")

    with pytest.raises(MailError, match="postroom account login home"):
        vault.read("home")


def test_without_a_keyring_there_are_files_unless_one_is_demanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.providers.vault.keyrings._usable_backend", lambda: None)

    assert isinstance(open_vault(tmp_path, "auto"), FileVault)
    with pytest.raises(MailError, match="POSTROOM_SECRETS=file"):
        open_vault(tmp_path, "keyring")


WRITER = """
import itertools, sys
from pathlib import Path
from postroom.providers.vault.files import FileVault
vault = FileVault(Path(sys.argv[1]))
for number in itertools.count():
    vault.write("work", {"refresh_token": str(number) * 5000, "number": str(number)})
    print(number, flush=True)
"""
KILLS = int(os.environ.get("KILLS", "4"))


def test_a_kill_while_a_token_is_stored_leaves_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    vault = FileVault(tmp_path)
    chance = random.Random(7)
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            written = [int(writer.stdout.readline()) for _ in range(chance.randint(1, 40))]
            writer.kill()
            written += [int(line) for line in writer.stdout if line.strip().isdigit()]

        kept = vault.read("work")
        assert kept is not None
        assert int(kept["number"]) - written[-1] in (0, 1)
        assert kept["number"] * 5000 == kept["refresh_token"]
