"""Mail written to an mbox is read back byte for byte."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.pipeline.transfer.archives import MboxEntry, split_mbox, write_entry

DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FROM = b"From ana@example.com Fri Jan  2 03:04:05 2026\n"
LINES = st.sampled_from(
    [
        b"From ",
        b"From me\n",
        FROM,
        b">From you\n",
        b">>>From them\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"Subject: \xff\xfe\n",
        b"text",
        b"text\r\n",
    ]
)
MAILS = st.lists(st.lists(LINES, min_size=1, max_size=8).map(b"".join), max_size=6)


def write(mails: list[bytes]) -> bytes:
    last = len(mails) - 1
    return b"".join(
        write_entry(raw, "ana@example.com", DATE, is_last=n == last) for n, raw in enumerate(mails)
    )


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def split(data: bytes, *, size: int = 1 << 16, max_bytes: int = 10_000, **options) -> list[bytes]:
    entries = split_mbox(pieces(data, size), max_bytes=max_bytes, **options)
    return [entry.raw for entry in entries]


@given(MAILS, st.integers(1, 40))
def test_every_mail_comes_back_as_it_was_however_the_file_is_read(mails, size):
    assert mails == split(write(mails), size=size)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5), st.integers(1, 40))
def test_any_bytes_come_back_as_they_were(mails, size):
    assert mails == split(write(mails), size=size)


@given(MAILS)
def test_each_offset_is_that_of_a_from_line(mails):
    data = write(mails)

    entries = list(split_mbox([data], max_bytes=10_000))

    assert all(data[entry.offset :].startswith(b"From ana@") for entry in entries)


def test_a_file_with_crlf_keeps_it_in_the_mails_and_loses_the_empty_line():
    data = (FROM + b"A: 1\n\none\n\n" + FROM + b"B: 2\n\n>From two\n\n").replace(b"\n", b"\r\n")

    assert [b"A: 1\r\n\r\none\r\n", b"B: 2\r\n\r\nFrom two\r\n"] == split(data)


def test_mboxo_takes_the_quote_from_the_first_level_only():
    data = FROM + b"\n>From a\n>>From b\n\n"

    assert [b"\nFrom a\n>From b\n"] == split(data)
    assert [b"\nFrom a\n>>From b\n"] == split(data, quoting="mboxo")


@pytest.mark.parametrize(
    "line",
    [
        b"From - Tue Mar  3 10:00:00 2026",
        b"From 1789@xxx Mon Mar 05 12:00:00 +0000 2018",
        b"From MAILER-DAEMON Fri Jul  8 12:08:34 2011 -0700",
        b"From nobody",
        b"From ???@???",
    ],
)
def test_the_from_lines_of_other_programs_separate_mails(line):
    data = line + b"\nA: 1\n\none\n\n" + line + b"\nB: 2\n\ntwo\n\n"

    assert [b"A: 1\n\none\n", b"B: 2\n\ntwo\n"] == split(data)


def test_a_sentence_that_begins_with_from_is_text():
    mail = b"A: 1\n\nHello.\n\nFrom here on it is easy.\nReally.\nFrom then: on.\n"

    assert [mail] == split(FROM + mail + b"\n")


def test_a_last_mail_without_an_empty_line_keeps_its_newline():
    assert [b"A: 1\n\none\n"] == split(FROM + b"A: 1\n\none\n")


def test_text_before_the_first_mail_is_reported():
    entries = list(split_mbox([b"junk\n\n" + FROM + b"A: 1\n\n\n"], max_bytes=100))

    assert [MboxEntry(0, 6, None), MboxEntry(6, 7, b"A: 1\n\n")] == entries


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n"])
def test_an_empty_file_holds_no_mail(data):
    assert [] == split(data)


def test_a_mail_that_is_too_large_is_skipped():
    huge = FROM + b"A: 1\n\n" + b"x" * 5_000 + b"\n\n"
    data = huge + FROM + b"B: 2\n\ntwo\n\n"

    entries = list(split_mbox(pieces(data, 64), max_bytes=1_000))

    assert [(0, None), (len(huge), b"B: 2\n\ntwo\n")] == [(e.offset, e.raw) for e in entries]


def test_a_mail_at_the_limit_is_read_even_when_all_of_it_is_quoted():
    mail = b"From \n" * 100

    assert [mail] == split(write([mail]), size=64, max_bytes=len(mail))


def test_memory_does_not_grow_with_a_mail_that_never_ends():
    read = 0

    def endless():
        nonlocal read
        yield FROM
        while read < 20_000_000:
            read += 100_000
            yield b"x" * 100_000

    tracemalloc.start()
    entries = list(split_mbox(endless(), max_bytes=1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [(0, None)] == [(e.offset, e.raw) for e in entries]
    assert peak < 5_000_000
