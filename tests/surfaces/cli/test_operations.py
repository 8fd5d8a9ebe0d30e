"""Every operation at the terminal: its arguments, its output, and their order."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest

from postroom.calls.operation import call
from postroom.errors import Unauthenticated
from postroom.model.key import OWNER
from postroom.operations.mail.messages import get_message, list_messages
from postroom.surfaces.cli.session import Session
from postroom.surfaces.to_json import response_body
from tests.mails import mail

PDF = ("report.pdf", "application/pdf", b"%PDF-1.4 hello")


def ids(page: dict[str, object]) -> list[str]:
    return [row["id"] for row in page["results"]]


def test_inboxes_are_made_shown_renamed_and_deleted(postroom):
    made = postroom("inbox", "create", "ana@postroom.localhost", "-o", "json").json
    shown = postroom("inbox", "show", made["id"], "-o", "json").json
    renamed = postroom("inbox", "rename", made["id"], "Ana Lee", "-o", "json").json
    listed = postroom("inbox", "list", "-o", "json").json
    deleted = postroom("inbox", "delete", made["id"], "-o", "json")

    assert made == shown
    assert "Ana Lee" == renamed["name"]
    assert [renamed] == listed["results"]
    assert (0, {}) == (deleted.code, deleted.json)
    assert 0 == postroom("inbox", "list", "-o", "json").json["total"]


def test_an_inbox_with_mail_is_deleted_only_by_force(postroom, inbox, receive):
    receive(mail())

    refused = postroom("inbox", "delete", inbox["id"])
    forced = postroom("inbox", "delete", inbox["id"], "--force")

    assert (5, 0) == (refused.code, forced.code)


def test_a_mail_comes_from_a_file_or_from_standard_input(postroom, inbox, tmp_path):
    raw = mail("From a file")
    (tmp_path / "a.eml").write_bytes(raw)
    words = ("message", "receive", inbox["address"])

    first = postroom(*words, tmp_path / "a.eml", "-o", "json").json
    again = postroom(*words, "-", "-o", "json", stdin=raw).json

    assert ("received", "duplicate") == (first["status"], again["status"])
    assert first["message_id"] == again["message_id"]


def test_json_is_exactly_the_answer_of_the_operation(postroom, inbox, receive):
    message_id = receive(mail("Grüße", attachments=[PDF]))["message_id"]

    listed = postroom("message", "list", inbox["id"], "-o", "json")
    shown = postroom("message", "show", message_id, "--include-headers", "-o", "json")

    wanted = Session().run(lambda app: _answers(app, inbox["id"], message_id))
    assert [json.dumps(a, ensure_ascii=False, separators=(",", ":")) for a in wanted] == [
        listed.out.rstrip("\n"),
        shown.out.rstrip("\n"),
    ]


async def _answers(app, inbox_id, message_id):
    ctx = app.context(OWNER)
    page = await call(ctx, list_messages, {"inbox_id": inbox_id})
    message = await call(ctx, get_message, {"message_id": message_id, "include_headers": True})
    return response_body(list_messages, page), response_body(get_message, message)


def test_an_argument_stands_alone_or_behind_its_option(postroom, receive):
    message_id = receive(mail())["message_id"]

    ways = [
        postroom("message", "move", message_id, "Archive"),
        postroom("message", "move", "--message-id", message_id, "Archive"),
        postroom("message", "move", "--destination", "Archive", message_id),
        postroom("message", "move", "--message-id", message_id, "--destination", "Archive"),
    ]

    assert [0, 0, 0, 0] == [way.code for way in ways]


def test_the_data_folder_and_the_output_are_named_before_or_after(postroom, tmp_path):
    folder = tmp_path / "other"
    postroom("inbox", "create", "--username", "eve", "--data", folder)

    before = postroom("--data", folder, "-o", "json", "inbox", "list")
    after = postroom("inbox", "list", "--data", folder, "--output=json")

    assert 1 == before.json["total"]
    assert before.out == after.out


def test_messages_are_found_by_text_and_by_every_filter(postroom, inbox, receive):
    wanted = receive(mail("CAFÉ 100%", sender="Zoë <zoe@shop.example>", attachments=[PDF]))
    receive(mail("Tea"))
    filters = [
        ["café"],
        ["--q", "100%"],
        ["--from", "@shop.example"],
        ["--has-attachment"],
        ["--q", "report.pdf", "--inbox-id", inbox["id"]],
        ["--from", "zoë", "--after-date", "2026-02-28", "--before-date", "2026-03-02"],
    ]

    found = [ids(postroom("search", *words, "-o", "json").json) for words in filters]

    assert [[wanted["message_id"]]] * len(filters) == found
    assert 1 == postroom("search", "--no-has-attachment", "-o", "json").json["total"]


def test_pages_go_on_with_their_cursor(postroom, inbox, receive):
    sent = [receive(mail(f"Number {n}"))["message_id"] for n in range(5)]
    words = ("message", "list", inbox["id"], "--limit", "2", "-o", "json")

    pages = [postroom(*words).json]
    while pages[-1]["has_more"]:
        pages.append(postroom(*words, "--cursor", pages[-1]["next_cursor"]).json)

    assert sent[::-1] == [id_ for page in pages for id_ in ids(page)]


def test_labels_and_flags_are_put_on_and_taken_off(postroom, receive):
    message_id = receive(mail())["message_id"]

    postroom("message", "label", "Work", message_id)
    postroom("message", "label", "Later", message_id)
    postroom("message", "label", "later", message_id, "--remove")
    postroom("message", "flag", message_id, "seen", "flagged")
    labelled = postroom("message", "show", message_id, "-o", "json").json
    postroom("message", "update", message_id, "--label", "A", "--label", "B", "--flag", "")
    updated = postroom("message", "show", message_id, "-o", "json").json

    assert (["Work"], ["seen", "flagged"]) == (labelled["labels"], labelled["flags"])
    assert (["A", "B"], []) == (updated["labels"], updated["flags"])
    assert [["A", "1"], ["B", "1"]] == postroom("label", "list").rows


def test_one_failure_of_several_is_reported_with_its_exit_code(postroom, receive):
    message_id = receive(mail())["message_id"]

    result = postroom("message", "label", "Work", message_id, "msg_gone", "-o", "json")

    assert (3, "partial", [message_id]) == (
        result.code,
        result.json["status"],
        result.json["succeeded"],
    )
    assert "not_found" == result.error["code"]


def test_a_deleted_message_is_in_trash_until_it_is_removed(postroom, inbox, receive):
    message_id = receive(mail())["message_id"]

    postroom("message", "delete", message_id)
    trash = postroom("message", "list", inbox["id"], "--mailbox", "Trash", "-o", "json").json
    postroom("message", "delete", message_id, "--permanent")

    assert [message_id] == ids(trash)
    assert 3 == postroom("message", "show", message_id).code


def test_the_source_of_a_message_comes_out_byte_for_byte(postroom, receive, tmp_path):
    raw = mail("Grüße").replace(b"\n", b"\r\n") + b"\x00\xff\r"
    message_id = receive(raw)["message_id"]

    postroom("message", "raw", message_id, "--to", tmp_path / "a.eml")

    assert raw == (tmp_path / "a.eml").read_bytes()


def test_threads_are_listed_read_merged_and_split(postroom, inbox, receive):
    first, second = receive(mail("One")), receive(mail("Two"))

    merged = postroom("thread", "merge", first["thread_id"], second["thread_id"], "-o", "json")
    split = postroom("thread", "split", first["thread_id"], second["message_id"], "-o", "json").json

    assert ["One", "Two"] == [m["subject"] for m in merged.json["messages"]]
    assert ["Two"] == [m["subject"] for m in split["messages"]]
    assert {first["thread_id"], split["id"]} == set(
        ids(postroom("thread", "list", inbox["id"], "-o", "json").json)
    )


def test_attachments_are_listed_read_and_saved(postroom, receive, tmp_path):
    message_id = receive(mail(attachments=[PDF]))["message_id"]

    [listed] = postroom("attachment", "list", message_id, "-o", "json").json["results"]
    shown = postroom("attachment", "show", listed["id"], "-o", "json").json
    content = postroom("attachment", "content", listed["id"], "-o", "json").json
    saved = postroom("attachment", "save", listed["id"], "-o", "json").json

    assert listed.items() <= shown.items()
    assert PDF[2] == b64decode(content["content"]) == Path("report.pdf").read_bytes()
    assert {"path": "report.pdf", "size": len(PDF[2])} == saved


def test_saving_never_overwrites_a_file(postroom, receive):
    message_id = receive(mail(attachments=[PDF]))["message_id"]
    attachment_id = postroom("attachment", "list", message_id).rows[0][0]
    Path("report.pdf").write_text("mine")

    refused = postroom("attachment", "save", attachment_id)

    assert (5, "mine") == (refused.code, Path("report.pdf").read_text())


@pytest.mark.parametrize(
    "name", ["../../evil.sh", "/etc/passwd", ".bashrc", "a\u202egpj.exe", ".."]
)
def test_a_saved_file_stays_in_this_folder_whatever_its_name(postroom, receive, name):
    message_id = receive(mail(attachments=[(name, "text/plain", b"x")]))["message_id"]
    attachment_id = postroom("attachment", "list", message_id).rows[0][0]

    saved = postroom("attachment", "save", attachment_id, "-o", "json").json

    [only] = Path().iterdir()
    assert str(only) == saved["path"]
    assert not saved["path"].startswith(".")


def test_a_mail_is_sent_with_files_and_answered_in_its_thread(postroom, inbox, tmp_path):
    postroom("inbox", "create", "ana@postroom.localhost")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "body.txt").write_text("Text with ümlauts.")

    sent = postroom(
        "send", "--from", inbox["address"], "--to", "ana@postroom.localhost", "--cc", "c@d.example",
        "--subject", "Plan", "--text-file", tmp_path / "body.txt",
        "--attach", tmp_path / "notes.txt", "-o", "json",
    ).json  # fmt: skip
    arrived = postroom("search", "ümlauts", "--to", "ana@postroom.localhost", "-o", "json").json
    [copy] = [row for row in arrived["results"] if row["direction"] == "inbound"]
    replied = postroom("message", "reply", copy["id"], "--text", "Good.", "-o", "json").json
    forwarded = postroom("message", "forward", copy["id"], "--to", "x@y.example", "-o", "json").json

    assert {"ana@postroom.localhost": "delivered", "c@d.example": "captured"} == {
        r["address"]: r["status"] for r in sent["recipients"]
    }
    assert copy["thread_id"] == replied["thread_id"]
    assert 3 == postroom("search", "notes.txt", "--mailbox", "*", "-o", "json").json["total"]
    assert "captured" == forwarded["status"]


def test_a_body_is_given_once(postroom, inbox):
    words = ("send", "--to", "a@b.example", "--subject", "x", "--text", "x", "--text-file", "-")

    result = postroom(*words, stdin=b"y")

    assert (2, "error: give --body-text or --text-file, not both\n") == (result.code, result.err)


def test_the_same_send_twice_is_one_mail(postroom, inbox):
    words = ("send", "--to", "a@b.example", "--subject", "x", "--text", "x", "-o", "json")

    first, second = postroom(*words).json, postroom(*words).json

    assert first["message_id"] == second["message_id"]
    assert second["deduplicated"]


def test_keys_are_made_listed_and_revoked(postroom, inbox):
    made = postroom(
        "key", "create", "crm", "--scope", "read", "--scope", "send", "--inbox", inbox["id"],
        "-o", "json",
    ).json  # fmt: skip
    listed = postroom("key", "list", "-o", "json").json["results"]
    revoked = postroom("key", "delete", made["id"])

    assert (["read", "send"], [inbox["id"]]) == (made["scopes"], made["inboxes"])
    assert made["key"] not in json.dumps(listed)
    assert [made["id"]] == [key["id"] for key in listed]
    assert 0 == revoked.code


def test_the_owners_key_is_replaced(postroom):
    first = Path(postroom("key", "reset", "-o", "json").json["key_file"]).read_text().strip()
    second = Path(postroom("key", "reset").out.strip()).read_text().strip()

    assert "owner" == Session().run(lambda app: app.authenticate(second)).key_id
    with pytest.raises(Unauthenticated):
        Session().run(lambda app: app.authenticate(first))


def test_an_owners_key_from_the_settings_is_not_replaced(postroom, monkeypatch):
    monkeypatch.setenv("POSTROOM_API_KEY", "canary-0123456789-of-the-owner")

    result = postroom("key", "reset")

    assert 5 == result.code
    assert "canary" not in result.out + result.err


def test_a_code_is_printed_alone(postroom, inbox, receive):
    receive(mail("Sign in", "Your code is 482913."))

    ran = postroom("message", "wait", inbox["id"], "--extract", "code")

    assert (0, "482913\n") == (ran.code, ran.out)


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_wait_that_times_out_has_the_exit_code_of_timeout(postroom, inbox, output):
    words = ("message", "wait", inbox["id"], "--timeout-s", 1, "--since", "-5", "-o", output)

    assert 124 == postroom(*words).code


def test_the_text_of_an_attachment_is_printed(postroom, inbox, receive):
    html = b"<p>Hello</p><p hidden>secret words</p>"
    received = receive(mail("File", attachments=[("a.html", "text/html", html)]))
    listed = postroom("attachment", "list", received["message_id"], "-o", "json").json

    ran = postroom("attachment", "text", listed["results"][0]["id"])
    part = postroom("attachment", "text", listed["results"][0]["id"], "--max-chars", 2)

    assert (0, "Hello\n") == (ran.code, ran.out)
    assert "warning: hidden text omitted" in ran.err
    assert "He\n" == part.out
    assert "2 of 5 characters; continue with --offset 2" in part.err
