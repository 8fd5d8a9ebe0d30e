"""Parts, files, and the fingerprint of a mail."""

from __future__ import annotations

import base64
import io
import zipfile

import pytest

from postroom.mail.message import PARSER_VERSION, fingerprint
from postroom.mail.mime.attachments import (
    content_disposition,
    detect_type,
    download_name,
    safe_filename,
)
from postroom.mail.parse import parse_message
from postroom.model.limits import Limits

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def multipart(*parts: str, kind: str = "mixed") -> bytes:
    body = "".join(f"--b\n{part}\n" for part in parts)
    return f"Content-Type: multipart/{kind}; boundary=b\n\n{body}--b--\n".encode()


FILE = "Content-Disposition: attachment; filename=a.txt\n\nfile"


def test_several_texts_are_one_text() -> None:
    assert "One\n\nTwo" == parse_message(multipart("\nOne", "\nTwo")).text


def test_plain_text_is_preferred_to_html() -> None:
    parsed = parse_message(
        multipart(
            "\nPlain words", "Content-Type: text/html\n\n<b>Rich words</b>", kind="alternative"
        )
    )

    assert ("Plain words", "<b>Rich words</b>") == (parsed.text, parsed.html)


def test_an_empty_plain_part_does_not_hide_the_html() -> None:
    parsed = parse_message(
        multipart("\n  \n", "Content-Type: text/html\n\n<b>Rich</b>", kind="alternative")
    )

    assert "Rich" == parsed.text


def test_a_plain_part_that_only_points_to_the_html_comes_last() -> None:
    rich = "Content-Type: text/html\n\n<p>" + "All the news of the day. " * 10 + "</p>"
    parsed = parse_message(
        multipart("\nPlease view this message in your browser.", rich, kind="alternative")
    )

    assert parsed.text.startswith("All the news")


def test_an_unterminated_part_is_read_to_the_end() -> None:
    raw = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nText\n--b\n" + FILE.encode()

    parsed = parse_message(raw)

    assert "Text" == parsed.text
    assert [b"file"] == [a.content for a in parsed.attachments]


def test_an_inner_boundary_with_the_prefix_of_the_outer_one_is_distinguished() -> None:
    inner = "Content-Type: multipart/mixed; boundary=bb\n\n--bb\n\nInner\n--bb--"

    assert "Inner\n\nOuter" == parse_message(multipart(inner, "\nOuter")).text


def test_a_named_text_part_is_shown_if_it_is_the_only_text() -> None:
    parsed = parse_message(multipart("Content-Type: text/plain; name=note.txt\n\nThe note"))

    assert "The note" == parsed.text
    assert ["note.txt"] == [a.filename for a in parsed.attachments]


def test_a_file_without_a_name_gets_one() -> None:
    parsed = parse_message(multipart("\nText", "Content-Type: image/png\n\nx"))

    assert ["attachment-1.png"] == [a.filename for a in parsed.attachments]


def test_the_limits_of_parts_hold_at_the_limit_and_past_it() -> None:
    raw = multipart(*["\nx"] * 3)

    assert (
        "more than 4 MIME parts; the rest was not read"
        not in parse_message(raw, Limits(mime_parts=4)).defects
    )
    assert (
        "more than 3 MIME parts; the rest was not read"
        in parse_message(raw, Limits(mime_parts=3)).defects
    )


def test_the_limit_of_depth_holds_at_the_limit_and_past_it() -> None:
    raw = multipart("Content-Type: multipart/mixed; boundary=c\n\n--c\n\nDeep\n--c--")

    assert "Deep" == parse_message(raw, Limits(mime_depth=2)).text
    cut = parse_message(raw, Limits(mime_depth=1))
    assert "parts nested over 1 levels; the rest was not read" in cut.defects


@pytest.mark.parametrize(
    "raw",
    [
        multipart("\nx", 'Content-Disposition: attachment; filename="abcdef.txt"\n\nx'),
        multipart("\nx", "Content-Type: message/rfc822\n\nSubject: abcdef\n\nx"),
        b"Subject: x\n\nbegin 644 abcdef.txt\n#86)C\n`\nend\n",
    ],
    ids=["part", "message", "uuencoded"],
)
def test_the_limit_of_a_file_name_holds_at_the_limit_and_past_it(raw: bytes) -> None:
    [whole] = parse_message(raw, Limits(filename_chars=10)).attachments
    [cut] = parse_message(raw, Limits(filename_chars=9)).attachments
    [stub] = parse_message(raw, Limits(filename_chars=3)).attachments

    extension = whole.filename[-4:]
    assert f"abcdef{extension}" == whole.filename
    assert f"abcde{extension}" == cut.filename
    assert "abc" == stub.filename


def test_text_is_cut_at_its_limit() -> None:
    raw = b"Subject: x\n\n" + b"a" * 10

    assert "a" * 10 == parse_message(raw, Limits(text_chars=10)).text
    cut = parse_message(raw, Limits(text_chars=9))
    assert ("a" * 9, True) == (
        cut.text,
        "text over 9 characters; the rest was not stored" in cut.defects,
    )


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("invoice.pdf", "invoice.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\cmd.exe", "cmd.exe"),
        ("a\0b\r\nc.txt", "ab c.txt"),
        ("\u202egpj.exe", "gpj.exe"),
        (".htaccess", "htaccess"),
        ("...", "attachment"),
        ("", "attachment"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ('a"b<c>d|e?f*g:h', "a_b_c_d_e_f_g_h"),
        ("résumé 你好.pdf", "résumé 你好.pdf"),
        ("a" * 300 + ".pdf", "a" * 251 + ".pdf"),
        ("trailing. ", "trailing"),
    ],
)
def test_a_safe_name_has_no_path(name: str, safe: str) -> None:
    assert safe == safe_filename(name)


def test_a_download_name_fits_its_header() -> None:
    assert 'attachment; filename="a.pdf"' == content_disposition("a.pdf")
    assert (
        "attachment; filename=\"resume.pdf\"; filename*=UTF-8''r%C3%A9sum%C3%A9.pdf"
        == content_disposition("résumé.pdf")
    )
    assert len(download_name("你" * 100 + ".pdf").encode()) <= 150
    assert download_name("你" * 100 + ".pdf").endswith(".pdf")


@pytest.mark.parametrize(
    ("content", "declared", "detected"),
    [
        (b"%PDF-1.7", "application/octet-stream", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n", "image/jpeg", "image/png"),
        (b"RIFF\0\0\0\0WEBP", "image/png", "image/webp"),
        (b"<!DOCTYPE html><p>", "image/png", "text/html"),
        (b"MZ\x90", "image/png", "application/x-msdownload"),
        (b"PK\x03\x04....xl/workbook.xml", "application/zip", XLSX),
        (b"hello", "text/plain", "text/plain"),
        (b"", "", "application/octet-stream"),
    ],
)  # fmt: skip
def test_the_type_of_a_file_is_detected_from_its_bytes(
    content: bytes, declared: str, detected: str
) -> None:
    assert detected == detect_type(content, declared)


def test_a_program_that_calls_itself_a_picture_is_flagged() -> None:
    parsed = parse_message(
        multipart("Content-Type: image/png; name=cat.png\nContent-Disposition: attachment\n\nMZ...")
    )

    assert ("cat.png",) == parsed.security.disguised_attachments


MAIL = b"From: a@b\nDate: Sat, 10 Oct 2026 10:00:00 +0200\nSubject: x\n\nHi\n"


def test_one_mail_by_two_routes_has_one_fingerprint() -> None:
    other_route = b"Received: from elsewhere\n" + MAIL.replace(b"\n", b"\r\n")

    assert fingerprint(parse_message(MAIL)) == fingerprint(parse_message(other_route))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"From: a@b", b"From: c@b"),
        (b"10:00:00", b"10:00:01"),
        (b"Subject: x", b"Subject: y"),
        (b"Hi", b"Ho"),
        (b"Subject: x", b"Subject: x\nContent-Type: text/html"),
    ],
)
def test_other_content_has_another_fingerprint(old: bytes, new: bytes) -> None:
    assert fingerprint(parse_message(MAIL)) != fingerprint(parse_message(MAIL.replace(old, new)))


def test_other_files_have_another_fingerprint() -> None:
    one, other = multipart("\nHi", FILE), multipart("\nHi", FILE.replace("\n\nfile", "\n\nFILE"))

    assert fingerprint(parse_message(one)) != fingerprint(parse_message(other))


def test_the_parser_has_a_version() -> None:
    assert PARSER_VERSION >= 1


def test_text_that_is_declared_as_base64_stays_text() -> None:
    prose = "These are words, not base64 at all. " * 3

    parsed = parse_message(f"Content-Transfer-Encoding: base64\n\n{prose}".encode())

    assert prose.strip() == parsed.text.strip()


def test_a_last_boundary_ends_the_parts_whatever_follows_on_its_line() -> None:
    raw = (
        b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\nHi\n--b\n"
        b"Content-Type: text/html; name=a.html\nContent-Transfer-Encoding: base64\n\n"
        b"PGI+Cg==\n\n--b-->\nNot a part of anything\n"
    )

    parsed = parse_message(raw)

    assert [b"<b>\n"] == [attachment.content for attachment in parsed.attachments]


def test_a_picture_that_claims_to_be_the_text_is_a_file() -> None:
    raw = (
        b"Content-Type: text/plain; name=note.txt\nContent-Transfer-Encoding: base64\n\n"
        b"R0lGODlhZAAEAIAAAABmzGb/mSH5BAAAAAAALAAAAABkAAQAAAIajI+py+0Po5y02uuA3rz7D4bi"
    )

    parsed = parse_message(raw)

    assert ("", ["note.txt"]) == (parsed.text, [a.filename for a in parsed.attachments])


def test_an_archive_is_kept_and_never_opened() -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(20_000_000))
    coded = base64.encodebytes(bomb.getvalue()).decode()
    part = (
        f"Content-Type: application/zip; name=a.zip\nContent-Transfer-Encoding: base64\n\n{coded}"
    )

    (attachment,) = parse_message(multipart("\nHi", part)).attachments

    assert bomb.getvalue() == attachment.content
    assert attachment.size < 100_000
