"""Contract 002: changing live mailboxes, if changes are enabled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.contract.live_imap import Agent, account_variables, agent_over_stdio, id_of
from tests.contract.requirements import requirement
from tests.mails import mail
from tests.servers.dovecot import Dovecot
from tests.servers.imaplib_client import ImaplibMailbox, imaplib_mailbox

STEPS = {"steps_attempted", "steps_succeeded"}
CHANGES = {
    "imap_update_message_flags": {"add_flags": [r"\Seen"]},
    "imap_copy_message": {"destination_mailbox": "Archive"},
    "imap_move_message": {"destination_mailbox": "Archive"},
    "imap_delete_message": {"confirm": True},
}


def codes(data: dict[str, Any]) -> list[str]:
    return [issue["code"] for issue in data["issues"]]


@requirement("imap:gate")
async def test_without_permission_every_change_is_refused_first(
    tmp_path: Path, variables: dict[str, str], box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Mine"))
    closed = {**variables, "MAIL_IMAP_WRITE_ENABLED": "false"}
    async with agent_over_stdio(tmp_path, closed) as agent:
        for tool, arguments in CHANGES.items():
            error = await agent.error(tool, message_id=id_of(box, uid), **arguments)
            nonsense = await agent.error(tool, message_id="nonsense")

            assert "invalid_input" == error["code"] == nonsense["code"]
            assert "MAIL_IMAP_WRITE_ENABLED" in error["message"]
            assert error["message"] == nonsense["message"]

    assert [uid] == box.uids()
    assert set() == box.flags(uid)


@requirement("imap:flags")
async def test_flags_are_added_removed_and_returned(agent: Agent, box: ImaplibMailbox) -> None:
    uid = box.append(mail("Flagged"), [r"\Seen"])

    body = await agent.call(
        "imap_update_message_flags",
        message_id=id_of(box, uid),
        add_flags=[r"\flagged", "$Todo"],
        remove_flags=[r"\Seen"],
    )

    data = body["data"]
    assert "Flags were added and removed" == body["summary"]
    assert {
        *("status", "issues", "account_id", "message_id", "flags", "requested_add_flags"),
        *("requested_remove_flags", "applied_add_flags", "applied_remove_flags"),
    } == data.keys()
    assert ("ok", True, True) == (
        data["status"],
        data["applied_add_flags"],
        data["applied_remove_flags"],
    )
    assert [r"\Flagged", "$Todo"] == data["requested_add_flags"]
    assert [r"\Seen"] == data["requested_remove_flags"]
    assert {r"\Flagged", "$Todo"} == set(data["flags"]) - {r"\Recent"} == box.flags(uid)


@requirement("imap:flags")
async def test_flags_that_were_not_requested_are_not_changed(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Flagged"))

    data = await agent.data(
        "imap_update_message_flags", message_id=id_of(box, uid), add_flags=[r"\Answered"]
    )

    assert (True, False, []) == (
        data["applied_add_flags"],
        data["applied_remove_flags"],
        data["requested_remove_flags"],
    )


@requirement("imap:flags-given")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "at least one of add_flags and remove_flags"),
        ({"add_flags": []}, "add_flags"),
        ({"remove_flags": []}, "remove_flags"),
        ({"add_flags": [f"f{n}" for n in range(21)]}, "add_flags"),
        ({"add_flags": ["a b"]}, "a flag is"),
        ({"add_flags": ["a\r\nb"]}, "a flag is"),
        ({"add_flags": ["a)"]}, "a flag is"),
        ({"add_flags": [""]}, "a flag is"),
        ({"add_flags": ["ä"]}, "a flag is"),
        ({"add_flags": [r"\Recent"]}, "cannot be set"),
        ({"add_flags": [r"\Unknown"]}, "cannot be set"),
        ({"add_flags": r"\Seen"}, "add_flags"),
        ({"add_flags": [r"\Seen"], "remove_flags": [r"\seen"]}, "both added and removed"),
    ],
)
async def test_flags_that_do_not_fit_are_refused(
    agent: Agent, arguments: dict[str, Any], said: str
) -> None:
    error = await agent.error(
        "imap_update_message_flags", message_id="imap:default:INBOX:1:1", **arguments
    )

    assert "invalid_input" == error["code"]
    assert said in error["message"]


@requirement("imap:copy")
async def test_a_copy_has_a_new_id_and_leaves_the_original(
    agent: Agent, box: ImaplibMailbox, other_box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Copied"), [r"\Seen"])

    body = await agent.call(
        "imap_copy_message", message_id=id_of(box, uid), destination_mailbox=other_box.name
    )

    (new,) = other_box.uids()
    assert {
        "status": "ok",
        "issues": [],
        "source_account_id": "default",
        "destination_account_id": "default",
        "source_mailbox": box.name,
        "destination_mailbox": other_box.name,
        "message_id": id_of(box, uid),
        "new_message_id": id_of(other_box, new),
        "steps_attempted": 1,
        "steps_succeeded": 1,
    } == body["data"]
    assert f"The message was copied to {other_box.name}" == body["summary"]
    assert [uid] == box.uids()
    assert {r"\Seen"} == other_box.flags(new)


@requirement("imap:copy-account")
async def test_a_copy_to_another_account_keeps_bytes_flags_and_date(
    agent: Agent, box: ImaplibMailbox, work_box: ImaplibMailbox
) -> None:
    moment = datetime(2021, 5, 6, 7, 8, 9, tzinfo=UTC)
    uid = box.append(mail("Travels", "ü" * 1000), [r"\Seen", "$Todo"], moment)

    data = await agent.data(
        "imap_copy_message",
        message_id=id_of(box, uid),
        destination_mailbox=work_box.name,
        destination_account_id="work",
    )

    (new,) = work_box.uids()
    assert ("ok", "default", "work", 2, 2) == (
        data["status"],
        data["source_account_id"],
        data["destination_account_id"],
        data["steps_attempted"],
        data["steps_succeeded"],
    )
    assert id_of(work_box, new, "work") == data["new_message_id"]
    assert box.raw(uid) == work_box.raw(new)
    assert {r"\Seen", "$Todo"} == work_box.flags(new)
    assert box.arrival(uid) == work_box.arrival(new)


@requirement("imap:copy")
@requirement("imap:soft")
@pytest.mark.parametrize("tool", ["imap_copy_message", "imap_move_message"])
async def test_a_missing_destination_changes_nothing(
    agent: Agent, box: ImaplibMailbox, tool: str
) -> None:
    uid = box.append(mail("Stays"))

    body = await agent.call(tool, message_id=id_of(box, uid), destination_mailbox="Nowhere")

    data = body["data"]
    assert ("failed", ["not_found"], 1, 0) == (
        data["status"],
        codes(data),
        data["steps_attempted"],
        data["steps_succeeded"],
    )
    assert "new_message_id" not in data
    assert "was not" in body["summary"]
    assert [uid] == box.uids()


@requirement("imap:copy-account")
async def test_an_unknown_destination_account_is_not_found(
    agent: Agent, box: ImaplibMailbox
) -> None:
    error = await agent.error(
        "imap_copy_message",
        message_id=id_of(box, 1),
        destination_mailbox="INBOX",
        destination_account_id="nobody",
    )

    assert "not_found" == error["code"]


@requirement("imap:move")
async def test_a_moved_message_has_a_new_id(
    agent: Agent, box: ImaplibMailbox, other_box: ImaplibMailbox
) -> None:
    uid, other = box.append(mail("Moved"), [r"\Flagged"]), box.append(mail("Stays"))
    box.flag(other, r"\Deleted")

    body = await agent.call(
        "imap_move_message", message_id=id_of(box, uid), destination_mailbox=other_box.name
    )

    (new,) = other_box.uids()
    assert {
        "status": "ok",
        "issues": [],
        "account_id": "default",
        "source_mailbox": box.name,
        "destination_mailbox": other_box.name,
        "message_id": id_of(box, uid),
        "new_message_id": id_of(other_box, new),
        "steps_attempted": 1,
        "steps_succeeded": 1,
    } == body["data"]
    assert [other] == box.uids()
    assert {r"\Flagged"} == other_box.flags(new)


@requirement("imap:move")
async def test_a_message_is_not_moved_to_where_it_is(agent: Agent) -> None:
    for here, target in (("Archive", "Archive"), ("INBOX", "inbox")):
        error = await agent.error(
            "imap_move_message",
            message_id=f"imap:default:{here}:1:1",
            destination_mailbox=target,
        )

        assert "invalid_input" == error["code"]


@requirement("imap:mailbox")
@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb"])
async def test_an_invalid_destination_is_refused(agent: Agent, name: str) -> None:
    for tool in ("imap_copy_message", "imap_move_message"):
        error = await agent.error(
            tool, message_id="imap:default:INBOX:1:1", destination_mailbox=name
        )

        assert "invalid_input" == error["code"]
        assert error["message"].startswith("destination_mailbox")


@asynccontextmanager
async def agent_of_limited_server(
    tmp_path: Path, capability: str
) -> AsyncIterator[tuple[Agent, ImaplibMailbox, ImaplibMailbox]]:
    """An account at a server that announces only these capabilities."""
    with Dovecot(capability=f"IMAP4rev1 LITERAL+ {capability}") as server:
        given = account_variables(server, "DEFAULT", "alice")
        given["MAIL_IMAP_WRITE_ENABLED"] = "true"
        with imaplib_mailbox(server, "alice") as box, imaplib_mailbox(server, "alice") as other_box:
            async with agent_over_stdio(tmp_path, given) as agent:
                yield agent, box, other_box


@requirement("imap:move-fallback")
async def test_without_move_a_message_is_copied_and_then_removed(tmp_path: Path) -> None:
    async with agent_of_limited_server(tmp_path, "UIDPLUS") as (agent, box, other_box):
        uid, other = box.append(mail("Moved")), box.append(mail("Stays"))
        box.flag(other, r"\Deleted")
        box.close()
        data = await agent.data(
            "imap_move_message", message_id=id_of(box, uid), destination_mailbox=other_box.name
        )

        assert ("ok", 3, 3) == (
            data["status"],
            data["steps_attempted"],
            data["steps_succeeded"],
        )
        assert id_of(other_box, other_box.uids()[0]) == data["new_message_id"]
        assert [other] == box.uids()


@requirement("imap:move-fallback")
async def test_without_uidplus_the_original_stays_flagged_with_a_warning(
    tmp_path: Path,
) -> None:
    async with agent_of_limited_server(tmp_path, "") as (agent, box, other_box):
        uid, other = box.append(mail("Copied")), box.append(mail("Theirs"))
        box.flag(other, r"\Deleted")
        box.close()
        moved = await agent.call(
            "imap_move_message", message_id=id_of(box, uid), destination_mailbox=other_box.name
        )
        deleted = await agent.data("imap_delete_message", message_id=id_of(box, uid), confirm=True)

        assert ("partial", ["not_expunged"]) == (moved["data"]["status"], codes(moved["data"]))
        assert "is still in" in moved["summary"]
        assert ("partial", ["not_expunged"], 1, 1) == (
            deleted["status"],
            codes(deleted),
            deleted["steps_attempted"],
            deleted["steps_succeeded"],
        )
        assert [uid, other] == box.uids()
        assert r"\Deleted" in box.flags(uid)
        assert 1 == len(other_box.uids())


@requirement("imap:delete")
async def test_a_deletion_removes_this_message_and_no_other(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid, other = box.append(mail("Gone")), box.append(mail("Theirs"))
    box.flag(other, r"\Deleted")
    box.close()

    body = await agent.call("imap_delete_message", message_id=id_of(box, uid), confirm=True)

    assert {
        "status": "ok",
        "issues": [],
        "account_id": "default",
        "mailbox": box.name,
        "message_id": id_of(box, uid),
        "steps_attempted": 2,
        "steps_succeeded": 2,
    } == body["data"]
    assert f"The message was deleted from {box.name}" == body["summary"]
    assert [other] == box.uids()


@requirement("imap:delete-confirm")
@pytest.mark.parametrize("arguments", [{}, {"confirm": False}, {"confirm": None}, {"confirm": 1}])
async def test_a_deletion_must_be_confirmed(
    agent: Agent, box: ImaplibMailbox, arguments: dict[str, Any]
) -> None:
    uid = box.append(mail("Stays"))

    error = await agent.error("imap_delete_message", message_id=id_of(box, uid), **arguments)

    assert "invalid_input" == error["code"]
    assert error["message"].startswith("confirm")
    assert [uid] == box.uids()


@requirement("imap:error")
async def test_no_change_is_made_in_a_recreated_mailbox(agent: Agent, box: ImaplibMailbox) -> None:
    old = id_of(box, box.append(mail("Old")))
    box.recreate()
    new = box.append(mail("New"))

    for tool, arguments in CHANGES.items():
        error = await agent.error(tool, message_id=old, **arguments)

        assert "conflict" == error["code"]
    assert [new] == box.uids()
    assert set() == box.flags(new)


@requirement("imap:soft")
async def test_no_change_of_a_missing_message_reports_success(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Gone"))
    box.remove(uid)
    box.close()

    for tool, arguments in CHANGES.items():
        body = await agent.call(tool, message_id=id_of(box, uid), **arguments)

        assert ("failed", ["not_found"]) == (body["data"]["status"], codes(body["data"]))
        assert body["summary"].startswith(("The message was not", "No flag was changed"))
        assert "imap_list_mailboxes" == body["data"]["next_action"]["tool"]
