"""`postroom mcp` as started by a client; tests of what it answers run it in a fork."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from postroom.surfaces.mcp.stdio import DRAIN_S, FLUSH_S, LEAVE_S
from tests.surfaces.mcp.stdio_client import TIMEOUT_S, StdioClient, command, started

MB = 1024 * 1024

in_a_process = partial(started, is_forked=False)


def only_noted(stdio: StdioClient) -> bool:
    """Whether stderr only says that a store was created."""
    assert stdio.process.stderr is not None
    [line] = stdio.process.stderr.read().splitlines()
    return bool(line.startswith(b"note: creating a new store in "))


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_official_client_works_over_stdio(tmp_path, mode):
    executable, *arguments = command(tmp_path)

    async with Client(
        StdioServerParameters(command=executable, args=arguments), mode=mode
    ) as client:
        tools = await client.list_tools()
        made = await client.call_tool("create_inbox", {"username": "ana"})

    assert "create_inbox" in {tool.name for tool in tools.tools}
    assert "ana@postroom.localhost" == made.structured_content["address"]


def test_toolsets_and_read_only_choose_the_tools(tmp_path):
    with started(tmp_path, "--toolsets", "mail", "--read-only") as stdio:
        tools = stdio.hello().ask("tools/list")["result"]["tools"]

    assert [
        "search_messages",
        "get_message",
        "get_thread",
        "list_identities",
        "get_capabilities",
        "run_rule_plan",
        "list_rules",
    ] == [tool["name"] for tool in tools]


def test_running_calls_complete_after_stdin_is_closed(tmp_path):
    with in_a_process(tmp_path) as stdio:
        stdio.hello().call("list_inboxes")  # the operations are loaded
        call = {"name": "create_inbox", "arguments": {"username": "ana"}}
        question = {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": call}
        stdio.write(json.dumps(question).encode())
        stdio.close()

        answer = stdio.read()

        assert "last" == answer["id"]
        assert "ana@postroom.localhost" == answer["result"]["structuredContent"]["address"]
        assert 0 == stdio.process.wait(TIMEOUT_S)


def test_a_last_line_without_a_newline_is_a_call(tmp_path):
    with started(tmp_path) as stdio:
        stdio.hello()
        out, _ = stdio.process.communicate(b'{"jsonrpc":"2.0","id":9,"method":"ping"}')

    assert {"jsonrpc": "2.0", "id": 9, "result": {}} == json.loads(out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_process(tmp_path, number):
    with in_a_process(tmp_path) as stdio:
        stdio.hello()

        stdio.process.send_signal(number)

        assert 0 == stdio.process.wait(TIMEOUT_S)
        assert only_noted(stdio)


def test_the_end_of_stdin_ends_the_process(tmp_path):
    with in_a_process(tmp_path) as stdio:
        stdio.hello().close()

        assert 0 == stdio.process.wait(TIMEOUT_S)
        assert only_noted(stdio)


def test_the_process_exits_when_stdout_is_closed(tmp_path):
    with in_a_process(tmp_path) as stdio:
        stdio.hello().process.stdout.close()

        assert 0 == stdio.process.wait(TIMEOUT_S)


def test_the_process_exits_although_its_output_is_not_read(tmp_path):
    with in_a_process(tmp_path) as stdio:
        stdio.hello()
        for number in range(20):
            stdio.write(b'{"jsonrpc":"2.0","id":"%d","method":"tools/list"}' % number)
        stdio.close()

        assert 0 == stdio.process.wait(TIMEOUT_S)


def test_shutdown_takes_less_than_two_seconds():
    assert DRAIN_S + FLUSH_S + LEAVE_S < 2


def test_the_process_exits_with_its_parent(tmp_path):
    """The parent is killed without notice; only its pipes are closed."""
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        'child.stdin.write(b\'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n\')\n'
        "child.stdin.flush()\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, *command(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        child = os.pidfd_open(int(process.stdout.readline()))

        process.kill()

        assert has_ended(child, TIMEOUT_S)


def has_ended(child: int, most_s: float) -> bool:
    poll = select.poll()
    poll.register(child, select.POLLIN)
    try:
        return bool(poll.poll(most_s * 1000))
    finally:
        os.close(child)


def test_two_servers_share_one_folder(tmp_path):
    with started(tmp_path) as one, started(tmp_path) as other:
        made = one.hello().call("create_inbox", username="ana")["structuredContent"]

        listed = other.hello().call("list_inboxes")["structuredContent"]

    assert [made] == listed["results"]


def test_printed_output_does_not_reach_the_client(tmp_path):
    """Output of libraries goes to stderr, even if they write to file descriptor 1."""
    noise = (
        "import functools, os, sys, logging, warnings, subprocess\n"
        "import postroom.operations.inboxes as inboxes\n"
        "run = inboxes.list_inboxes.run\n"
        "@functools.wraps(run)\n"
        "async def loud(ctx, request):\n"
        "    print('noise 1')\n"
        "    os.write(1, b'noise 2')\n"
        "    logging.basicConfig(level='DEBUG', stream=sys.stdout)\n"
        "    logging.error('noise 3')\n"
        "    warnings.warn('noise 4')\n"
        "    subprocess.run(['echo', 'noise 5'])\n"
        "    return await run(ctx, request)\n"
        "object.__setattr__(inboxes.list_inboxes, 'run', loud)\n"
        "from postroom.__main__ import main\n"
        "main()\n"
    )
    argv = [sys.executable, "-c", noise, *command(tmp_path)[3:]]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        stdio = StdioClient(process).hello()
        answer = stdio.call("list_inboxes")
        out, err = process.communicate(timeout=TIMEOUT_S)

    assert not answer["isError"]
    assert b"" == out
    assert all(f"noise {number}".encode() in err for number in range(1, 6))


def test_arguments_of_many_megabytes_are_accepted(tmp_path):
    with started(tmp_path) as stdio:
        inbox = stdio.hello().call("create_inbox")["structuredContent"]
        sent = stdio.call(
            "send_email_with_attachments",
            inbox_id=inbox["id"],
            recipient="x@example.com",
            subject="Large",
            body="See file.",
            attachments=[{"filename": "a.bin", "content": "AAAA" * (8 * MB)}],
        )

    assert "captured" == sent["structuredContent"]["status"]


def test_a_line_that_is_too_long_is_refused_with_bounded_memory(tmp_path):
    with in_a_process(tmp_path) as stdio:
        stdio.hello()
        for _ in range(100):
            stdio.process.stdin.write(b"x" * MB)
        stdio.write(b"")

        refused = stdio.read()

        assert (None, -32600) == (refused["id"], refused["error"]["code"])
        assert [] == stdio.call("list_inboxes")["structuredContent"]["results"]
        assert peak_mb(stdio.process.pid) < 250


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("levels", [65, 199, 250, 900, 100_000])
def test_a_call_that_is_nested_too_deeply_is_refused_by_its_id(tmp_path, levels):
    deep = b"[" * levels + b"]" * levels
    with started(tmp_path) as stdio:
        stdio.hello()
        params = b'"params":{"name":"create_inbox","arguments":{"username":%s}}' % deep
        stdio.write(b'{"jsonrpc":"2.0","id":"deep","method":"tools/call",%s}' % params)
        answer = stdio.read()
        still_there = stdio.ask("ping")
        stdio.close()

        assert ("deep", -32600) == (answer["id"], answer["error"]["code"])
        assert "64 levels" in answer["error"]["message"]
        assert {} == still_there["result"]
        assert only_noted(stdio)
