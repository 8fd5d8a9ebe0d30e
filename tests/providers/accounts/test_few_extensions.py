"""IMAP servers with few or with only built-in extensions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.providers.accounts.test_folders import move
from tests.providers.accounts.test_incomplete_listings import at
from tests.servers.imap_script import ImapCommand, mails, scripted


def without_uids(_: ImapCommand, reply: bytes) -> bytes:
    """The reply of a server that reports no UIDs of copies."""
    return re.sub(rb"\[COPYUID [^]]*\] ", b"", reply)


@pytest.mark.parametrize("capabilities", ["IMAP4rev1", "IMAP4rev1 MOVE", "IMAP4rev2"])
async def test_a_message_in_two_mailboxes_is_moved_once(tmp_path: Path, capabilities: str) -> None:
    boxes = {b"INBOX": mails(1), b"Archive": mails(1), b"Work": {}}
    async with (
        scripted(mailboxes=boxes, capabilities=capabilities, spoil=without_uids) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        await move(synced, "Hello 1", "Work")
        await synced.sync()

        assert 1 == len(boxes[b"Work"])
        left = [mail.flags for name in (b"INBOX", b"Archive") for mail in boxes[name].values()]
        assert all(rb"\Deleted" in flags for flags in left)
        assert ("IMAP4rev2" in capabilities) is (left == [])


@pytest.mark.parametrize("capabilities", ["IMAP4rev1", "IMAP4rev1 MOVE UIDPLUS"])
async def test_a_message_is_moved_again_where_its_new_place_is_not_reported(
    tmp_path: Path, capabilities: str
) -> None:
    boxes = {b"INBOX": mails(1), b"Work": {}, b"Other": {}}
    async with (
        scripted(mailboxes=boxes, capabilities=capabilities, spoil=without_uids) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        await move(synced, "Hello 1", "Work")
        await move(synced, "Hello 1", "Other")
        for _ in range(2):
            await synced.sync()

        assert ("Other",) == (await synced.message("Hello 1")).mailboxes
        left = {
            name for name, box in boxes.items() for m in box.values() if rb"\Deleted" not in m.flags
        }
        assert {b"Other"} == left


@pytest.mark.parametrize(
    "refusal", [b"Mailbox already exist", b"Folder exists", b"[ALREADYEXISTS]"]
)
async def test_a_mailbox_that_exists_without_being_listed_is_used(
    tmp_path: Path, refusal: bytes
) -> None:
    boxes = {b"INBOX": mails(1), b"Work": {}}

    def hide_work(command: ImapCommand, reply: bytes) -> bytes:
        if command.name == "LIST":
            return b"".join(line for line in reply.splitlines(True) if b"Work" not in line)
        return command.tag + b" NO " + refusal + b"\r\n" if command.name == "CREATE" else reply

    async with (
        scripted(mailboxes=boxes, capabilities="IMAP4rev1 MOVE UIDPLUS", spoil=hide_work) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        await move(synced, "Hello 1", "Work")
        await synced.sync()

        assert (0, 1) == (len(boxes[b"INBOX"]), len(boxes[b"Work"]))
