"""Live tools on unusual servers: correct reports of what was done, and how to continue."""

from __future__ import annotations

import pytest

from postroom.model.key import OWNER
from postroom.surfaces.mcp.call_tool import call_tool
from tests.servers.imap_script import ImapCommand, Mail, mails, scripted
from tests.surfaces.mcp.live_imap import TOOLS, account_at, answer, app_with

ID = "imap:default:INBOX:7:2"


def boxes() -> dict[bytes, dict[int, Mail]]:
    return {b"INBOX": mails(5), b"Archive": {}}


async def test_an_account_without_mailboxes_is_no_error(tmp_path):
    async with (
        scripted(mailboxes={}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        body = await answer(app, "imap_list_mailboxes")

    assert ("ok", [], "0 mailboxes") == (
        body["data"]["status"],
        body["data"]["mailboxes"],
        body["summary"],
    )
    assert body["data"]["next_action"]["tool"] in TOOLS


async def test_a_message_that_a_server_refuses_to_remove_is_reported(tmp_path):
    """Proton Bridge does so, although it announces UIDPLUS."""
    replies = {"UID EXPUNGE": b"{tag} NO not here\r\n"}
    async with (
        scripted(mailboxes=boxes(), replies=replies) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        body = await answer(app, "imap_delete_message", message_id=ID, confirm=True)

    data = body["data"]
    assert ("partial", 2, 1) == (data["status"], data["steps_attempted"], data["steps_succeeded"])
    assert ["internal", "not_expunged"] == [issue["code"] for issue in data["issues"]]
    assert "not here" in data["issues"][0]["message"]
    assert body["summary"].startswith("The message was flagged as deleted but not removed")
    assert ("imap_search_messages", {"account_id": "default", "mailbox": "INBOX"}) == (
        data["next_action"]["tool"],
        data["next_action"]["arguments"],
    )
    assert 5 == len(server.mailboxes[b"INBOX"])
    assert not [line for line in server.lines if b" EXPUNGE" in line and b"UID EXPUNGE" not in line]


@pytest.mark.parametrize("refused", ["UID MOVE", "UID COPY", "UID STORE"])
async def test_a_failed_move_is_not_reported_as_moved(tmp_path, refused):
    capabilities = "IMAP4rev1 UIDPLUS" + (" MOVE" if refused == "UID MOVE" else "")
    replies = {refused: b"{tag} NO disk full\r\n"}
    async with (
        scripted(mailboxes=boxes(), replies=replies, capabilities=capabilities) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        body = await answer(app, "imap_move_message", message_id=ID, destination_mailbox="Archive")

    assert "was moved" not in body["summary"]
    assert "disk full" in body["summary"]
    assert ("partial" if refused == "UID STORE" else "failed") == body["data"]["status"]
    assert 2 in server.mailboxes[b"INBOX"]
    assert (refused == "UID STORE") == bool(server.mailboxes[b"Archive"])


async def test_unsupported_flags_are_omitted_from_a_copy(tmp_path):
    odd = boxes()
    odd[b"INBOX"][2].flags = {rb"\Seen", b"[Imap]/Old", b"\xc3\xa9t\xc3\xa9"}
    async with (
        scripted(mailboxes=odd) as here,
        scripted(mailboxes=boxes()) as there,
        app_with(tmp_path, account_at(here.port), account_at(there.port, "WORK")) as app,
    ):
        body = await answer(
            app,
            "imap_copy_message",
            message_id=ID,
            destination_account_id="work",
            destination_mailbox="Archive",
        )

    assert ("ok", "imap:work:Archive:7:1") == (
        body["data"]["status"],
        body["data"]["new_message_id"],
    )
    assert rb"\Seen" in there.mailboxes[b"Archive"][1].flags


async def test_a_copy_goes_without_keywords_where_they_are_refused(tmp_path):
    def append(command: ImapCommand) -> bytes | None:
        return b"{tag} NO keywords are not allowed\r\n" if b"$Todo" in command.rest else None

    tagged = boxes()
    tagged[b"INBOX"][2].flags = {rb"\Seen", b"$Todo"}
    async with (
        scripted(mailboxes=tagged) as here,
        scripted(mailboxes=boxes(), replies={"APPEND": append}) as there,
        app_with(tmp_path, account_at(here.port), account_at(there.port, "WORK")) as app,
    ):
        body = await answer(
            app,
            "imap_copy_message",
            message_id=ID,
            destination_account_id="work",
            destination_mailbox="Archive",
        )

    data = body["data"]
    assert ("partial", ["flags_not_kept"]) == (data["status"], [i["code"] for i in data["issues"]])
    assert body["summary"].startswith("The message was copied to Archive")
    assert {rb"\Seen"} == there.mailboxes[b"Archive"][1].flags


async def test_a_contradictory_search_is_not_reported_as_empty(tmp_path):
    """The IMAP4rev2 of one provider always returns an empty ESEARCH."""
    replies = {
        "UID SEARCH": lambda command: (
            b"* ESEARCH (TAG {tag}) UID COUNT 0\r\n{tag} OK\r\n"
            if b"RETURN" in command.rest
            else None
        )
    }
    async with (
        scripted(mailboxes=boxes(), replies=replies) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        body = await answer(app, "imap_search_messages", mailbox="INBOX")

    data = body["data"]
    assert ("partial", 5, 5) == (data["status"], data["total"], data["returned"])
    assert ["search_inconsistent"] == [issue["code"] for issue in data["issues"]]


async def test_flags_that_were_not_stored_are_not_reported(tmp_path):
    async with (
        scripted(mailboxes=boxes(), replies={"UID STORE": b"{tag} OK sure\r\n"}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        body = await answer(app, "imap_update_message_flags", message_id=ID, add_flags=["$Todo"])

    data = body["data"]
    assert ("failed", False, []) == (data["status"], data["applied_add_flags"], data["flags"])
    assert ["not_applied"] == [issue["code"] for issue in data["issues"]]
    assert body["summary"].startswith("No flag was changed")


async def test_a_wrong_password_is_reported_without_the_password(tmp_path):
    replies = {"LOGIN": b"{tag} NO [AUTHENTICATIONFAILED] secret is wrong\r\n"}
    async with (
        scripted(replies=replies) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        bodies = [
            await answer(app, "imap_search_messages", mailbox="INBOX"),
            await answer(app, "imap_get_message", message_id=ID),
            await answer(app, "imap_delete_message", message_id=ID, confirm=True),
        ]

    for body in bodies:
        data = body["data"]
        assert ("failed", "auth_failed") == (data["status"], data["issues"][0]["code"])
        assert "imap_verify_account" == data["next_action"]["tool"]
        assert "secret is" not in str(body)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("imap_search_messages", {"mailbox": "\ud800"}),
        ("imap_search_messages", {"mailbox": "INBOX", "query": "a\udfffb"}),
        ("imap_get_message", {"message_id": "imap:default:\ud800:7:2"}),
        ("imap_copy_message", {"message_id": ID, "destination_mailbox": "a\ud800"}),
        ("imap_update_message_flags", {"message_id": ID, "add_flags": ["\ud800"]}),
    ],
)
async def test_text_that_imap_cannot_represent_is_refused_before_it_is_sent(
    tmp_path, tool, arguments
):
    async with (
        scripted(mailboxes=boxes()) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        result = await call_tool(app.context(OWNER), TOOLS[tool], arguments)

    assert "invalid_input" == result["structuredContent"]["error"]["code"]
    assert 0 == server.connections


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INUSE", "SERVERBUG"])
async def test_a_login_that_fails_for_now_is_not_a_wrong_password(tmp_path, code):
    replies = {"LOGIN": b"{tag} NO [%s] too many connections\r\n" % code.encode()}
    async with (
        scripted(replies=replies) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        data = (await answer(app, "imap_verify_account"))["data"]

    (issue,) = data["issues"]
    assert ("failed", "internal", True) == (data["status"], issue["code"], issue["retryable"])
    assert "too many connections" in issue["message"]


async def test_a_change_of_some_flags_is_partial(tmp_path):
    box = {b"INBOX": {2: Mail(b"Subject: a\r\n\r\n", {rb"\Seen"})}}
    async with (
        scripted(mailboxes=box, replies={"UID STORE": b"{tag} OK sure\r\n"}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        body = await answer(
            app, "imap_update_message_flags", message_id=ID, add_flags=[r"\Seen", "$Todo"]
        )

    data = body["data"]
    assert ("partial", False, [r"\Seen"]) == (
        data["status"],
        data["applied_add_flags"],
        data["flags"],
    )
    assert ["not_applied"] == [issue["code"] for issue in data["issues"]]
    assert body["summary"].startswith("Flags were changed in part")


async def test_mailboxes_are_listed_once_and_without_unusable_names(tmp_path):
    rows = (
        *(rb'() "/" "INBOX"', rb'() "/" Inbox', rb'() "/" "Work"', rb'(\Sent) "/" "Work"'),
        *(rb'() "/" ""', rb"() NIL NIL", rb'() "/" "caf\xe9"', rb'() "/" "%s"' % (b"x" * 257)),
        b'() "/" {4}\r\na\r\nb',
    )
    listed = b"".join(b"* LIST %s\r\n" % row for row in rows) + b"{tag} OK done\r\n"
    listed = listed.replace(rb"\xe9", b"\xe9")
    async with (
        scripted(replies={"LIST": listed}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        data = (await answer(app, "imap_list_mailboxes"))["data"]

    assert ["INBOX", "Work"] == [mailbox["name"] for mailbox in data["mailboxes"]]
    assert ("partial", ["left_out"]) == (data["status"], [i["code"] for i in data["issues"]])
    assert "3 mailboxes" in data["issues"][0]["message"]


SEPARATE = (
    b"* 1 FETCH (UID 2 FLAGS (\\Seen))\r\n* 1 FETCH (UID 2 INTERNALDATE NIL %s {%d}\r\n%s)\r\n"
)


@pytest.mark.parametrize("tool", ["imap_search_messages", "imap_get_message"])
async def test_an_answer_may_come_in_several_responses(tmp_path, tool):
    def fetch(command: ImapCommand) -> bytes | None:
        header = b"Subject: Hello\r\n\r\n"
        if b"[HEADER" not in command.rest:
            return None
        item = b"BODY[HEADER]" if b"[HEADER]" in command.rest else b"BODY[HEADER.FIELDS (SUBJECT)]"
        return SEPARATE % (item, len(header), header) + b"{tag} OK done\r\n"

    box = {b"INBOX": {2: Mail(b"Subject: Hello\r\n\r\n")}}
    arguments = {"message_id": ID} if tool == "imap_get_message" else {"mailbox": "INBOX"}
    async with (
        scripted(mailboxes=box, replies={"UID FETCH": fetch}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        data = (await answer(app, tool, **arguments))["data"]

    message = data["message"] if tool == "imap_get_message" else data["messages"][0]
    assert ("ok", "Hello", [r"\Seen"]) == (data["status"], message["subject"], message["flags"])


@pytest.mark.parametrize(
    "tool", ["imap_search_messages", "imap_get_message", "imap_get_message_raw"]
)
async def test_an_answer_of_nil_is_a_message_that_is_gone(tmp_path, tool):
    def fetch(command: ImapCommand) -> bytes | None:
        names = [
            item for item in (b"FLAGS", b"RFC822.SIZE", b"BODYSTRUCTURE") if item in command.rest
        ]
        names += [b"BODY[HEADER.FIELDS (DATE)]"] if b"HEADER.FIELDS" in command.rest else []
        items = b"".join(b" %s NIL" % name for name in names)
        return b"* 1 FETCH (UID 2%s)\r\n{tag} OK done\r\n" % items

    arguments = {"mailbox": "INBOX"} if tool == "imap_search_messages" else {"message_id": ID}
    box = {b"INBOX": {2: Mail(b"Subject: Hello\r\n\r\n")}}
    async with (
        scripted(mailboxes=box, replies={"UID FETCH": fetch}) as server,
        app_with(tmp_path, account_at(server.port)) as app,
    ):
        data = (await answer(app, tool, **arguments))["data"]

    assert ("failed", ["not_found"]) == (data["status"], [i["code"] for i in data["issues"]])


@pytest.mark.parametrize("is_reachable", [True, False])
async def test_a_failed_copy_to_another_account_is_failed_and_suggests_to_look_there(
    tmp_path, is_reachable
):
    async with (
        scripted(mailboxes=boxes()) as server,
        scripted(replies={} if is_reachable else {"LOGIN": b"{tag} NO wrong\r\n"}) as other,
        app_with(tmp_path, account_at(server.port), account_at(other.port, "work")) as app,
    ):
        body = await answer(
            app,
            "imap_copy_message",
            message_id=ID,
            destination_account_id="work",
            destination_mailbox="Missing",
        )

    assert "failed" == body["data"]["status"]
    assert body["summary"].startswith("The message was not copied")
    step = body["data"]["next_action"]
    tool = "imap_list_mailboxes" if is_reachable else "imap_verify_account"
    assert (tool, {"account_id": "work"}) == (step["tool"], step["arguments"])
