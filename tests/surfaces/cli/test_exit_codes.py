"""How commands exit: stable codes, messages on stderr, no partial effects."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postroom import errors
from postroom.errors import MailError
from postroom.surfaces.cli.exit_codes import EXIT_CODES, PARTIAL, TIMED_OUT
from tests.mails import mail
from tests.servers.postroom import command, environment

DOCS = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()


def kinds(error: type[MailError] = MailError) -> Iterator[str]:
    yield error.code
    for narrower in error.__subclasses__():
        if narrower.__module__ == errors.__name__:
            yield from kinds(narrower)


def test_every_kind_of_error_has_an_exit_code():
    assert set(kinds()) == set(EXIT_CODES)


def test_every_exit_code_is_documented():
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCS, flags=re.MULTILINE)}

    assert {0, PARTIAL, TIMED_OUT, 130, 141, *EXIT_CODES.values()} == documented


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["message", "show", "msg_unknown"], 3, "not_found"),
        (["message", "show", "thr_other"], 2, "invalid_input"),
        (["message", "show"], 2, "invalid_input"),
        (["message", "list"], 2, "invalid_input"),
        (["message", "list", "--limit", "0", "--inbox-id", "x"], 2, "invalid_input"),
        (["message", "list", "--limti", "1"], 2, "invalid_input"),
        (["message", "lits"], 2, "invalid_input"),
        (["label", "list", "surplus"], 2, "invalid_input"),
        (["inbox", "create", "bo@postroom.localhost"], 5, "conflict"),
        (["inbox", "create", "bo@elsewhere.example"], 2, "invalid_input"),
        (["key", "delete", "owner"], 4, "forbidden"),
        (["key", "delete", "key_unknown"], 3, "not_found"),
        (["send", "--to", "a@b.example", "--subject", "x", "--text", "x", "--attach", "no"], 2,
         "invalid_input"),
        (["message", "receive", "bo@postroom.localhost", "no-such-file"], 2, "invalid_input"),
        (["message", "receive", "nobody@postroom.localhost", "-"], 3, "not_found"),
        (["message", "move", "msg_unknown", "Archive"], 3, "not_found"),
    ],
)  # fmt: skip
def test_an_error_has_its_code_in_words_and_in_json(postroom, inbox, words, code, kind):
    plain = postroom(*words, stdin=mail())
    as_json = postroom("-o", "json", *words, stdin=mail())

    assert (code, code) == (plain.code, as_json.code)
    assert plain.err.startswith("error: ")
    assert kind == as_json.error["code"]


def test_a_message_over_the_limit_is_too_large(postroom, inbox, monkeypatch):
    monkeypatch.setenv("POSTROOM_LIMIT_MESSAGE_BYTES", "100")

    at = postroom("message", "receive", inbox["address"], "-", stdin=b"A: 1\n\n".ljust(100, b"x"))
    over = postroom("message", "receive", inbox["address"], "-", stdin=b"x" * 101)

    assert (0, 6) == (at.code, over.code)


def test_attachments_over_the_limit_are_too_large(postroom, inbox, monkeypatch, tmp_path):
    monkeypatch.setenv("POSTROOM_LIMIT_ATTACHMENTS_BYTES", "10")
    (tmp_path / "big").write_bytes(b"x" * 11)
    words = ("send", "--to", "a@b.example", "--subject", "x", "--text", "x", "--attach")

    assert 6 == postroom(*words, tmp_path / "big").code


def test_all_invalid_settings_are_reported_at_once(postroom, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "none")
    monkeypatch.setenv("POSTROOM_HOTS", "x")

    result = postroom("inbox", "list")

    assert 2 == result.code
    assert [
        "error: POSTROOM_HOTS: unknown setting; did you mean POSTROOM_HOST?",
        "error: POSTROOM_PORT: must be a whole number from 0 to 65535",
    ] == result.err.splitlines()


def test_an_unusable_folder_is_an_error_without_a_traceback(postroom, tmp_path):
    (tmp_path / "file").touch()

    result = postroom("inbox", "list", "--data", tmp_path / "file" / "data")

    assert 5 == result.code
    assert "data cannot be created" in result.err
    assert "Traceback" not in result.err


def test_an_internal_error_has_a_traceback_on_request(postroom, inbox, monkeypatch):
    monkeypatch.setattr("postroom.app.open_app", None)

    plain = postroom("inbox", "list")
    traced = postroom("--traceback", "inbox", "list")

    assert (1, 1) == (plain.code, traced.code)
    assert plain.err.startswith("error: internal error")
    assert "Traceback" in traced.err


def test_ctrl_c_ends_with_130_and_no_traceback(data):
    running = subprocess.Popen(
        command("message", "receive", "bo@postroom.localhost", "-"),
        env=environment(data),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until_it_reads(running)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)

    assert (130, b"interrupted") == (running.returncode, err.strip())


def wait_until_it_reads(running: subprocess.Popen[bytes]) -> None:
    """Fill the pipe: more can be written only once the other side reads."""
    assert running.stdin is not None
    for _ in range(20):
        running.stdin.write(b"x" * 65_536)
    running.stdin.flush()


def test_a_closed_pipe_is_no_error(data, postroom, receive):
    for _ in range(3):
        receive(mail(text="long " * 100_000))
    message_id = postroom("search", "long").rows[0][0]
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        command("message", "raw", message_id),
        env=environment(data),
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    os.close(writing)

    assert (141, b"") == (done.returncode, done.stderr)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_caller_that_closed_its_streams_is_no_error(data, inbox, closed):
    words = command("inbox", "list")
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *words]

    done = subprocess.run(
        shell, env=environment(data), capture_output=True, timeout=300, check=False
    )

    assert (0, b"") == (done.returncode, done.stderr)
    assert (">&-" in closed) == (not done.stdout)


def test_an_error_of_the_database_is_shown(forked, database_url):
    made = forked("inbox", "create", POSTROOM_DATABASE_URL=database_url)
    assert 0 == made.code, made.err
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("ALTER TABLE inboxes RENAME TO others")

    refused = forked("inbox", "list", POSTROOM_DATABASE_URL=database_url)

    assert 1 == refused.code
    (line, _) = refused.err.splitlines()
    assert 'error=relation "inboxes" does not exist LINE 1: SELECT' in line
