"""Secrets on the command line are read from private places, and never shown."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.servers.postroom import command, environment

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def lines(*tools: str) -> bytes:
    """The input of a client that initialises and calls tools without arguments."""
    said = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    for number, tool in enumerate(tools, 1):
        params = {"name": tool, "arguments": {}}
        said.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    return b"".join(json.dumps(one).encode() + b"\n" for one in said)


def is_error(result) -> list[bool]:
    """Whether each call failed, in order."""
    answers = sorted(map(json.loads, result.out.splitlines()), key=lambda answer: answer["id"])
    return [answer["result"]["isError"] for answer in answers[1:]]


@pytest.fixture
def key(postroom, inbox) -> str:
    """A key that may only read."""
    return postroom("key", "create", "--name", "x", "--scope", "read", "-o", "json").json["key"]


@pytest.fixture
def file(tmp_path: Path, key) -> Path:
    path = tmp_path / "agent.key"
    path.write_text(key + "\n")
    path.chmod(0o600)
    return path


def test_a_key_in_the_environment_limits_an_mcp_client(forked, key):
    result = forked("mcp", stdin=lines("list_inboxes", "create_inbox"), POSTROOM_KEY=key)

    assert [False, True] == is_error(result)
    assert "" == result.err


def test_a_key_in_a_file_limits_an_mcp_client(forked, file):
    result = forked("mcp", "--key-file", file, stdin=lines("list_inboxes", "create_inbox"))

    assert [False, True] == is_error(result)
    assert "" == result.err


def test_a_key_on_the_command_line_works_with_a_warning(forked, key):
    result = forked("mcp", "--key", key, stdin=lines("list_inboxes", "create_inbox"))

    assert [False, True] == is_error(result)
    assert "POSTROOM_KEY" in result.err
    assert key not in result.err


def test_a_key_file_overrides_the_environment(forked, file):
    result = forked("mcp", "--key-file", file, stdin=lines("create_inbox"), POSTROOM_KEY="pk_none")

    assert [True] == is_error(result)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o610])
def test_a_file_that_others_may_read_is_refused(forked, file, mode):
    file.chmod(mode)
    result = forked("mcp", "--key-file", file, stdin=lines("list_inboxes"))

    assert (2, "") == (result.code, result.out)
    assert "chmod 600" in result.err


@pytest.mark.parametrize("kind", ["missing", "a folder", "empty", "binary", "two lines", "a pipe"])
def test_a_file_without_a_key_is_refused(forked, tmp_path, kind):
    path = tmp_path / "agent.key"
    contents = {"empty": b"", "binary": b"\xff\x00", "two lines": b"pk_a\npk_b\n"}
    if kind == "a folder":
        path.mkdir(mode=0o700)
    elif kind == "a pipe":
        os.mkfifo(path, 0o600)
    elif kind in contents:
        path.write_bytes(contents[kind])
        path.chmod(0o600)
    result = forked("mcp", "--key-file", path, stdin=lines("list_inboxes"))

    assert (2, "") == (result.code, result.out)
    assert "--key-file" in result.err


@pytest.mark.parametrize("value", ["", " ", "a b"])
def test_an_empty_key_is_an_error_and_not_the_owner(forked, inbox, value):
    result = forked("mcp", stdin=lines("list_inboxes"), POSTROOM_KEY=value)

    assert (2, "") == (result.code, result.out)
    assert "POSTROOM_KEY" in result.err
    assert ("is empty" in result.err) == (not value.strip())
    assert "postroom key create" in result.err


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_key_option_is_explained(forked, inbox, value):
    result = forked("mcp", "--key", value, stdin=lines("list_inboxes"))

    assert (2, "") == (result.code, result.out)
    assert "--key is empty" in result.err
    assert "postroom key create" in result.err


def test_an_unknown_key_is_refused(forked, inbox):
    result = forked("mcp", stdin=lines("list_inboxes"), POSTROOM_KEY="pk_none")

    assert (4, "") == (result.code, result.out)


def test_a_file_and_a_key_exclude_each_other(forked, file, key):
    assert 2 == forked("mcp", "--key-file", file, "--key", key).code


def test_the_process_list_shows_no_key(data, key, file):
    env = environment(data, {"POSTROOM_KEY": key})
    for words in ([], ["--key-file", str(file)]):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command("mcp", *words), env=env, **pipes) as process:
            process.stdin.write(lines())
            process.stdin.flush()
            assert process.stdout.readline()
            shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            process.stdin.close()

        assert key.encode() not in shown


@pytest.mark.parametrize("words", [(), ("-o", "json")])
def test_the_settings_show_no_key(forked, words):
    result = forked("config", *words, POSTROOM_KEY="pk_canary_of_an_agent")

    assert 0 == result.code
    assert "POSTROOM_KEY" in result.out
    assert "canary" not in result.out + result.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:canary@127.0.0.1:1/none?sslmode=wrong",
        "postgresql://ana@127.0.0.1:1/none?password=canary&sslmode=wrong",
    ],
)
def test_a_password_on_the_command_line_is_warned_of(forked, data, inbox, url):
    result = forked("migrate", "--from", data, "--to", url)

    assert "PGPASSWORD" in result.err
    assert "canary" not in result.out + result.err


def test_without_a_password_nothing_is_warned_of(forked, data, inbox):
    url = "postgresql://ana@127.0.0.1:1/none?sslmode=wrong"
    result = forked("migrate", "--from", data, "--to", url)

    assert "PGPASSWORD" not in result.err


def test_a_short_key_of_the_owner_prevents_the_start(forked):
    result = forked("serve", "--port", "0", POSTROOM_API_KEY="12345678")

    assert 2 == result.code
    assert "20 to 256" in result.err
    assert "openssl rand" in result.err


def test_an_empty_outbox_that_is_paused_says_so(postroom, inbox):
    before = postroom("outbox", "list")
    postroom("outbox", "pause")
    paused = postroom("outbox", "list")
    as_json = postroom("outbox", "list", "-o", "json").json
    postroom("outbox", "resume")

    assert "paused" not in before.out + before.err
    assert "the outbox is paused" in paused.err
    assert (True, 0) == (as_json["is_paused"], as_json["total"])
    assert postroom("outbox", "list", "-o", "json").json["is_paused"] is False
