"""Contract 002: reading a live message and its source."""

from __future__ import annotations

import base64
from email.message import EmailMessage
from typing import Any

import pytest

from tests.contract.live_imap import Agent, id_of
from tests.contract.requirements import requirement
from tests.mails import mail
from tests.pdf import make_pdf
from tests.servers.imaplib_client import ImaplibMailbox

PDF = make_pdf("Invoice 4711", ["Total: 99 EUR", "Due: soon"])
MB = 1024 * 1024


async def get(agent: Agent, box: ImaplibMailbox, uid: int, **arguments: Any) -> dict[str, Any]:
    return await agent.data("imap_get_message", message_id=id_of(box, uid), **arguments)


def codes(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(issue["code"], issue["stage"]) for issue in data["issues"]]


@requirement("imap:get")
@requirement("imap:message-id")
async def test_a_message_has_all_its_fields_and_stays_unread(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid = box.append(
        mail("Größe", "Hello\nthere.", to="Bo <bo@x.org>, Cleo <c@x.org>", cc="d@x.org"),
        [r"\Flagged"],
    )

    body = await agent.call("imap_get_message", message_id=id_of(box, uid))

    data = body["data"]
    assert body["untrusted"]
    assert "The message was read" == body["summary"]
    assert ("ok", [], "default") == (data["status"], data["issues"], data["account_id"])
    message = data["message"]
    assert {
        "message_id": id_of(box, uid),
        "mailbox": box.name,
        "uidvalidity": box.uidvalidity,
        "uid": uid,
        "date": "2026-03-01T09:00:00Z",
        "from": "Ana Lee <ana@example.com>",
        "to": "Bo <bo@x.org>, Cleo <c@x.org>",
        "cc": "d@x.org",
        "subject": "Größe",
        "body_text": "Hello\nthere.",
        "attachments": [],
    } == {name: message[name] for name in message if name not in ("headers", "flags")}
    assert r"\Flagged" in message["flags"]
    assert {r"\Flagged"} == box.flags(uid)


@requirement("imap:message-id")
async def test_a_mailbox_name_may_contain_colons_and_any_letter(agent: Agent, dovecot: Any) -> None:
    from tests.servers.imaplib_client import imaplib_mailbox

    with imaplib_mailbox(dovecot, "alice", "a:1:2: ü", "a:1:2: &APw-") as box:
        uid = box.append(mail("Found"))
        searched = await agent.data("imap_search_messages", mailbox="a:1:2: ü")
        data = await agent.data(
            "imap_get_message", message_id=searched["messages"][0]["message_id"]
        )

    assert ("Found", "a:1:2: ü", uid) == (
        data["message"]["subject"],
        data["message"]["mailbox"],
        data["message"]["uid"],
    )


@requirement("imap:message-id")
@pytest.mark.parametrize(
    "message_id",
    [
        "",
        "msg_123",
        "imap:default:INBOX:1",
        "imap::INBOX:1:1",
        "imap:default::1:1",
        "IMAP:default:INBOX:1:1",
        "imap:default:INBOX:1:-1",
        "imap:default:INBOX:x:1",
        "imap:default:INBOX:1:1.5",
        "imap:default:INBOX:1:4294967296",
        "imap:default:INBOX:1:١",
        "imap:a b:INBOX:1:1",
        "imap:default:IN\r\nBOX:1:1",
        "imap:default:" + "x" * 257 + ":1:1",
    ],
)
async def test_a_malformed_message_id_is_refused(agent: Agent, message_id: str) -> None:
    for tool in ("imap_get_message", "imap_get_message_raw"):
        error = await agent.error(tool, message_id=message_id)

        assert "invalid_input" == error["code"]
        assert error["message"].startswith("message_id")


@requirement("imap:message-id-account")
async def test_the_account_may_be_omitted_and_must_not_differ(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Hello"))

    named = await get(agent, box, uid, account_id="default")
    error = await agent.error("imap_get_message", message_id=id_of(box, uid), account_id="work")

    assert "ok" == named["status"]
    assert "invalid_input" == error["code"]
    assert "message_id names default" in error["message"]


@requirement("imap:soft")
async def test_a_missing_message_is_reported_in_data(agent: Agent, box: ImaplibMailbox) -> None:
    uid = box.append(mail("Hello"))
    box.remove(uid)

    for gone in (uid, 0):
        data = await get(agent, box, gone)

        assert ("failed", None) == (data["status"], data["message"])
        assert [("not_found", "fetch")] == codes(data)
        assert (gone, id_of(box, gone)) == (
            data["issues"][0]["uid"],
            data["issues"][0]["message_id"],
        )


@requirement("imap:error")
async def test_a_message_of_a_recreated_mailbox_is_a_conflict(
    agent: Agent, box: ImaplibMailbox
) -> None:
    old = id_of(box, box.append(mail("Old")))
    box.recreate()
    box.append(mail("New"))

    for tool in ("imap_get_message", "imap_get_message_raw"):
        error = await agent.error(tool, message_id=old)

        assert "conflict" == error["code"]


@requirement("imap:get-body")
async def test_the_text_has_the_requested_length_and_truncation_is_reported(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Long", "Grüße " * 5000))

    default = await get(agent, box, uid)
    short = await get(agent, box, uid, body_max_chars=100)
    long = await get(agent, box, uid, body_max_chars=20_000)

    lengths = [len(data["message"]["body_text"]) for data in (default, short, long)]
    assert [2000, 100, 20_000] == lengths
    assert [("truncated", "body_text")] == codes(default) == codes(short) == codes(long)
    assert "partial" == default["status"]
    assert "Grüße " * 333 in long["message"]["body_text"]


@requirement("imap:get-body")
@requirement("imap:get-pdf")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"body_max_chars": 99}, "body_max_chars"),
        ({"body_max_chars": 20_001}, "body_max_chars"),
        ({"attachment_text_max_chars": 5000}, "needs extract_attachment_text"),
        ({"attachment_text_max_chars": 99, "extract_attachment_text": True}, "attachment_text"),
        ({"attachment_text_max_chars": 50_001, "extract_attachment_text": True}, "attachment"),
        ({"include_html": "perhaps"}, "include_html"),
    ],
)
async def test_bounds_are_kept(agent: Agent, arguments: dict[str, Any], said: str) -> None:
    error = await agent.error("imap_get_message", message_id="imap:default:INBOX:1:1", **arguments)

    assert "invalid_input" == error["code"]
    assert said in error["message"]


@pytest.mark.parametrize("charset", ["utf-8", "iso-2022-jp", "gb2312", "windows-1251", "utf-16"])
async def test_text_is_decoded_from_any_charset(
    agent: Agent, box: ImaplibMailbox, charset: str
) -> None:
    text = {"iso-2022-jp": "日本語", "gb2312": "中文", "windows-1251": "привет"}.get(charset, "ünï")
    encoded = base64.encodebytes(f"{text} {text}".encode(charset))
    head = f'Content-Type: text/plain; charset="{charset}"\nContent-Transfer-Encoding: base64\n\n'
    uid = box.append(b"Subject: x\nMIME-Version: 1.0\n" + head.encode() + encoded)

    data = await get(agent, box, uid)

    assert f"{text} {text}" == data["message"]["body_text"].strip("\ufeff")


HEADERS = [
    ("Reply-To", "list@x.org"),
    ("List-Unsubscribe", "<mailto:leave@x.org>"),
    ("X-Mailer", "Pigeon 1.0"),
    ("Authorization", "Bearer canary-77"),
]


@requirement("imap:get-headers")
@requirement("imap:secrets")
async def test_headers_are_curated_all_or_none(agent: Agent, box: ImaplibMailbox) -> None:
    uid = box.append(
        mail("Re: x", in_reply_to="<a@x>", references=["<a@x>", "<b@x>"], headers=HEADERS)
    )

    curated = (await get(agent, box, uid))["message"]["headers"]
    whole = (await get(agent, box, uid, include_all_headers=True))["message"]["headers"]
    none = (await get(agent, box, uid, include_headers=False))["message"]

    names = {header["name"] for header in curated}
    needed = {"Reply-To", "In-Reply-To", "References", "Message-ID", "List-Unsubscribe", "From"}
    assert needed <= names
    assert "X-Mailer" not in names
    assert {"name": "References", "value": "<a@x> <b@x>"} in curated
    assert {"X-Mailer", "MIME-Version"} <= {header["name"] for header in whole}
    assert "headers" not in none
    assert "canary-77" not in str(whole)


@requirement("imap:get-html")
async def test_html_is_harmless_and_loads_nothing(agent: Agent, box: ImaplibMailbox) -> None:
    html = (
        "<html><head><style>b{}</style></head><body onload='x()'><p>Hello <b>you</b></p>"
        "<img src='https://spy.example/p.png'><script>alert(1)</script>"
        "<a href='javascript:x()'>a</a><div style='background:url(https://spy.example)'>z</div>"
        + "<p>more words</p>"
        * 400
    )
    uid = box.append(mail("HTML", "Hello you", html=html))

    without = await get(agent, box, uid)
    data = await get(agent, box, uid, include_html=True)

    found = data["message"]["body_html"]
    assert "body_html" not in without["message"]
    assert "<p>Hello <b>you</b></p>" in found
    assert not [bad for bad in ("script", "onload", "spy.example", "javascript") if bad in found]
    assert len(found) <= 2000
    assert found.count("<p>") == found.count("</p>")
    assert ("truncated", "body_html") in codes(data)


async def test_the_text_of_mail_that_is_only_html(agent: Agent, box: ImaplibMailbox) -> None:
    style = "<style>" + "p { color: red }\n" * 2000 + "</style>"
    uid = box.append(mail("HTML", None, html=f"<html><head>{style}</head><p>Seen text</p>"))

    data = await get(agent, box, uid)

    assert ("ok", "Seen text") == (data["status"], data["message"]["body_text"])


@requirement("imap:get-attachments")
async def test_attachments_are_listed_with_name_type_size_and_part(
    agent: Agent, box: ImaplibMailbox
) -> None:
    inner = EmailMessage()
    inner["Subject"] = "Inside"
    inner.set_content("Inner text")
    inner.add_attachment(b"12345", maintype="text", subtype="csv", filename="in.csv")
    outer = EmailMessage()
    outer["Subject"] = "Outside"
    outer.set_content("Outer text")
    outer.add_attachment(b"\0" * 5000, maintype="image", subtype="png", filename="Größe 日本.png")
    outer.add_attachment(inner)
    uid = box.append(outer.as_bytes())

    data = await get(agent, box, uid)

    rows = data["message"]["attachments"]
    assert "Outer text" in data["message"]["body_text"]
    assert {
        "filename": "Größe 日本.png",
        "content_type": "image/png",
        "size_bytes": 5000,
        "part_id": "2",
    } == rows[0]
    assert ("message/rfc822", "3") == (rows[1]["content_type"], rows[1]["part_id"])
    assert ("in.csv", "text/csv", 5, "3.2") == tuple(
        rows[2][name] for name in ("filename", "content_type", "size_bytes", "part_id")
    )


@requirement("imap:get-attachments")
async def test_more_than_fifty_attachments_are_truncated_with_a_warning(
    agent: Agent, box: ImaplibMailbox
) -> None:
    uid = box.append(mail("Many", attachments=[(f"{n}.bin", "a/b", b"x") for n in range(53)]))

    data = await get(agent, box, uid)

    assert 50 == len(data["message"]["attachments"])
    assert ("partial", [("truncated", "attachments")]) == (data["status"], codes(data))


@requirement("imap:get-pdf")
async def test_the_text_of_a_pdf_is_returned_on_request_and_bounded(
    agent: Agent, box: ImaplibMailbox
) -> None:
    files = [("i.pdf", "application/pdf", PDF), ("i.bin", "application/octet-stream", PDF)]
    long = make_pdf("Long", ["word " * 15] * 30)
    uid = box.append(mail("Invoice", attachments=[*files, ("l.pdf", "application/pdf", long)]))

    without = await get(agent, box, uid)
    data = await get(agent, box, uid, extract_attachment_text=True, attachment_text_max_chars=100)

    assert not [row for row in without["message"]["attachments"] if "extracted_text" in row]
    pdf, other, cut = data["message"]["attachments"]
    assert "Invoice 4711\nTotal: 99 EUR\nDue: soon" == pdf["extracted_text"]
    assert "extracted_text" not in other
    assert 100 == len(cut["extracted_text"])
    assert [("truncated", "extract")] == codes(data)


@requirement("imap:get-pdf-size")
@requirement("imap:get-pdf-failure")
async def test_a_pdf_that_is_too_large_or_broken_does_not_fail_the_call(
    agent: Agent, box: ImaplibMailbox
) -> None:
    files = [
        ("large.pdf", "application/pdf", PDF + b"\0" * (5 * MB)),
        ("broken.pdf", "application/pdf", b"%PDF-1.7 broken"),
        ("good.pdf", "application/pdf", PDF),
    ]
    uid = box.append(mail("PDFs", "See the files.", attachments=files))

    data = await get(agent, box, uid, extract_attachment_text=True)

    large, broken, good = data["message"]["attachments"]
    assert "partial" == data["status"]
    assert {("invalid_input", "extract"), ("extraction_failed", "extract")} == set(codes(data))
    assert "See the files." == data["message"]["body_text"]
    assert "extracted_text" not in large
    assert "extracted_text" not in broken
    assert "Invoice 4711" in good["extracted_text"]


@requirement("imap:raw")
async def test_the_source_is_the_message_byte_for_byte(agent: Agent, box: ImaplibMailbox) -> None:
    uid = box.append(mail("Source", "Zeile ü", attachments=[("b", "a/b", bytes(range(256)))]))

    body = await agent.call("imap_get_message_raw", message_id=id_of(box, uid))

    data = body["data"]
    assert body["untrusted"]
    assert {
        *("status", "issues", "account_id", "message_id", "size_bytes"),
        *("raw_source_base64", "raw_source_encoding"),
    } == data.keys()
    assert box.raw(uid) == base64.b64decode(data["raw_source_base64"], validate=True)
    assert ("ok", "base64", len(box.raw(uid)), id_of(box, uid)) == (
        data["status"],
        data["raw_source_encoding"],
        data["size_bytes"],
        data["message_id"],
    )
    assert set() == box.flags(uid)


@requirement("imap:raw-bytes")
async def test_a_long_source_is_truncated_with_a_warning(agent: Agent, box: ImaplibMailbox) -> None:
    uid = box.append(mail("Long", "x" * 70 + "\n" + "y\n" * 200_000))

    default = await agent.data("imap_get_message_raw", message_id=id_of(box, uid))
    whole = await agent.data(
        "imap_get_message_raw", message_id=id_of(box, uid), max_bytes=1_000_000
    )
    errors = [
        await agent.error("imap_get_message_raw", message_id=id_of(box, uid), max_bytes=size)
        for size in (1023, 1_000_001)
    ]

    assert 200_000 == len(base64.b64decode(default["raw_source_base64"]))
    assert ("partial", [("truncated", "fetch")]) == (default["status"], codes(default))
    assert default["size_bytes"] == whole["size_bytes"] == len(box.raw(uid))
    assert "ok" == whole["status"]
    assert ["invalid_input"] * 2 == [error["code"] for error in errors]


@requirement("imap:raw")
async def test_the_source_of_nothing_is_null(agent: Agent, box: ImaplibMailbox) -> None:
    data = await agent.data("imap_get_message_raw", message_id=id_of(box, 4711))

    assert ("failed", None, None) == (
        data["status"],
        data["raw_source_base64"],
        data["raw_source_encoding"],
    )
    assert [("not_found", "fetch")] == codes(data)
