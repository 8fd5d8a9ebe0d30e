"""The text of PDFs, valid and hostile."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest

from postroom.blocking import Bounds, WorkFailed, in_process
from postroom.mail.text_extraction.extract import (
    PDF,
    ExtractedText,
    extract_as_json,
    file_kind,
    from_json,
    modules_for,
)
from postroom.mail.text_extraction.pdf import read_pdf
from tests.pdf import make_pdf

MB = 1024 * 1024
CHARS = 10_000
BOUNDS = Bounds(wall_s=60, cpu_s=4)
GOOD = make_pdf("Invoice 4711", ["Total: 99 EUR"])


def pdf(*objects: bytes, trailer: bytes = b"<< /Root 1 0 R >>") -> bytes:
    """A PDF without an object table: readers then search for the objects."""
    written = (b"%d 0 obj\n%s\nendobj\n" % (n, body) for n, body in enumerate(objects, start=1))
    return b"%PDF-1.7\n" + b"".join(written) + b"trailer\n" + trailer + b"\nstartxref\n0\n%%EOF\n"


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


CATALOGUE = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGES = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
ONCE = zlib.compress(bytes(100 * MB), 1)
TWICE = zlib.compress(ONCE * 8, 1)
SHOWN = b"BT /F1 9 Tf (word ) Tj ET "

HOSTILE = {
    "a stream that unpacks to 100 MB": pdf(
        CATALOGUE, PAGES, PAGE, stream(ONCE, b"/Filter /FlateDecode")
    ),
    "a stream that is packed twice": pdf(
        CATALOGUE, PAGES, PAGE, stream(TWICE, b"/Filter [/FlateDecode /FlateDecode]")
    ),
    "pages that are their own children": pdf(
        CATALOGUE, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"
    ),
    "more pages than there are": pdf(
        CATALOGUE, b"<< /Type /Pages /Kids [3 0 R] /Count 2000000000 >>", PAGE, stream(SHOWN)
    ),
    "contents that contain themselves": pdf(CATALOGUE, PAGES, PAGE, b"[4 0 R 4 0 R]"),
    "a form that draws itself": pdf(
        CATALOGUE,
        PAGES,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R"
        b" /Resources << /XObject << /X 5 0 R >> >> >>",
        stream(b"/X Do /X Do"),
        stream(
            b"/X Do /X Do",
            b"/Type /XObject /Subtype /Form /BBox [0 0 9 9]"
            b" /Resources << /XObject << /X 5 0 R >> >>",
        ),
    ),
    "a table that points at itself": (
        b"%PDF-1.4\nxref\n0 1\n0000000000 65535 f \ntrailer\n<< /Root 1 0 R /Prev 9 >>\n"
        b"startxref\n9\n%%EOF\n"
    ),
    "a tower of brackets": pdf(CATALOGUE, b"[" * 200_000),
    "100,000 fonts": pdf(
        CATALOGUE,
        PAGES,
        PAGE[:-2]
        + b"/Resources << /Font << "
        + b"".join(b"/F%d 4 0 R " % n for n in range(100_000))
        + b">> >> >>",
        stream(SHOWN),
    ),
    "a locked one": GOOD.replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt << /Filter /Standard >>"),
    "nothing": b"",
    "not a PDF": b"PK\x03\x04" + bytes(1_000),
}


async def test_the_text_of_a_valid_pdf():
    answer = await in_process(extract_as_json, GOOD, CHARS, BOUNDS, imports=modules_for(PDF))

    assert ExtractedText("Invoice 4711\nTotal: 99 EUR") == from_json(answer)


def test_one_character_more_than_asked_for_tells_that_there_is_more():
    assert "Invoice 471" == read_pdf(GOOD, 10).text


@pytest.mark.one_python
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_pdf_gives_little_text_or_none(name):
    try:
        modules = modules_for(file_kind(HOSTILE[name]) or PDF)
        answer = await in_process(extract_as_json, HOSTILE[name], CHARS, BOUNDS, imports=modules)
        text = from_json(answer).text
    except WorkFailed as failure:
        text = str(failure)

    assert len(text) <= CHARS + 1
    assert "open files" not in text


@pytest.mark.parametrize("step", [7, 61])
def test_a_broken_pdf_is_read_or_refused(step):
    """In this process: the reader itself must not crash."""
    for place in range(0, len(GOOD), step):
        broken = GOOD[:place] + bytes([GOOD[place] ^ 0x15]) + GOOD[place + 1 :]
        with suppress(ValueError):
            assert len(read_pdf(broken, CHARS).text) <= CHARS + 1


PRINTED = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R %s >>"
FONT = b"/Font << /F1 5 0 R >>"
HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
SEEN = b"BT /F1 12 Tf 0 Tr 0 g 60 600 Td (black words) Tj ET "
UNSEEN = {
    "invisible in print": b"BT /F1 12 Tf 3 Tr 60 700 Td (secret) Tj ET ",
    "white on white": b"BT /F1 12 Tf 1 1 1 rg 60 700 Td (secret) Tj ET ",
    "outside the page": b"BT /F1 12 Tf 0 g 60 900 Td (secret) Tj ET ",
    "in the colour of its background": (
        b"0 0 1 rg 50 690 300 40 re f BT /F1 12 Tf 0 0 1 rg 60 700 Td (secret) Tj ET "
    ),
    "behind a picture": (b"BT /F1 12 Tf 0 g 60 700 Td (secret) Tj ET 0.9 g 50 690 300 40 re f "),
    "too small to read": b"BT /F1 0.4 Tf 60 700 Td (secret) Tj ET ",
}


def printed(content: bytes, resources: bytes = b"", *more: bytes) -> bytes:
    page = PRINTED % (b"/Resources << %s %s >>" % (FONT, resources))
    return pdf(CATALOGUE, PAGES, page, stream(content), HELVETICA, *more)


@pytest.mark.parametrize("reason", UNSEEN)
def test_invisible_text_of_a_pdf_is_omitted(reason):
    found = read_pdf(printed(UNSEEN[reason] + SEEN), CHARS)

    assert "black words" == found.text
    assert (f"hidden text omitted: 6 characters ({reason})",) == found.warnings
    assert [(reason, 6)] == [(hidden.reason, hidden.chars) for hidden in found.hidden]


def test_a_picture_over_a_part_of_a_text_does_not_hide_it():
    line = b"0 0 1 RG 50 690 m 90 720 l S 0.9 g 50 690 20 40 re f "

    found = read_pdf(printed(b"BT /F1 12 Tf 0 g 60 700 Td (seen) Tj ET " + line + SEEN), CHARS)

    assert ExtractedText("seen\nblack words") == found


def test_white_text_on_a_colour_is_seen():
    banner = b"0 0 1 rg 50 690 300 40 re f BT /F1 12 Tf 1 1 1 rg 60 700 Td (Banner) Tj ET "

    assert ExtractedText("Banner\nblack words") == read_pdf(printed(banner + SEEN), CHARS)


def test_white_text_on_a_white_box_is_hidden():
    box = b"1 1 1 rg 50 690 300 40 re f "

    assert "black words" == read_pdf(printed(box + UNSEEN["white on white"] + SEEN), CHARS).text


PICTURE = stream(
    b"\x80",
    b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray"
    b" /BitsPerComponent 8",
)


def test_the_text_layer_of_a_scan_is_read_with_a_warning():
    scan = b"q 595 0 0 842 0 0 cm /I Do Q " + UNSEEN["invisible in print"]

    found = read_pdf(printed(scan, b"/XObject << /I 6 0 R >>", PICTURE), CHARS)

    assert "secret" == found.text
    assert "scanned page" in found.warnings[0]


def test_the_text_layer_of_a_scan_is_omitted_if_there_is_visible_text():
    scan = b"q 595 0 0 842 0 0 cm /I Do Q " + UNSEEN["invisible in print"] + SEEN

    found = read_pdf(printed(scan, b"/XObject << /I 6 0 R >>", PICTURE), CHARS)

    assert "black words" == found.text
