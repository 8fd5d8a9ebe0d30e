"""Contract 002 on another kind of server: all ten tools on a real Cyrus."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.live_imap import account_variables, agent_over_stdio, id_of
from tests.mails import mail
from tests.servers.cyrus import Cyrus
from tests.servers.imaplib_client import imaplib_mailbox

pytestmark = pytest.mark.may_skip("Cyrus starts only as root")


@pytest.fixture(scope="module")
def cyrus() -> Iterator[Cyrus]:
    if os.getuid() != 0:
        pytest.skip("Cyrus starts only as root")
    with Cyrus() as server:
        yield server


@pytest.fixture
def variables(cyrus: Cyrus) -> dict[str, str]:
    return {
        **account_variables(cyrus, "DEFAULT", "alice"),
        **account_variables(cyrus, "WORK", "bob"),
        "MAIL_IMAP_WRITE_ENABLED": "true",
    }


async def test_mail_is_found_and_read(
    cyrus: Cyrus, tmp_path: Path, variables: dict[str, str]
) -> None:
    with imaplib_mailbox(cyrus, "alice") as box:
        files = [("a.bin", "application/octet-stream", b"x" * 1_000)]
        raw = mail("Größe", "Grüße aus Köln.", attachments=files)
        uids = [box.append(mail(f"Mail {n}")) for n in range(12)] + [box.append(raw)]
        async with agent_over_stdio(tmp_path, variables, "--toolsets", "imap") as agent:
            verified = await agent.data("imap_verify_account")
            listed = await agent.data("imap_list_mailboxes")
            first = await agent.data("imap_search_messages", mailbox=box.name, include_snippet=True)
            cursor = first["next_cursor"]
            rest = await agent.data("imap_search_messages", mailbox=box.name, cursor=cursor)
            found = await agent.data("imap_search_messages", mailbox=box.name, subject="größe")
            newest = id_of(box, uids[-1])
            read = await agent.data("imap_get_message", message_id=newest)
            source = await agent.data("imap_get_message_raw", message_id=newest)

        assert verified["ok"]
        assert "INBOX" == listed["mailboxes"][0]["name"]
        assert box.name in [row["name"] for row in listed["mailboxes"]]
        shown = [row["uid"] for row in first["messages"] + rest["messages"]]
        assert (13, uids[::-1]) == (first["total"], shown)
        assert "Grüße aus Köln." == first["messages"][0]["snippet"]
        assert [newest] == [row["message_id"] for row in found["messages"]]
        assert "Grüße aus Köln." == read["message"]["body_text"]
        assert [1_000] == [row["size_bytes"] for row in read["message"]["attachments"]]
        assert box.raw(uids[-1]) == base64.b64decode(source["raw_source_base64"])
        assert set() == box.flags(uids[-1])


async def test_mail_is_changed(cyrus: Cyrus, tmp_path: Path, variables: dict[str, str]) -> None:
    with (
        imaplib_mailbox(cyrus, "alice") as box,
        imaplib_mailbox(cyrus, "alice") as other_box,
        imaplib_mailbox(cyrus, "bob") as work_box,
    ):
        flagged, copied, moved, deleted = (
            id_of(box, box.append(mail(f"Mail {n}"), [r"\Flagged"])) for n in range(4)
        )
        other_box.append(mail("Already there"))
        async with agent_over_stdio(tmp_path, variables, "--toolsets", "imap") as agent:
            flags = await agent.data(
                "imap_update_message_flags",
                message_id=flagged,
                add_flags=[r"\Seen", "$Label1"],
                remove_flags=[r"\Flagged"],
            )
            copy = await agent.data(
                "imap_copy_message",
                message_id=copied,
                destination_account_id="work",
                destination_mailbox=work_box.name,
            )
            move = await agent.data(
                "imap_move_message", message_id=moved, destination_mailbox=other_box.name
            )
            deletion = await agent.data("imap_delete_message", message_id=deleted, confirm=True)

        assert [] == flags["issues"] + copy["issues"] + move["issues"] + deletion["issues"]
        assert {r"\Seen", "$Label1"} == set(flags["flags"]) - {r"\Recent"}
        assert id_of(work_box, work_box.uids()[0], "work") == copy["new_message_id"]
        assert {r"\Flagged"} == work_box.flags(work_box.uids()[0])
        assert id_of(other_box, other_box.uids()[1]) == move["new_message_id"]
        assert [flagged, copied] == [id_of(box, uid) for uid in box.uids()]
