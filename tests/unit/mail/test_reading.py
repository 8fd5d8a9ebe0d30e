"""Small parsers: words, addresses, dates, parameters, transfer encodings, charsets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.mail.addresses import parse_mailboxes
from postroom.mail.message import (
    parse_date,
    parse_in_reply_to,
    parse_message_id,
    parse_references,
)
from postroom.mail.mime.decoding import codec_name, decode, decode_transfer, decode_words
from postroom.mail.mime.parts import parse_parameters, split_header
from postroom.model.limits import Limits


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        ("plain", "plain"),
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?UTF-8?B?R3LDvMOfZQ==?=", "Grüße"),
        ("=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
        ("=?utf-8?q?a?= and =?utf-8?q?b?=", "a and b"),
        ("=?utf-8?B?ww==?= =?utf-8?B?vA==?=", "ü"),
        ("=?iso-2022-jp?B?GyRCJDMkcxsoQg==?=", "こん"),
        ("=?utf-8?q?no_end", "no end"),
        ("=?utf-8?q?what=3F?=", "what?"),
        ("=?utf-8?q?space in it?=", "space in it"),
        ("=?utf-8?q?=0A=0D=00x?=", "\n\rx"),
        ("=?x-nowhere?q?odd?=", "odd"),
        ("a=?utf-8?q?=C3=A9?=b", "aéb"),
    ],
)
def test_encoded_words_are_decoded(raw: str, decoded: str) -> None:
    assert decoded == decode_words(raw)


@pytest.mark.parametrize(
    ("raw", "mailboxes"),
    [
        ("ada@example.org", [("", "ada@example.org")]),
        ("Ada <ada@example.org>", [("Ada", "ada@example.org")]),
        ('"A, B" <a@b.org>, c@d.org', [("A, B", "a@b.org"), ("", "c@d.org")]),
        ("ada@example.org (Ada L.)", [("Ada L.", "ada@example.org")]),
        ("Doe, Jane <jane@b.org>", [("Doe, Jane", "jane@b.org")]),
        ("a@b.org; c@d.org", [("", "a@b.org"), ("", "c@d.org")]),
        ("team: a@b.org, C <c@d.org>;", [("", "a@b.org"), ("C", "c@d.org")]),
        ("undisclosed-recipients:;", []),
        ('"john doe"@example.org', [("", '"john doe"@example.org')]),
        ("<@relay.example:a@b.org>", [("", "a@b.org")]),
        ("jdoe@test . example", [("", "jdoe@test.example")]),
        ("<mailto:a@b.org>", [("", "a@b.org")]),
        ("=?utf-8?q?Ad=C3=A4?= <a@b.org>", [("Adä", "a@b.org")]),
        ("=?utf-8?q?a=40b=2Eorg?=", [("", "a@b.org")]),
        ("root", [("", "root")]),
        ("ada@home <ada@b.org>", [("ada@home", "ada@b.org")]),
        ("ada@b.org <ada>", [("", "ada@b.org")]),
        ("'Ada' <a@b.org>", [("'Ada'", "a@b.org")]),
        ("Ada <a@b.org", [("Ada", "a@b.org")]),
        ("ada@[192.0.2.1]", [("", "ada@[192.0.2.1]")]),
        ("", []),
        (",,;", []),
    ],
)
def test_addresses_are_parsed_in_common_forms(raw: str, mailboxes: list[tuple[str, str]]) -> None:
    found, _ = parse_mailboxes(raw, max_count=500)

    assert mailboxes == [(mailbox.name, mailbox.address) for mailbox in found]


def test_the_limit_of_addresses_holds_at_the_limit_and_past_it() -> None:
    five = ", ".join(f"a{n}@b.org" for n in range(5))

    assert (5, False) == (
        len(parse_mailboxes(five, max_count=5)[0]),
        parse_mailboxes(five, max_count=5)[1],
    )
    assert (4, True) == (
        len(parse_mailboxes(five, max_count=4)[0]),
        parse_mailboxes(five, max_count=4)[1],
    )


@pytest.mark.parametrize(
    "raw",
    [
        "Sat, 10 Oct 2026 08:00:00 +0000",
        "10 Oct 2026 10:00:00 +0200 (CEST)",
        "Sat, 10 Oct 2026 10:00 +0200",
        "Sat,10 Oct 2026 03:00:00 -0500",
        "Saturday, 10-Oct-26 08:00:00 GMT",
        "Sat Oct 10 08:00:00 2026",
        "2026-10-10T10:00:00+02:00",
        "2026-10-10 08:00:00Z",
        "2026/10/10 Sat 08:00:00",
        "10 October 2026 08:00",
        "10 Oct 2026 at 08:00:00  GMT",
        "Sat, 10 Oct 26 04:00:00 EDT",
        "Sat, 10 Oct 2026 04:00:00 -04:00",
        "Sat Oct 10 04:00:00 2026 -04:00",
        "Saturday, 10-Oct-26 10:00:00 +02:00",
        "Sat, 10 Oct 2026 10:00:00 GMT+02:00",
        "Sat Oct 10 2026 04:00:00 GMT-0400 (Eastern Daylight Time)",
    ],
)
def test_dates_are_parsed_in_common_forms(raw: str) -> None:
    assert datetime(2026, 10, 10, 8, tzinfo=UTC) == parse_date(raw)


@pytest.mark.parametrize("raw", ["", "yesterday", "32 Oct 2026 10:00:00 +0000", "0", "Sat, , , :"])
def test_an_invalid_date_is_none(raw: str) -> None:
    assert parse_date(raw) is None


@pytest.mark.parametrize(
    ("raw", "value", "parameters"),
    [
        ("text/plain; charset=utf-8", "text/plain", {"charset": "utf-8"}),
        ('A/B; Name="x; y\\"z"', "a/b", {"name": 'x; y"z'}),
        ("a/b; name*=utf-8''%C3%A9.txt", "a/b", {"name": "é.txt"}),
        ("a/b; name*0=long; name*1=er", "a/b", {"name": "longer"}),
        ("a/b; name*1*=%C3%A9; name*0*=iso-8859-1'en'%E9", "a/b", {"name": "éÃ©"}),
        ("a/b; name==?utf-8?q?=C3=A9?=", "a/b", {"name": "é"}),
        ("a/b charset=utf-8", "a/b", {"charset": "utf-8"}),
        ("a/b;;; x=1;y", "a/b", {"x": "1"}),
        ("a/b; x=one two", "a/b", {"x": "one two"}),
        ('a/b; x="open', "a/b", {"x": "open"}),
        ("", "", {}),
    ],
)
def test_parameters_are_read(raw: str, value: str, parameters: dict[str, str]) -> None:
    assert (value, parameters) == parse_parameters(raw)


@pytest.mark.parametrize(
    ("encoding", "raw", "decoded"),
    [
        ("base64", b"SGkg\r\nQWRh", b"Hi Ada"),
        ("base64", b"SGkgQWRh=", b"Hi Ada"),
        ("base64", b"SGkgQWRhIQ", b"Hi Ada!"),
        ("base64", b"SGk=\nSGk=", b"HiHi"),
        ("base64", b"SGk= ignored", b"Hi"),
        ("base64", b"!SG*k=", b"Hi"),
        ("quoted-printable", b"a=3Db=\r\nc", b"a=bc"),
        ("quoted-printable", b"soft= \nbreak", b"softbreak"),
        ("quoted-printable", b"bad=ZZ", b"bad=ZZ"),
        ("x-uuencode", b"begin 644 a\n#0V%T\n`\nend\n", b"Cat"),
        ("8bit", b"as it is", b"as it is"),
        ("x-unheard-of", b"as it is", b"as it is"),
    ],
)
def test_transfer_encodings_are_decoded(encoding: str, raw: bytes, decoded: bytes) -> None:
    assert decoded == decode_transfer(raw, encoding)


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("utf-8", "é".encode(), "é"),
        ("iso-8859-1", b"\x80", "€"),
        ("gb2312", "镕".encode("gbk"), "镕"),
        ("ks_c_5601-1987", "안녕".encode("cp949"), "안녕"),
        ("x-sjis", "①".encode("cp932"), "①"),
        ("utf-7", b"+AOk-", "é"),
        ("us-ascii", "é".encode(), "é"),
        (None, "é".encode(), "é"),
        (None, "Привет, как дела? Всё хорошо.".encode("koi8-r"), "Привет, как дела? Всё хорошо."),
        ("zlib", b"x\x9c", "xœ"),
        ("unicode_escape", b"\\u0041", "\\u0041"),
    ],
)
def test_bytes_become_text(charset: str | None, raw: bytes, text: str) -> None:
    assert text == decode(raw, charset)[0]


@pytest.mark.parametrize(
    "name", ["base64", "zlib", "bz2", "hex", "rot13", "idna", "punycode", "undefined"]
)
def test_python_codecs_that_are_no_charsets_are_refused(name: str) -> None:
    assert codec_name(name) is None


def header(raw: bytes, **limits: int) -> tuple[list[tuple[str, str]], bytes, tuple[str, ...]]:
    block = split_header(raw, 0, len(raw), limits=Limits(**limits))
    return block.fields.pairs, raw[block.body_start :], block.defects


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_do_not_matter(end: bytes) -> None:
    raw = end.join((b"A: b", b"C: d", b" e", b"", b"Body"))

    pairs, body, _ = header(raw)

    assert ([("A", "b"), ("C", "d e")], b"Body") == (pairs, body)


def test_a_header_without_a_body_is_whole() -> None:
    assert ([("A", "b"), ("C", "d")], b"") == header(b"A: b\r\nC: d\r\n")[:2]


def test_a_line_that_is_no_field_continues_the_one_above() -> None:
    pairs, body, defects = header(b"A: b\nno field\nTo: d\n\nBody")

    assert ([("A", "b no field"), ("To", "d")], b"Body") == (pairs, body)
    assert ("a line in the header that is not a field",) == defects


def test_the_limits_of_a_header_hold_at_the_limit_and_past_it() -> None:
    assert () == header(b"A: b\nC: d\n\n", header_count=2)[2]
    assert ("more than 1 header fields; the rest was not read",) == header(
        b"A: b\nC: d\n\n", header_count=1
    )[2]
    assert () == header(b"A: b\nC: d\n\n", header_bytes=10)[2]
    assert ("header block over 9 bytes; the rest was not read",) == header(
        b"A: b\nC: d\n\n", header_bytes=9
    )[2]


def test_message_ids_are_found_where_they_are_damaged() -> None:
    assert "a@b" == parse_message_id(" <a@b> ")
    assert "a@b" == parse_message_id("a@b")
    assert "no-at" == parse_message_id("<no-at>")
    assert parse_message_id("  ") is None
    assert "a@b" == parse_in_reply_to("<a @b>")
    assert "id@x" == parse_in_reply_to('Message from Ada <ada@x.org> of "today" <id@x>')
    assert ["a@b", "c@d"] == parse_references(["e@f", "<a@b><c@d> e@f"], bare=False)
    assert ["a@b"] == parse_references(["", "e@f <a@b>", "<c@d>"])
    assert ["e@f", "g@h"] == parse_references(["e@f g@h"])
