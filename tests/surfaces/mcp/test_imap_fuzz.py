"""With any arguments, live tools answer as in the contract, and send only intended commands."""

from __future__ import annotations

import random
from typing import Any

from postroom.model.key import OWNER
from postroom.surfaces.mcp.call_tool import call_tool
from tests.servers.imap_script import mails, scripted
from tests.surfaces.mcp.live_imap import TOOLS, account_at, app_with

CALLS = 2_000
TEXTS = (
    *(
        "INBOX",
        "Archive",
        "a\r\nb LOGOUT",
        "a\0b",
        "\x7f",
        '"',
        "\\",
        '\\"',
        "{5}\r\nabcde",
        "{5+}",
    ),
    *("*", "%", "NIL", "&AAo-", "&", "", " ", "é", "日本", "😀", "\ud800", "x" * 257, "é" * 256),
    *(
        "2026-01-31",
        "2026-02-30",
        "0001-01-01",
        "9999-12-31",
        "-1",
        "1e3",
        "true",
        "null",
        "default",
    ),
    *(r"\Seen", r"\Deleted", "$Todo", r"\*", "a b", "work", "imap:default:INBOX:7:2"),
    *("imap:default:INBOX:7:99", "imap:default:a:b:7:1", "imap:default:INBOX:7:-1", "imap:x:y:1:1"),
    *(
        "imap:default:INBOX:4294967296:1",
        "imap:default:I\r\nX:7:1",
        "imap::::",
        "imap:default:日本:7:1",
    ),
)
OTHERS = (0, 1, 50, 51, -1, 2**70, 1.5, True, False, None, [], {}, [1], ["a"] * 21, {"a": 1})
CODES = {"invalid_input", "not_found", "conflict"}
MEANT = {
    *("LOGIN", "CAPABILITY", "ID", "NOOP", "LIST", "EXAMINE", "SELECT", "STATUS", "UID SEARCH"),
    *("UID FETCH", "FETCH", "UID STORE", "UID COPY", "UID MOVE", "UID EXPUNGE", "APPEND", "LOGOUT"),
}
GOOD: dict[str, Any] = {
    "mailbox": "INBOX",
    "message_id": "imap:default:INBOX:7:2",
    "destination_mailbox": "Archive",
    "confirm": True,
    "add_flags": [r"\Seen"],
}


def arguments(tool: str, chance: random.Random) -> dict[str, Any]:
    """Valid arguments, some of which are altered or omitted."""
    known = [
        field.alias or name for name, field in TOOLS[tool].operation.request.model_fields.items()
    ]
    given = {name: GOOD[name] for name in known if name in GOOD and chance.random() < 0.9}
    for _ in range(chance.randint(0, 3)):
        value = chance.choice((*TEXTS, *OTHERS))
        given[chance.choice([*known, "extra"])] = [value] if chance.random() < 0.1 else value
    return given


def command(line: bytes) -> str:
    """The name of a command as parsed by a strict server."""
    words = line.split(b" ")[1:3]
    names = [word.strip().decode("latin-1").upper() for word in words]
    return " ".join(names) if names[0] == "UID" else names[0]


async def test_any_arguments_give_an_answer_of_the_contract_and_no_other_command(tmp_path):
    chance = random.Random(6)
    boxes = {b"INBOX": mails(5), b"Archive": {}}
    async with (
        scripted(mailboxes=boxes) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        for _ in range(CALLS):
            tool = chance.choice(list(TOOLS))
            given = arguments(tool, chance)
            boxes[b"INBOX"] = mails(5)
            body = (await call_tool(app.context(OWNER), TOOLS[tool], given))["structuredContent"]

            assert {"now_utc", "duration_ms"} == body["meta"].keys()
            if "error" in body:
                assert body["error"]["code"] in CODES, (tool, given, body)
            else:
                assert body["summary"]

    assert MEANT >= {command(line) for line in server.lines}
    assert {"UID SEARCH", "UID FETCH", "UID STORE", "UID MOVE"} <= {
        command(line) for line in server.lines
    }
