"""Reading live messages whose BODYSTRUCTURE has NIL or an empty list in any position."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.servers.imap_script import ImapCommand, Mail, scripted
from tests.surfaces.mcp.live_imap import account_at, answer, app_with

ANA = [["Ana", None, "ana", "example.com"]]
ENVELOPE = ["Mon, 1 Jan 2026 10:00:00 +0000", "Hello", *[ANA] * 4, None, None, None, "<a@b>"]
PLAIN = ["TEXT", "PLAIN", ["CHARSET", "utf-8"], None, None, "7BIT", 15, 1, None, None, None]
HTML = ["TEXT", "HTML", ["CHARSET", "utf-8"], "<x@y>", "d", "7BIT", 15, 1, "m", ["INLINE", None]]
PDF = ["APPLICATION", "PDF", ["NAME", "a"], None, None, "BASE64", 9, None, ["ATTACHMENT", None]]
MAIL = ["MESSAGE", "RFC822", None, None, None, "7BIT", 300, ENVELOPE, PLAIN, 10, None, None]
MIXED = [[PLAIN, HTML, "ALTERNATIVE", ["BOUNDARY", "b"], None], PDF, MAIL, "MIXED", None, None]


def places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield path
    for number, item in enumerate(value if isinstance(value, list) else ()):
        yield from places(item, (*path, number))


def replaced(value: Any, path: tuple[int, ...], new: Any) -> Any:
    if not path:
        return deepcopy(new)
    rest = (*value[: path[0]], replaced(value[path[0]], path[1:], new), *value[path[0] + 1 :])
    return list(rest)


def wire(value: Any) -> bytes:
    if isinstance(value, list):
        return b"(" + b" ".join(map(wire, value)) + b")"
    return b"NIL" if value is None else f'"{value}"'.encode()


def wire_of(value: Any) -> bytes:
    """With sizes as numbers, which are not quoted."""
    return re.sub(rb'"(\d+)"', rb"\1", wire(value))


@pytest.mark.parametrize("structure", [PLAIN, MIXED], ids=["plain", "mixed"])
async def test_the_text_is_found_whatever_is_missing_in_the_structure(tmp_path, structure):
    shown: list[bytes] = []

    def fetch(command: ImapCommand) -> bytes:
        items = [b"UID 2", b"FLAGS ()", b"RFC822.SIZE 99"]
        items += [b"BODYSTRUCTURE " + shown[-1]] if b"BODYSTRUCTURE" in command.rest else []
        for section, start in re.findall(rb"PEEK\[([^\]]*)\]<(\d+)", command.rest):
            text = b"Subject: Hello\r\n\r\n" if section == b"HEADER" else b"Good morning.\r\n"
            items.append(b"BODY[%s]<%s> {%d}\r\n%s" % (section, start, len(text), text))
        return b"* 1 FETCH (%s)\r\n{tag} OK done\r\n" % b" ".join(items)

    async with (
        scripted(mailboxes={b"INBOX": {2: Mail(b"")}}, replies={"UID FETCH": fetch}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        for path in places(structure):
            for new in (None, []):
                shown.append(wire_of(replaced(structure, path, new)))
                body = await answer(app, "imap_get_message", message_id="imap:default:INBOX:7:2")

                assert "ok" == body["data"]["status"], shown[-1]
                text = body["data"]["message"]["body_text"]
                assert "Good morning." in text, shown[-1]
