"""`postroom mcp` in a process of its own, as a client starts it."""

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
from tests.surfaces.mcp import wire as wires
from tests.surfaces.mcp.wire import PATIENCE_S, Wire, command

MB = 1024 * 1024

started = partial(wires.started, is_forked=False)


def only_noted(wire: Wire) -> bool:
    """Whether stderr says that a store was created, and nothing else."""
    assert wire.process.stderr is not None
    [line] = wire.process.stderr.read().splitlines()
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
    with started(tmp_path, "--toolsets", "mail", "--read-only") as wire:
        tools = wire.hello().ask("tools/list")["result"]["tools"]

    assert [
        "search_messages",
        "get_message",
        "get_thread",
        "list_identities",
        "get_capabilities",
        "run_rule_plan",
        "list_rules",
    ] == [tool["name"] for tool in tools]


def test_calls_are_finished_after_the_client_has_closed_stdin(tmp_path):
    with started(tmp_path) as wire:
        wire.hello()
        call = {"name": "create_inbox", "arguments": {"username": "ana"}}
        question = {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": call}
        wire.write(json.dumps(question).encode())
        wire.close()

        answer = wire.read()

        assert "last" == answer["id"]
        assert "ana@postroom.localhost" == answer["result"]["structuredContent"]["address"]
        assert 0 == wire.process.wait(PATIENCE_S)


def test_a_last_line_without_an_end_is_a_call_too(tmp_path):
    with started(tmp_path) as wire:
        wire.hello()
        out, _ = wire.process.communicate(b'{"jsonrpc":"2.0","id":9,"method":"ping"}')

    assert {"jsonrpc": "2.0", "id": 9, "result": {}} == json.loads(out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it(tmp_path, number):
    with started(tmp_path) as wire:
        wire.hello()

        wire.process.send_signal(number)

        assert 0 == wire.process.wait(PATIENCE_S)
        assert only_noted(wire)


def test_the_end_of_stdin_ends_it(tmp_path):
    with started(tmp_path) as wire:
        wire.hello().close()

        assert 0 == wire.process.wait(PATIENCE_S)
        assert only_noted(wire)


def test_it_ends_when_nobody_reads_its_answers(tmp_path):
    with started(tmp_path) as wire:
        wire.hello().process.stdout.close()

        assert 0 == wire.process.wait(PATIENCE_S)


def test_it_ends_though_its_answers_pile_up_unread(tmp_path):
    with started(tmp_path) as wire:
        wire.hello()
        for number in range(20):
            wire.write(b'{"jsonrpc":"2.0","id":"%d","method":"tools/list"}' % number)
        wire.close()

        assert 0 == wire.process.wait(PATIENCE_S)


def test_what_is_left_to_do_at_the_end_is_given_less_than_two_seconds():
    assert DRAIN_S + FLUSH_S + LEAVE_S < 2


def test_it_ends_with_its_parent(tmp_path):
    """The parent is killed and can tell nobody; only its pipes are gone."""
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

        assert has_ended(child, PATIENCE_S)


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


def test_whoever_prints_does_not_reach_the_client(tmp_path):
    """A library that prints, warns or logs is sent to stderr, even when it writes to fd 1."""
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
        wire = Wire(process).hello()
        answer = wire.call("list_inboxes")
        out, err = process.communicate(timeout=PATIENCE_S)

    assert not answer["isError"]
    assert b"" == out
    assert all(f"noise {number}".encode() in err for number in range(1, 6))


def test_arguments_of_many_megabytes_are_taken(tmp_path):
    with started(tmp_path) as wire:
        inbox = wire.hello().call("create_inbox")["structuredContent"]
        sent = wire.call(
            "send_email_with_attachments",
            inbox_id=inbox["id"],
            recipient="x@example.com",
            subject="Large",
            body="See file.",
            attachments=[{"filename": "a.bin", "content": "AAAA" * (8 * MB)}],
        )

    assert "captured" == sent["structuredContent"]["status"]


def test_a_line_that_is_too_long_is_refused_and_costs_no_memory(tmp_path):
    with started(tmp_path) as wire:
        wire.hello()
        for _ in range(100):
            wire.process.stdin.write(b"x" * MB)
        wire.write(b"")

        refused = wire.read()

        assert (None, -32600) == (refused["id"], refused["error"]["code"])
        assert [] == wire.call("list_inboxes")["structuredContent"]["results"]
        assert peak_mb(wire.process.pid) < 250


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("levels", [65, 199, 250, 900, 100_000])
def test_a_call_that_is_nested_too_deeply_is_refused_by_its_id(tmp_path, levels):
    deep = b"[" * levels + b"]" * levels
    with started(tmp_path) as wire:
        wire.hello()
        params = b'"params":{"name":"create_inbox","arguments":{"username":%s}}' % deep
        wire.write(b'{"jsonrpc":"2.0","id":"deep","method":"tools/call",%s}' % params)
        answer = wire.read()
        still_there = wire.ask("ping")
        wire.close()

        assert ("deep", -32600) == (answer["id"], answer["error"]["code"])
        assert "64 levels" in answer["error"]["message"]
        assert {} == still_there["result"]
        assert only_noted(wire)
