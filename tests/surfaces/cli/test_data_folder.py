"""A store is created deliberately, and used only by the user who owns it."""

from __future__ import annotations

import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.errors import Conflict, Forbidden
from postroom.surfaces.cli import session
from postroom.surfaces.cli.command_table import COMMANDS, PlainCommand
from postroom.surfaces.cli.program import main
from tests.mails import mail
from tests.servers.postroom import command, environment, forked_command

FREE = {"config", "doctor", "completion", "version", "rule check", "rule test", "migrate"}
"""Commands that do not open the store of --data."""

CREATING = {"serve", "mcp", "import", "restore", "inbox create"}
ARGUMENTS = {
    "account add": ["imap", "--address", "a@example.com", "--host", "imap.example.com"],
    "account login": ["work"],
    "account sync": ["work"],
    "export": ["mail.mbox", "--inbox", "a"],
    "memory export": ["-"],
    "memory import": ["-"],
    "backup": ["backup"],
    "outbox approve": ["msg_1"],
    "outbox reject": ["msg_1"],
    "message receive": ["a@postroom.localhost", "mail.eml"],
}


@pytest.mark.parametrize("name", [r.name for r in COMMANDS if r.name not in {*FREE, *CREATING}])
def test_a_missing_folder_is_an_error_and_not_created(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mail.eml").write_bytes(mail())
    there = tmp_path / "there"
    there.mkdir()
    for folder in (there, tmp_path / "nowhere"):
        code = main(["--data", str(folder), *name.split(), *ARGUMENTS.get(name, [])])

        error = capsys.readouterr().err
        assert (3, True) == (code, f"error: {folder} " in error), error
        assert f"postroom serve --data {folder}" in error
    assert ["mail.eml", "there"] == sorted(path.name for path in tmp_path.iterdir())
    assert [] == list(there.iterdir())


def test_the_commands_that_open_no_store_are_known() -> None:
    names = {row.name for row in COMMANDS}

    assert {*FREE, *CREATING, *ARGUMENTS} <= names
    assert CREATING - {"inbox create"} <= {
        row.name for row in COMMANDS if isinstance(row, PlainCommand)
    }


@pytest.mark.parametrize(
    "words",
    [
        ["inbox", "create", "ana@postroom.localhost"],
        ["import", "mail.eml", "--inbox", "ana@postroom.localhost", "--create"],
        ["mcp"],
    ],
)
def test_a_command_that_creates_a_store_says_so_once(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "mail.eml").write_bytes(mail())
    folder = tmp_path / "new"
    said = []
    for _ in range(2):
        ran = subprocess.run(
            forked_command("--data", str(folder), *words),
            cwd=tmp_path,
            env=environment(folder),
            input=b"",
            capture_output=True,
            check=False,
        )
        said.append(ran.stderr.decode())

    assert f"note: creating a new store in {folder}" in said[0]
    assert "creating" not in said[1]


def test_a_restored_backup_is_a_new_store(postroom, inbox, tmp_path: Path) -> None:
    postroom("backup", tmp_path / "backup")
    ran = postroom("--data", tmp_path / "again", "restore", tmp_path / "backup")

    assert (0, True) == (ran.code, "creating a new store" in ran.err)


OWNERS = {
    # owners of the folder, the database and this process; the named user or None
    (7, 7, 7): None,
    (7, None, 7): None,
    (0, 7, 7): None,
    (0, None, 7): None,
    (8, 7, 7): None,
    (None, None, 7): None,
    (0, 0, 0): None,
    (7, 7, 0): 7,
    (7, None, 0): 7,
    (7, 0, 0): 7,
    (7, 8, 7): 8,
    (7, 0, 7): 0,
    (8, 8, 7): 8,
    (8, None, 7): 8,
    (0, 0, 7): 0,
}


@pytest.mark.parametrize("owners", OWNERS)
def test_only_the_owner_of_a_folder_can_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owners: tuple[int | None, int | None, int]
) -> None:
    of_folder, of_database, me = owners
    uids = {tmp_path: of_folder, tmp_path / "postroom.db": of_database}
    monkeypatch.setattr(session, "_uid", uids.get)
    monkeypatch.setattr(session, "_user", lambda uid: f"user{uid}")
    monkeypatch.setattr(os, "geteuid", lambda: me)
    monkeypatch.setattr(sys, "argv", ["postroom", "mcp", "--key=pk_secret", "pk_secret", "a b"])
    named = OWNERS[owners]
    if named is None:
        session.check_owner(tmp_path)
        return

    with pytest.raises(Forbidden, match=f"belongs to user{named}.*runs as user{me}") as refused:
        session.check_owner(tmp_path)

    told = str(refused.value)
    assert str(tmp_path) in told
    if of_folder == me and me:
        assert f"sudo chown -R user{me} {tmp_path}" in told
    else:
        assert f"`sudo -u user{named} postroom mcp … … 'a b'`" in told
        assert (of_database == me) is (f"chown -R {named} {tmp_path}" in told)


@pytest.mark.may_skip("only root can give a folder to another user")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_root_leaves_nothing_in_the_folder_of_another_user(forked, inbox, data: Path) -> None:
    before = sorted(path.name for path in data.rglob("*"))
    for path in (data, *data.rglob("*")):
        os.chown(path, 54321, 54321)

    for words in (["inbox", "list"], ["serve", "--port", "0"], ["mcp"], ["doctor"]):
        ran = forked(*words)

        assert ran.code, ran
        told = ran.out + ran.err
        assert f"{data} belongs to uid 54321" in told or "postroom.db belongs to uid" in told
        assert "sudo -u '#54321' postroom" in told
    assert before == sorted(path.name for path in data.rglob("*"))
    shutil.rmtree(data)


def test_an_unwritable_folder_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "my data"
    closed.mkdir()
    (tmp_path / "file").write_text("")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, how: path != closed and real(path, how))

    with pytest.raises(Conflict, match=f"{closed} cannot be written to; `chmod u.rwx '{closed}'`"):
        session.check_writable(closed)
    with pytest.raises(Conflict, match=r"below cannot be created; `chmod u.rwx"):
        session.check_writable(closed / "below")
    with pytest.raises(Conflict, match="file is a file; choose a folder with --data"):
        session.check_writable(tmp_path / "file")


def test_a_read_only_file_system_is_distinguished_from_missing_rights() -> None:
    read_only = next(
        (Path(p) for p in ("/sys", "/proc/sys") if os.statvfs(p).f_flag & os.ST_RDONLY), None
    )
    if read_only is None:
        words = session._not_writable(Path("/proc"), Path("/proc"), "cannot be written to")
        assert "chmod" in words or "belongs to" in words
        return
    with pytest.raises(Conflict, match="its file system is read-only; mount it read-write"):
        session.check_writable(read_only)


def on_terminal(*words: str, data: Path) -> str:
    """What a command prints on a terminal."""
    master, slave = pty.openpty()
    ran = subprocess.Popen(
        command(*words), env=environment(data), stdout=slave, stderr=subprocess.DEVNULL
    )
    os.close(slave)
    ran.wait(120)
    said = os.read(master, 65_536).decode()
    os.close(master)
    return said


def test_a_new_key_of_the_owner_goes_to_a_terminal_or_to_a_private_file(
    forked, inbox, data: Path
) -> None:
    for words in (["key", "reset"], ["key", "reset", "-o", "json"]):
        ran = forked(*words)
        path = data / "owner.key"
        key = path.read_text().strip()

        assert (0, True, False) == (ran.code, str(path) in ran.out, "pk_" in ran.out + ran.err)
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert key.startswith("pk_")
    shown = on_terminal("key", "reset", data=data).strip()

    assert shown.startswith("pk_")
    assert shown == path.read_text().strip()
