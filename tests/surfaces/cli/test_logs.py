"""Log output is bounded and structured, and has no secrets."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from postroom.surfaces.cli.logs import JsonLines, Lines
from tests.servers.postroom import running

PROGRAM = """
import logging
from postroom.surfaces.cli.logs import start_logging

def first(levels): second(levels - 1)
def second(levels): first(levels - 1) if levels > 0 else 1 / 0

start_logging()
try:
    first(400)
except ZeroDivisionError as error:
    logging.getLogger("x").error("a.b", exc_info=error, extra={"said": "y" * 99_999})
try:
    raise ValueError("z" * 99_999)
except ValueError as error:
    logging.getLogger("x").error("short", exc_info=error)
"""


def test_a_long_traceback_is_logged_without_its_middle():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True
    )

    assert len(ran.stderr.splitlines()) < 80
    assert "Traceback (most recent call last)" in ran.stderr
    assert "lines left out" in ran.stderr
    assert "ZeroDivisionError: division by zero" in ran.stderr
    assert max(map(len, ran.stderr.splitlines())) < 3_000


SECRETS = {
    "api_key": "hunter2-canary",
    "password": "hunter2-canary",
    "error": "no login at smtp://ana:hunter2-canary@relay.example",
    "said": "Authorization: Bearer hunter2-canary",
    "text": "wrong: pk_hunter2-canary-0123456789",
}


@pytest.mark.parametrize("formatter", [Lines("%(message)s"), JsonLines()])
@pytest.mark.parametrize("name", SECRETS)
def test_no_format_shows_a_secret(formatter, name):
    context = {name: SECRETS[name], "message_id": "msg_1"}
    record = logging.makeLogRecord({"msg": "a.b", **context})

    line = formatter.format(record)

    assert "canary" not in line
    assert "********" in line
    assert "msg_1" in line


def test_a_line_of_json_has_values_and_is_one_line():
    record = logging.makeLogRecord(
        {"msg": "a.b", "levelname": "INFO", "name": "x", "status": 200, "said": "a\nb\x1b[31m"}
    )
    line = JsonLines().format(record)

    read = json.loads(line)
    assert 1 == len(line.splitlines())
    assert ("a.b", "info", "x", 200) == tuple(
        read[n] for n in ("event", "level", "logger", "status")
    )
    assert "\x1b" not in line


def asked(server, path, key):
    request = urllib.request.Request(server.url + path, headers={"X-API-Key": key})
    try:
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError as error:
        error.close()


@pytest.mark.parametrize("is_on", [False, True])
def test_requests_are_logged_if_the_settings_say_so(data, is_on):
    more = {"POSTROOM_LOG_FORMAT": "json", "POSTROOM_ACCESS_LOG": str(is_on).lower()}
    with running(data, **more) as server:
        asked(server, "/v1/search/messages?q=canary", server.key)
        asked(server, "/v1/inboxes", "pk_wrong-canary-0123456789")
    log = server.log

    lines = [json.loads(line) for line in log.splitlines() if '"http.request"' in line]
    seen = [(one["route"], one["status"], one["actor"]) for one in lines]
    found = ("GET /v1/search/messages", 200, "owner"), ("GET /v1/inboxes", 401, "")
    assert set(found) <= set(seen) if is_on else not seen
    assert "canary" not in log
    assert server.key not in log


def test_the_level_of_the_log_is_a_setting(forked):
    refused = forked("inbox", "list", POSTROOM_LOG_LEVEL="loud")

    assert 2 == refused.code
    assert "POSTROOM_LOG_LEVEL: loud is not one of debug, info, warning or error" in refused.err
