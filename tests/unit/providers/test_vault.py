"""Secrets in files: encrypted, private, and replaced atomically."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.errors import MailError
from postroom.ports.provider import Secret
from postroom.providers.vault import FileVault, open_vault

SECRET = {"password": "canary-correct-horse"}


def test_a_secret_can_be_read_and_removed(tmp_path: Path) -> None:
    vault = FileVault(tmp_path / "secrets")
    vault.write("work", SECRET)

    assert SECRET == FileVault(tmp_path / "secrets").read("work")
    vault.remove("work")
    vault.remove("work")
    assert vault.read("work") is None


def test_the_files_are_private_and_encrypted(tmp_path: Path) -> None:
    vault = FileVault(tmp_path / "secrets")
    vault.write("work", SECRET)

    files = [path for path in (tmp_path / "secrets").iterdir() if path.is_file()]
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in files}
    assert not [path for path in files if b"canary" in path.read_bytes()]


def test_a_secret_is_bound_to_its_account(tmp_path: Path) -> None:
    vault = FileVault(tmp_path / "secrets")
    vault.write("work", SECRET)
    os.replace(tmp_path / "secrets" / "work.sealed", tmp_path / "secrets" / "home.sealed")

    with pytest.raises(MailError, match="postroom account login home"):
        vault.read("home")


def test_without_a_keyring_there_are_files_unless_one_is_demanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.providers.vault._usable_backend", lambda: None)

    assert isinstance(open_vault(tmp_path, "auto"), FileVault)
    with pytest.raises(MailError, match="POSTROOM_SECRETS=file"):
        open_vault(tmp_path, "keyring")


WRITER = """
import itertools, sys
from pathlib import Path
from postroom.providers.vault import FileVault
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

        files = vault.read("work")
        assert files is not None
        assert int(files["number"]) - written[-1] in (0, 1)
        assert files["number"] * 5000 == files["refresh_token"]


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere" / "vault.key"


def filled(folder: Path, count: int = 3) -> dict[str, dict[str, str]]:
    """A vault of an earlier version: the key is beside the encrypted files."""
    secrets = {f"work{n}": {"password": f"canary-{n}"} for n in range(count)}
    for name, secret in secrets.items():
        FileVault(folder).write(name, secret)
    assert (folder / "key").exists()
    return secrets


def contents(vault: FileVault, names: Iterable[str]) -> dict[str, Secret | None]:
    return {name: vault.read(name) for name in names}


def test_the_key_is_moved_to_the_configured_file(tmp_path: Path, apart: Path) -> None:
    folder = tmp_path / "secrets"
    secrets = filled(folder)
    key = (folder / "key").read_bytes()

    vault = open_vault(folder, "file", apart)
    assert secrets == contents(vault, secrets)  # type: ignore[arg-type]
    assert (key, 0o600) == (apart.read_bytes(), stat.S_IMODE(apart.stat().st_mode))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not (folder / "key").exists()
    assert not [path for path in files if key in path.read_bytes()]


def test_an_existing_key_file_is_used(tmp_path: Path, apart: Path) -> None:
    folder = tmp_path / "secrets"
    secrets = filled(folder)
    apart.write_text("ab" * 32 + "\n")

    assert secrets == contents(open_vault(folder, "file", apart), secrets)  # type: ignore[arg-type]
    assert not (folder / "key").exists()
    assert "ab" * 32 + "\n" == apart.read_text()


def test_without_its_key_nothing_is_encrypted_with_a_new_one(tmp_path: Path, apart: Path) -> None:
    folder = tmp_path / "secrets"
    filled(folder)
    open_vault(folder, "file", apart)

    for vault in (open_vault(folder, "file"), open_vault(folder, "file", apart.with_name("x"))):
        for use in (lambda v=vault: v.read("work0"), lambda v=vault: v.write("new", SECRET)):
            with pytest.raises(MailError, match="POSTROOM_VAULT_KEY_FILE"):
                use()
    assert {"vault.key"} == {path.name for path in apart.parent.iterdir()}
    assert not (folder / "key").exists()


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33, b"g" * 64, b"ab" * 31])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, apart: Path, content: bytes) -> None:
    apart.write_bytes(content)

    with pytest.raises(MailError, match="holds no key"):
        open_vault(tmp_path / "secrets", "file", apart).write("work", SECRET)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "secrets")
    missing = tmp_path / "nowhere" / "key"

    with pytest.raises(MailError, match="nowhere"):
        open_vault(tmp_path / "secrets", "file", missing)
    assert SECRET.keys() == (FileVault(tmp_path / "secrets").read("work0") or {}).keys()


MOVER = """
import sys, time
from pathlib import Path
from postroom.providers import vault
slow = vault.os.fsync
vault.os.fsync = lambda handle: (slow(handle), time.sleep(0.005))
print("ready", flush=True)
vault.FileVault(Path(sys.argv[1]), Path(sys.argv[2])).move_key()
print("done", flush=True)
"""


@pytest.mark.parametrize("has_other", [False, True])
def test_a_kill_while_the_key_is_moved_loses_no_secret(
    tmp_path: Path, apart: Path, has_other: bool
) -> None:
    chance = random.Random(11)
    for turn in range(2 * KILLS):
        folder = tmp_path / f"secrets{turn}"
        secrets = filled(folder, 6)
        apart.unlink(missing_ok=True)
        if has_other:
            apart.write_bytes(os.urandom(32))
        arguments = [sys.executable, "-c", MOVER, str(folder), str(apart)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as mover:
            assert mover.stdout is not None
            assert "ready\n" == mover.stdout.readline()
            with suppress(subprocess.TimeoutExpired):
                mover.wait(chance.uniform(0, 0.08 if has_other else 0.02))
            mover.kill()

        vault = open_vault(folder, "file", apart)
        assert secrets == contents(vault, secrets)  # type: ignore[arg-type]
        assert not (folder / "key").exists()


def test_concurrent_starts_move_the_key_once(tmp_path: Path, apart: Path) -> None:
    folder = tmp_path / "secrets"
    secrets = filled(folder, 6)
    apart.write_bytes(os.urandom(32))
    arguments = [sys.executable, "-c", MOVER, str(folder), str(apart)]
    movers = [subprocess.Popen(arguments, stdout=subprocess.PIPE) for _ in range(3)]
    for mover in movers:
        assert b"done" in mover.communicate(timeout=60)[0]

    assert secrets == contents(open_vault(folder, "file", apart), secrets)  # type: ignore[arg-type]
