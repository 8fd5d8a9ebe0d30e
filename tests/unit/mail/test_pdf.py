"""The text of PDFs, of good ones and of those that are made to do harm."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest

from postroom.blocking.processes import Bounds, WorkFailed, in_process
from postroom.mail.mime.attachments import NEEDS, pdf_text
from tests.pdf import make_pdf

MB = 1024 * 1024
CHARS = 10_000
BOUNDS = Bounds(wall_s=60, cpu_s=4)
GOOD = make_pdf("Invoice 4711", ["Total: 99 EUR"])


def pdf(*objects: bytes, trailer: bytes = b"<< /Root 1 0 R >>") -> bytes:
    """A PDF without a table of its objects: readers then look for them."""
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


async def test_the_text_of_a_good_one():
    assert "Invoice 4711\nTotal: 99 EUR" == await in_process(
        pdf_text, GOOD, CHARS, BOUNDS, imports=NEEDS
    )


def test_one_character_more_than_asked_for_tells_that_there_is_more():
    assert "Invoice 471" == pdf_text(GOOD, 10)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_one_gives_little_text_or_none(name):
    try:
        text = await in_process(pdf_text, HOSTILE[name], CHARS, BOUNDS, imports=NEEDS)
    except WorkFailed as failure:
        text = str(failure)

    assert len(text) <= CHARS + 1
    assert "open files" not in text


@pytest.mark.parametrize("step", [7, 61])
def test_a_broken_one_is_read_or_refused(step):
    """In this very process: the reader itself must not fall over."""
    for place in range(0, len(GOOD), step):
        broken = GOOD[:place] + bytes([GOOD[place] ^ 0x15]) + GOOD[place + 1 :]
        with suppress(ValueError):
            assert len(pdf_text(broken, CHARS)) <= CHARS + 1
