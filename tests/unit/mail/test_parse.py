from __future__ import annotations

from datetime import UTC, datetime

from postroom.mail import parse
from postroom.mail.message import AddressLine
from postroom.mail.parse import parse_message


def mail(header: str, body: str = "Hello.\n") -> bytes:
    return f"{header.strip()}\n\n{body}".encode()


def test_an_ordinary_mail_is_read() -> None:
    parsed = parse_message(
        mail(
            """
From: Ada Lovelace <ada@example.org>
To: "Babbage, Charles" <charles@example.org>, bob@example.org
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
Date: Sat, 10 Oct 2026 10:00:00 +0200
Message-ID: <1@example.org>
In-Reply-To: <0@example.org>
References: <a@example.org> <0@example.org>
"""
        )
    )

    assert "Grüße" == parsed.subject
    assert AddressLine("from", "Ada Lovelace", "ada@example.org") == parsed.sender
    assert [
        AddressLine("to", "Babbage, Charles", "charles@example.org"),
        AddressLine("to", "", "bob@example.org"),
    ] == [a for a in parsed.addresses if a.role == "to"]
    assert datetime(2026, 10, 10, 8, tzinfo=UTC) == parsed.date
    assert "1@example.org" == parsed.internet_message_id
    assert "0@example.org" == parsed.in_reply_to
    assert ("a@example.org", "0@example.org") == parsed.references
    assert "Hello." == parsed.text
    assert () == parsed.defects


def test_an_attachment_is_listed_with_its_name_and_bytes() -> None:
    parsed = parse_message(
        mail(
            """
Subject: files
Content-Type: multipart/mixed; boundary=b
""",
            "--b\n\nSee below.\n--b\nContent-Type: application/pdf\n"
            "Content-Disposition: attachment; filename*=utf-8''r%C3%A9sum%C3%A9.pdf\n"
            "Content-Transfer-Encoding: base64\n\nJVBERi0x\n--b--\n",
        )
    )

    assert "See below." == parsed.text
    (attachment,) = parsed.attachments
    assert ("résumé.pdf", "application/pdf", b"%PDF-1") == (
        attachment.filename,
        attachment.content_type,
        attachment.content,
    )


def test_html_only_mail_has_text() -> None:
    parsed = parse_message(
        mail("Subject: x\nContent-Type: text/html", "<p>Hello <b>you</b></p><p>Bye</p>")
    )

    assert "Hello you\n\nBye" == parsed.text
    assert "<p>Hello <b>you</b></p><p>Bye</p>" == parsed.html


def test_no_bytes_at_all_are_still_a_message() -> None:
    parsed = parse_message(b"")

    assert "" == parsed.text
    assert 0 == parsed.size_bytes


def test_the_result_can_always_be_stored() -> None:
    parsed = parse_message(b"Subject: a\0b\xff\nFrom: \0x@y\n\nnul\0 +2AA-\xed\xa0\x80")

    assert "\0" not in parsed.subject + parsed.text + parsed.addresses[0].address
    assert parsed.text.encode()


def test_a_mail_that_causes_an_internal_error_keeps_its_headers(monkeypatch) -> None:
    monkeypatch.setattr(parse, "collect", breaks_on_bodies(parse.collect))

    parsed = parse_message(b"Subject: Still here\nFrom: a@b.example\n\nA body")

    assert ("Still here", "") == (parsed.subject, parsed.text)
    assert "parse_failed: MemoryError" in parsed.defects


def breaks_on_bodies(collect):
    """A parser that runs out of memory on bodies."""

    def broken(root, limits):
        if root.raw[root.start : root.end].strip():
            raise MemoryError
        return collect(root, limits)

    return broken
