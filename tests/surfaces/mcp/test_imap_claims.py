"""Whichever command a server refuses, a result of a live change claims only what was done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.imap_script import ImapCommand, Mail, mails, scripted
from tests.surfaces.mcp.live_imap import account_at, answer, app_with

ID = "imap:default:INBOX:7:2"
OTHER = {"destination_mailbox": "Box", "destination_account_id": "work"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "copy": ("imap_copy_message", {"destination_mailbox": "Box"}),
    "copy to another account": ("imap_copy_message", OTHER),
    "move": ("imap_move_message", {"destination_mailbox": "Box"}),
    "delete": ("imap_delete_message", {"confirm": True}),
}
COMMANDS = (
    *("LOGIN", "EXAMINE", "SELECT", "UID FETCH", "UID COPY", "UID MOVE"),
    *("UID STORE", "UID EXPUNGE", "APPEND"),
)


def claims(name: str, status: str, *, is_there: bool, is_flagged: bool, copies: int) -> bool:
    """Whether a status is true."""
    if name.startswith("copy"):
        return copies == (status != "failed") and is_there
    if name == "delete":
        state = "partial" if is_flagged else "failed"
        return status == (state if is_there else "ok")
    state = "partial" if copies else "failed"
    return status == (state if is_there else "ok") and copies == (status != "failed")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("capabilities", ["IMAP4rev1 UIDPLUS MOVE", "IMAP4rev1 UIDPLUS"])
@pytest.mark.parametrize("word", ["NO", "BAD"])
async def test_a_result_claims_only_what_was_done(tmp_path, name, capabilities, word):
    received: list[str] = []

    def refuse(command: ImapCommand) -> bytes | None:
        received.append(command.name)
        at = (command.name, received.count(command.name))
        return f"{{tag}} {word} broken\r\n".encode() if at == failing else None

    replies = dict.fromkeys(COMMANDS, refuse)
    tool, arguments = CALLS[name]
    options: dict[str, Any] = {"capabilities": capabilities, "replies": replies}
    async with (
        scripted(**options) as server,
        scripted(**options) as other,
        app_with(tmp_path, account_at(server.port), account_at(other.port, "work")) as app,
    ):
        for failing in ((command, nth) for command in COMMANDS for nth in (1, 2)):
            received.clear()
            box, target = mails(3), dict[int, Mail]()
            server.mailboxes = {b"INBOX": box, b"Box": target}
            other.mailboxes = {b"Box": target}
            data = (await answer(app, tool, message_id=ID, **arguments))["data"]

            is_flagged = 2 in box and rb"\Deleted" in box[2].flags
            state = {"is_there": 2 in box, "is_flagged": is_flagged, "copies": len(target)}
            assert claims(name, data["status"], **state), (failing, data["status"], state)
            assert ("ok" == data["status"]) is (data["issues"] == [])
