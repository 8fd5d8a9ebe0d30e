"""Attachments of stored mail as text, over REST."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.model.inbox import Inbox
from tests.mails import deliver, mail
from tests.office_files import paragraph, shape, slides, word, workbook
from tests.pdf import make_pdf
from tests.surfaces.rest.conftest import RestClient

OCTETS = "application/octet-stream"
CELLS = '<sheetData><row><c r="A1"><v>4</v></c></row></sheetData>'
CALENDAR = b"""BEGIN:VCALENDAR\r
METHOD:REQUEST\r
BEGIN:VEVENT\r
SUMMARY:Tea\\, with cake\r
DTSTART;TZID=Europe/Berlin:20260301T150000\r
DTEND:20260301T150000Z\r
ORGANIZER;CN="Ana: boss":mailto:ana@example.com\r
DESCRIPTION:Bring\r
  cups\r
BEGIN:VALARM\r
DESCRIPTION:Reminder\r
END:VALARM\r
END:VEVENT\r
END:VCALENDAR\r
"""
NESTED = b"""From: Ana <ana@example.com>\r
To: bo@example.com\r
Subject: Inner\r
Date: Sun, 01 Mar 2026 15:00:00 +0000\r
\r
Words inside.\r
"""
CALENDAR_TEXT = """\
Method: REQUEST

Summary: Tea, with cake
Start: 2026-03-01 15:00:00 Europe/Berlin
End: 2026-03-01 15:00:00 UTC
Organizer: ana@example.com
Description: Bring cups"""
NESTED_TEXT = """\
From: Ana <ana@example.com>
To: bo@example.com
Date: 2026-03-01 15:00:00 +0000
Subject: Inner

Words inside."""
FILES: dict[str, tuple[str, str, bytes, str]] = {
    "pdf": ("a.pdf", "application/pdf", make_pdf("Invoice", ["Total: 9"]), "Invoice\nTotal: 9"),
    "pdf, undeclared": ("a", OCTETS, make_pdf("Invoice", []), "Invoice"),
    "word": ("a.docx", OCTETS, word(paragraph("Hello")), "Hello"),
    "excel": ("a.xlsx", OCTETS, workbook({"One": CELLS}), "Sheet: One\n4"),
    "powerpoint": ("a.pptx", OCTETS, slides(shape("Title")), "Slide 1\nTitle"),
    "rtf": ("a.rtf", "application/rtf", rb"{\rtf1 Hello}", "Hello"),
    "html": ("a.html", "text/html", b"<p>Hello<p>World", "Hello\n\nWorld"),
    "html by its name": ("a.htm", OCTETS, b"<p>Hello<p>World", "Hello\n\nWorld"),
    "csv": ("a.csv", "text/csv", b"a;b\r\n1;2\r\n", "a;b\n1;2"),
    "tsv": ("a.tsv", "text/tab-separated-values", b"a\tb\n", "a\tb"),
    "json": ("a.json", "application/json", b'{"a": [1]}', '{"a": [1]}'),
    "markdown": ("a.md", OCTETS, "# Ähm".encode(), "# Ähm"),
    "source": ("a.py", "text/x-python", b"def f():\n    return 1\n", "def f():\n    return 1"),
    "utf-16": ("a.txt", "text/plain", "Grüße".encode("utf-16"), "Grüße"),
    "mark": ("a.txt", "text/plain", b"\xef\xbb\xbfHello", "Hello"),
    "declared": ("a.txt", "text/plain; charset=koi8-r", "Привет".encode("koi8-r"), "Привет"),
    "guessed": ("a.txt", "text/plain", "Grüße aus Köln".encode("latin-1"), "Grüße aus Köln"),
    "nothing": ("a.txt", "text/plain", b"", ""),
    "calendar": (
        "a.ics",
        "text/calendar",
        CALENDAR,
        CALENDAR_TEXT,
    ),
    "mail": (
        "a.eml",
        OCTETS,
        NESTED,
        NESTED_TEXT,
    ),
}


async def attached(
    ctx: Any, inbox: Inbox, rest: RestClient, name: str, kind: str, data: bytes
) -> str:
    """The id of an attachment of a delivered mail."""
    received = await deliver(ctx, inbox, mail("File", attachments=[(name, kind, data)]))
    page = await rest.get("/v1/attachments", message_id=received.message_id)
    id_: str = page["results"][0]["id"]
    return id_


@pytest.mark.parametrize("kind", FILES)
async def test_the_text_of_each_kind_of_file(ctx, inbox, rest, kind):
    name, declared, data, text = FILES[kind]
    id_ = await attached(ctx, inbox, rest, name, declared, data)

    found = await rest.get(f"/v1/attachments/{id_}/content", format="text")

    assert {
        "untrusted": True,
        "text": text,
        "content_type": declared.partition(";")[0],
        "filename": name,
        "size": len(data),
        "warnings": [],
    } == found


HIDING = b"<p style='display:none'>secret words</p><p>Hello</p>"
HIDING_MAIL = NESTED.replace(b"\r\n\r\n", b"\r\nContent-Type: text/html\r\n\r\n" + HIDING)
TAGS = "".join(chr(0xE0000 + ord(c)) for c in "secret words")


def excel(attributes: str, *, column: str = "", **state: str) -> bytes:
    """A workbook with hidden text in its second row, column or sheet."""
    words = "<is><t>secret words</t></is>"
    seen = '<row><c r="A1" t="inlineStr"><is><t>Hello</t></is></c></row>'
    more = f'<row {attributes}><c r="B2" t="inlineStr">{words}</c></row>'
    first = seen if state else seen + more
    sheet = f"{column}<sheetData>{first}</sheetData>"
    return workbook(
        {"One": sheet, "Two": f"<sheetData>{more}</sheetData>"} if state else {"One": sheet},
        **state,
    )


HIDDEN = {
    "excel row": ("a.xlsx", OCTETS, excel('hidden="1"')),
    "excel row without a height": ("a.xlsx", OCTETS, excel('ht="0" customHeight="1"')),
    "excel column": (
        "a.xlsx",
        OCTETS,
        excel("", column='<cols><col min="2" max="2" hidden="1"/></cols>'),
    ),
    "excel sheet": ("a.xlsx", OCTETS, excel("", Two="hidden")),
    "html": ("a.html", "text/html", HIDING),
    "word": ("a.docx", OCTETS, word(paragraph("Hello") + paragraph("secret words", "<w:vanish/>"))),
    "mail": ("a.eml", OCTETS, HIDING_MAIL),
    "plain": ("a.txt", "text/plain", f"Hello{TAGS}".encode()),
    "invisible in word": ("a.docx", OCTETS, word(paragraph(f"Hello{TAGS}"))),
}


@pytest.mark.parametrize("kind", HIDDEN)
async def test_hidden_text_is_omitted_and_reported(ctx, inbox, rest, kind):
    id_ = await attached(ctx, inbox, rest, *HIDDEN[kind])

    found = await rest.get(f"/v1/attachments/{id_}/content", format="text")

    assert "Hello" in found["text"]
    assert "secret" not in found["text"]
    assert found["warnings"]
    assert [{"chars": 12, "count": 1}] == [
        {name: one[name] for name in ("chars", "count")} for one in found["security"]["hidden_text"]
    ]


async def test_a_long_text_comes_in_parts(ctx, inbox, rest):
    words = "0123456789" * 3_000
    id_ = await attached(ctx, inbox, rest, "a.txt", "text/plain", words.encode())
    path = f"/v1/attachments/{id_}/content"

    first = await rest.get(path, format="text")
    last = await rest.get(path, format="text", offset=25_000, max_chars=100_000)

    assert words[:12_000] == first["text"]
    assert (True, 30_000, 12_000) == (
        first["truncated"],
        first["total_chars"],
        first["next_offset"],
    )
    assert (words[25_000:], 30_000) == (last["text"], last["total_chars"])
    assert not {"truncated", "next_offset"} & last.keys()


@pytest.mark.parametrize(
    ("name", "kind", "data", "why"),
    [
        ("a.png", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(99), "no readable text"),
        ("a.zip", "application/zip", b"PK\x05\x06" + bytes(18), "ZIP archive"),
        ("a.pdf", "application/pdf", b"%PDF-1.4 nothing", "the PDF cannot be read"),
        ("a.doc", "application/msword", b"\xd0\xcf\x11\xe0" + bytes(600), "no readable text"),
    ],
)
async def test_an_attachment_without_text_says_how_to_get_the_bytes(
    ctx, inbox, rest, name, kind, data, why
):
    id_ = await attached(ctx, inbox, rest, name, kind, data)

    problem = await rest.problem("GET", f"/v1/attachments/{id_}/content", params={"format": "text"})

    assert ("invalid_input", 422) == (problem["code"], problem["status"])
    assert why in problem["detail"]
    assert f"GET /v1/attachments/{id_}/content" in problem["detail"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"format": "text", "max_bytes": 9}, "max_bytes is for format=base64; use max_chars"),
        ({"format": "base64", "max_chars": 9}, "max_chars is for format=text"),
        ({"format": "hex"}, "format: must be 'base64' or 'text'"),
    ],
)
async def test_arguments_of_the_other_format_are_refused(ctx, inbox, rest, query, said):
    id_ = await attached(ctx, inbox, rest, "a.txt", "text/plain", b"Hello")

    problem = await rest.problem("GET", f"/v1/attachments/{id_}/content", params=query)

    assert said in problem["detail"]
