"""Logins in the keyring of the operating system, on a session bus for the test."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.mails import mail
from tests.providers.accounts.remote_mailboxes import open_remote
from tests.servers.dovecot import PASSWORD
from tests.servers.keyring import unlocked_keyring
from tests.servers.postroom import create_store, environment, forked_command


async def test_a_password_is_kept_in_the_keyring_and_nowhere_else(tmp_path: Path) -> None:
    data = tmp_path / "data"
    create_store(data)

    def run(own: dict[str, str], *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        env = {**environment(data, {"POSTROOM_SECRETS": "keyring"}), **own}
        line = forked_command("-o", "json", *words)
        return subprocess.run(
            line, env=env, input=given, capture_output=True, text=True, timeout=120, check=False
        )

    async with open_remote("imap") as remote:
        remote.deliver(mail("Hello"))
        given = remote.arguments
        options = [
            *("--address", given["address"], "--user", given["user"], "--host", given["host"]),
            *("--port", str(given["port"]), "--ca-file", given["ca_file"], "--password-stdin"),
        ]
        with unlocked_keyring(tmp_path / "desktop") as own:
            added = run(own, "account", "add", "work", *options, given=f"{PASSWORD}\n")
            read = run(own, "account", "sync", "work")
            found = run(own, "search", "hello")
            written = contents(data)
            removed = run(own, "account", "remove", "work")
            again = run(own, "account", "add", "work", *options, given="wrong\n")
        nowhere = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}
        nobody = run(nowhere, "account", "add", "work", *options, given=f"{PASSWORD}\n")

    for ended in (added, read, found, removed):
        assert 0 == ended.returncode, ended.stderr
    assert 1 == json.loads(found.stdout)["total"]
    assert [] == [name for name in written if name.endswith(".sealed")]
    assert [] == [name for name, content in written.items() if PASSWORD.encode() in content]
    assert 8 == again.returncode
    assert 0 != nobody.returncode
    assert "POSTROOM_SECRETS=file" in nobody.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
