"""Output for users: formatted on a terminal, plain on a pipe, and safe against control
characters.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from postroom.surfaces.cli.logs import Lines
from tests.mails import mail
from tests.surfaces.cli.pseudo_terminal import on_a_terminal

HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold]red[/bold] \x9b31m\u202ereversed\u2066"


def test_a_list_on_a_pipe_is_plain_with_tabs(postroom, inbox, receive):
    receive(mail("Tab\there", sender="Ana <ana@example.com>"))

    [titles, row] = [line.split("\t") for line in postroom("search", "tab").out.splitlines()]

    assert ["id", "date", "from address", "subject", "flags", "labels", "status"] == titles
    assert ["2026-03-01T09:00:00Z", "ana@example.com", "Tab here", "", "", ""] == row[1:]


def test_nothing_found_leaves_the_pipe_empty(postroom, inbox):
    result = postroom("search", "nothing")

    assert (0, "", "no results\n") == (result.code, result.out, result.err)


def test_a_list_on_a_terminal_is_a_table_with_colours(data, inbox, receive):
    receive(mail("A subject"))

    seen = on_a_terminal(data, "search", "subject")

    assert "A subject" in seen
    assert "\x1b[1m" in seen


def test_colours_can_be_disabled(data, inbox, receive):
    receive(mail("A subject"))

    seen = on_a_terminal(data, "search", "subject", NO_COLOR="1")

    assert "A subject" in seen
    assert "\x1b[3" not in seen


def test_a_pipe_has_no_colours(process, inbox, receive):
    receive(mail("A subject"))

    result = process("search", "subject", FORCE_COLOR="1", TERM="xterm-256color")

    assert "\x1b" not in result.out + result.err


@pytest.mark.parametrize("view", ["search", "message show", "thread show"])
def test_mail_cannot_send_control_sequences_to_the_terminal(data, postroom, receive, view):
    got = receive(mail("Hello", f"Text {HOSTILE}", sender="[red]x[/red] <a@example.com>"))
    argument = {"search": "text", "message show": got["message_id"]}.get(view, got["thread_id"])

    plain = postroom(*view.split(), argument).out
    seen = on_a_terminal(data, *view.split(), argument, NO_COLOR="1", TERM="dumb")

    for text in (plain, seen):
        assert set() == set(text) & set("\x1b\x07\x9b\u202e\u2066")
    assert view == "search" or "[bold]red[/bold]" in seen


STEERING = (
    "\x07\x1b\x7f\x84\x9b\u061c\u200e\u202e\u2066\u2069\U000e0041\u00ad\u034f\u115f\u17b4\u180b"
    "\u180e\u200b\u200d\u2028\u2060\u2800\u3164\ufe01\ufe0f\ufeff\uffa0\ufff1\ufffb\U0001bca0\U0001d173"
    "\U000e0101\U000e0fff"
)


def test_json_on_a_terminal_escapes_control_sequences(data, inbox):
    arguments = ("memory", "add", "k", "--namespace", "n", "--text")
    own = f"own {STEERING} words"

    seen = on_a_terminal(data, *arguments, own, "-o", "json")
    again = on_a_terminal(data, "memory", "show", "k", "--namespace", "n", "-o", "json")

    assert set() == (set(seen) | set(again)) & set(STEERING)
    assert own == json.loads(again)["text"]


def test_text_of_mail_has_no_invisible_characters_in_json_and_tables(data, postroom, receive):
    receive(mail("Hello", sender="Ana <ana@example.com>", text=f"a{STEERING}b"))

    seen = on_a_terminal(data, "search", "--from", "ana", "-o", "json")

    assert set() == set(seen) & set(STEERING)
    assert "a b" == json.loads(seen)["results"][0]["snippet"]


@pytest.mark.parametrize("output", ["json", "table"])
def test_an_error_cannot_send_control_sequences_to_the_terminal(data, inbox, output):
    """stderr is shown on the terminal as well."""
    seen = on_a_terminal(data, "message", "show", f"msg_{STEERING}", "-o", output, code=3)

    assert "msg_" in seen
    assert set() == set(seen) & set(STEERING)


def test_a_log_line_cannot_send_control_sequences_to_the_terminal():
    record = logging.makeLogRecord({"msg": "sync.failed", "error": f"NO {STEERING}"})

    line = Lines("%(message)s").format(record)

    assert line.startswith("sync.failed error=NO ")
    assert set() == set(line) & set(STEERING)


def test_the_source_of_a_mail_cannot_send_control_sequences(data, receive):
    got = receive(b"Subject: x\n\n" + HOSTILE.encode() + b"\n")

    seen = on_a_terminal(data, "message", "raw", got["message_id"])

    assert "[bold]red[/bold]" in seen
    assert set() == set(seen) & set("\x1b\x07\x9b\u202e\u2066")


def test_an_import_shows_a_bar_on_a_terminal(data, inbox):
    entry = b"From a@example.com Fri Jan  2 03:04:05 2026\n"
    Path("a.mbox").write_bytes(b"".join(entry + mail() + b"\n" for _ in range(30)))

    seen = on_a_terminal(data, "import", "a.mbox", "--inbox", inbox["address"], "--batch", "10")

    assert re.search(r"importing.*100%.*30 mails.*/s.*\d:\d\d", seen)
    assert "30 mails read: 30 stored, 0 duplicates, 0 refused" in seen


def test_a_message_reads_like_a_mail(postroom, receive):
    raw = mail("Hello", "Good morning.\n", attachments=[("a.txt", "text/plain", b"x")])
    message_id = receive(raw)["message_id"]

    out = postroom("message", "show", message_id).out

    assert "from:     Ana Lee <ana@example.com>" in out
    assert "attached: a.txt (1 bytes, att_" in out
    assert out.endswith("\n\nGood morning.\n")


def test_a_long_message_says_how_to_read_on(postroom, receive):
    message_id = receive(mail(text="word " * 100))["message_id"]

    out = postroom("message", "show", message_id, "--max-chars", "50").out

    assert out.endswith("… truncated; continue with --text-offset 50\n")


def test_json_is_utf_8_and_the_rest_is_readable_whatever_the_locale(process, receive):
    receive(mail("Grüße 瓦"))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}

    as_json = process("search", "--from", "ana", "-o", "json", **ascii_only)
    table = process("search", "--from", "ana", **ascii_only)

    assert "Grüße 瓦" == as_json.json["results"][0]["subject"]
    assert "Gr??e ?" == table.rows[0][3]


def test_the_settings_are_shown_with_their_origin(postroom, monkeypatch):
    monkeypatch.setenv("POSTROOM_PORT", "9999")
    monkeypatch.setenv("POSTROOM_API_KEY", "canary-0123456789-of-the-owner")

    table = {row[0]: row[1:] for row in postroom("config").rows}
    as_json = postroom("config", "-o", "json").json

    assert ["9999", "environment"] == table["POSTROOM_PORT"]
    assert ["127.0.0.1", "default"] == table["POSTROOM_HOST"]
    assert {"value": "********", "origin": "environment"} == as_json["POSTROOM_API_KEY"]


def test_the_version_is_shown(postroom):
    from postroom import __version__

    assert f"postroom {__version__}\n" == postroom("version").out
    assert {"version": __version__} == postroom("version", "-o", "json").json


def test_a_partial_page_says_so_on_stderr(postroom, inbox, receive):
    receive(mail("One"))
    receive(mail("Two"))

    page = postroom("message", "list", inbox["id"], "--limit", "1")

    assert 2 == len(page.out.splitlines())
    assert page.err.startswith("1 of 2; more: --cursor ")


def test_the_status_of_each_recipient_is_shown_in_words(postroom, inbox):
    sent = postroom("send", "--to", "bob@else.example", "--subject", "Hi", "--text", "there")

    assert "bob@else.example (captured; no relay is configured, so it was not sent)" in sent.out


def test_advice_names_the_command(postroom):
    refused = postroom("inbox", "show", "inb_nowhere")

    assert "`postroom inbox list` shows those you may use" in refused.err
