"""A small PDF: one page, a title and lines of text."""

from __future__ import annotations

_PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
    b" /Resources << /Font << /F1 5 0 R /F2 6 0 R >> >> >>"
)


def make_pdf(title: str, lines: list[str]) -> bytes:
    """Write a page of A4; the text must fit Latin-1."""
    content = _content(title, lines)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        _PAGE,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        _font(b"Helvetica"),
        _font(b"Helvetica-Bold"),
    ]
    return _assemble(objects)


def _font(name: bytes) -> bytes:
    return b"<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding >>" % name


def _content(title: str, lines: list[str]) -> bytes:
    rows = [b"BT /F2 18 Tf 60 770 Td (%s) Tj /F1 11 Tf 0 -18 Td" % _literal(title)]
    rows += [b"0 -16 Td (%s) Tj" % _literal(line) for line in lines]
    return b"\n".join([*rows, b"ET"])


def _literal(text: str) -> bytes:
    data = text.encode("latin-1", "replace")
    for special in (b"\\", b"(", b")"):
        data = data.replace(special, b"\\" + special)
    return data


def _assemble(objects: list[bytes]) -> bytes:
    """Number the objects and add the table that says where each one begins."""
    data = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return data + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n"
        b"startxref\n%d\n%%%%EOF\n" % (size, table, size, len(data))
    )
