"""No input on stdin crashes the server, and every response is JSON-RPC."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

from postroom.surfaces.mcp.stdio import Unreadable, read_frame
from tests.surfaces.mcp.stdio_client import started

FRAMES = 3_000
GOOD = [
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "list_inboxes"}},
    {
        "jsonrpc": "2.0",
        "id": "x",
        "method": "tools/call",
        "params": {"name": "search_messages", "arguments": {"q": "café", "limit": 5}},
    },
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}},
    {"jsonrpc": "2.0", "id": 5, "result": {}},
]
NASTY: list[bytes] = [
    b"",
    b"   ",
    b"null",
    b"true",
    b"[]",
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b"{" * 10_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"n":NaN}}',
    b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":"x"}}',
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
    b"\x00" * 1_000,
    b"\xff" * 1_000,
    b"\xef\xbb\xbf{}",
    b'{"jsonrpc":"2.0","id":"' + b"x" * 100_000 + b'","method":"ping"}',
]


def mutants(seed: int, count: int) -> list[bytes]:
    """Valid frames that were altered: truncated, repeated, or with other bytes or values."""
    chance = random.Random(seed)
    return [_mutant(chance) for _ in range(count)]


def _mutant(chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return chance.choice(NASTY)
    frame: Any = json.loads(json.dumps(chance.choice(GOOD)))
    for _ in range(chance.randint(0, 2)):
        _alter(frame, chance)
    line = bytearray(json.dumps(frame).encode())
    for _ in range(chance.choice([0, 0, 1, 1, 3])):
        at = chance.randrange(len(line))
        line[at : at + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4))
    return bytes(line[: chance.choice([len(line), chance.randint(1, len(line) + 1)])])


def _alter(frame: dict[str, Any], chance: random.Random) -> None:
    values = [
        None,
        True,
        -1,
        1.5,
        "",
        "x" * 500,
        [],
        {},
        [[]],
        {"a": {"b": []}},
        2**70,
        "tools/call",
    ]
    holder = frame
    while isinstance(holder.get("params"), dict) and chance.random() < 0.5:
        holder = holder["params"]
        break
    holder[chance.choice([*holder, "extra"])] = chance.choice(values)


def test_no_frame_crashes_the_server_or_its_output(tmp_path):
    with started(tmp_path) as stdio:
        stdio.hello()
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(stdio.process.stdout), daemon=True)
        reader.start()

        for line in [*NASTY, *mutants(seed=1, count=FRAMES)]:
            stdio.write(line.replace(b"\n", b" "))
        stdio.write(b'{"jsonrpc":"2.0","id":"the end","method":"tools/list"}')
        stdio.close()
        reader.join(60)

        answers = [json.loads(line) for line in lines]
        assert all(is_answer(answer) for answer in answers)
        assert "the end" in [answer["id"] for answer in answers]
        assert 0 == stdio.process.wait(120)
        assert b"Traceback" not in stdio.process.stderr.read()


def is_answer(answer: dict[str, Any]) -> bool:
    if answer.get("jsonrpc") != "2.0" or "id" not in answer:
        return False
    if "result" in answer:
        return "error" not in answer and isinstance(answer["result"], dict)
    error = answer["error"]
    return isinstance(error["code"], int) and isinstance(error["message"], str)


@pytest.mark.parametrize(
    ("line", "code", "answered_id"),
    [
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":NaN}}', -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":[]}', -32600, 7),
        (b'{"jsonrpc":"1.0","id":"a","method":"x"}', -32600, "a"),
    ],
)
def test_an_error_names_its_cause_and_the_request_if_known(line, code, answered_id):
    with pytest.raises(Unreadable) as caught:
        read_frame(line)

    reply = caught.value.reply
    assert (code, answered_id) == (reply.error.code, reply.id)


def test_the_call_after_a_bad_line_works(tmp_path):
    with started(tmp_path) as stdio:
        stdio.hello().write(b'{"jsonrpc":')

        assert -32700 == stdio.read()["error"]["code"]
        assert not stdio.call("list_inboxes")["isError"]
