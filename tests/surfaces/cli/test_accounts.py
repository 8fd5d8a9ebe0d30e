"""Accounts on the command line: passwords are prompted for, and never shown."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.providers.accounts.remote_mailboxes import open_remote
from tests.servers.dovecot import PASSWORD
from tests.servers.postroom import create_store, environment, forked_command


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def run(data: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    env = environment(data, {"POSTROOM_SECRETS": "file"})
    return subprocess.run(
        forked_command("-o", "json", *words),
        env=env,
        input=given,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


async def test_an_account_is_added_read_checked_and_removed(tmp_path: Path) -> None:
    async with open_remote("imap") as remote:
        data = tmp_path / "data"
        create_store(data)
        from tests.mails import mail

        remote.deliver(mail("Hello from IMAP"))
        given = remote.arguments
        options = [
            *("--address", given["address"], "--user", given["user"], "--host", given["host"]),
            *("--port", str(given["port"]), "--ca-file", given["ca_file"], "--password-stdin"),
        ]
        wrong = run(data, "account", "add", "work", *options, given="wrong-canary\n")
        added = run(data, "account", "add", "work", *options, given=f"{PASSWORD}\n")
        read = run(data, "account", "sync", "work")
        found = run(data, "search", "hello from imap")
        checked = run(data, "account", "check", "work")
        listed = run(data, "account", "list")
        again = run(data, "account", "login", "work", "--password-stdin", given=f"{PASSWORD}\n")
        removed = run(data, "account", "remove", "work")

        assert 8 == wrong.returncode, wrong.stderr
        assert "provider_auth" == json.loads(wrong.stderr)["error"]["code"]
        for ended in (added, read, found, checked, listed, again, removed):
            assert 0 == ended.returncode, ended.stderr
        assert 1 == json.loads(found.stdout)["total"]
        assert json.loads(checked.stdout)["has_push"] is True
        (account,) = json.loads(listed.stdout)["results"]
        assert ("ready", 1) == (account["state"], account["synced"])
        everything = [wrong, added, read, found, checked, listed, again, removed]
        assert not [e for e in everything if "canary" in e.stdout + e.stderr]
        assert not [e for e in everything if PASSWORD in e.stdout + e.stderr]
        assert not [
            p for p in data.rglob("*") if p.is_file() and PASSWORD.encode() in p.read_bytes()
        ]


def test_without_a_terminal_the_password_must_come_from_standard_input(tmp_path: Path) -> None:
    create_store(tmp_path / "data")
    ended = run(tmp_path / "data", "account", "add", "x", "--address", "a@b.example", "--host", "h")

    assert 2 == ended.returncode
    assert "--password-stdin" in ended.stderr


@pytest.mark.parametrize("option", ["--security", "--smtp-security"])
def test_the_option_that_would_send_the_password_in_the_clear_is_named(
    tmp_path: Path, option: str
) -> None:
    create_store(tmp_path / "data")
    server = ["--address", "ana@example.com", "--host", "127.0.0.1", "--smtp-host", "127.0.0.1"]

    refused = run(tmp_path / "data", "account", "add", "work", *server, option, "none",
                  "--password-stdin", given="x\n")  # fmt: skip

    assert 2 == refused.returncode
    name = option.removeprefix("--").replace("-", "_")
    assert json.loads(refused.stderr)["error"]["message"].startswith(f"{name}: none sends")
