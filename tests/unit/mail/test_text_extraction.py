"""The text of Word, Excel, PowerPoint and RTF files, valid and hostile."""

from __future__ import annotations

from contextlib import suppress

import pytest

from postroom.blocking import Bounds, WorkFailed, in_process
from postroom.mail.text_extraction.extract import (
    OFFICE,
    RTF,
    ExtractedText,
    extract_as_json,
    extract_text,
    file_kind,
    from_json,
    modules_for,
)
from tests.office_files import paragraph, relations, shape, slides, word, workbook, zipped

CHARS = 10_000
MB = 1024 * 1024
HIDDEN = '<w:style w:styleId="Ghost"><w:rPr><w:vanish/></w:rPr></w:style>'
CHILD = '<w:style w:styleId="Child"><w:basedOn w:val="Ghost"/></w:style>'


def read(data: bytes) -> ExtractedText:
    return extract_text(data, CHARS)


def hidden(count: int, reason: str) -> tuple[str, ...]:
    return (f"hidden text omitted: {count} characters ({reason})",)


def test_the_paragraphs_tables_and_notes_of_a_word_document():
    cells = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("Item", "Price"))
    table = f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    listed = paragraph("first point", of_paragraph="<w:numPr/>")

    found = read(word(paragraph("Hello") + table + listed, footnotes=paragraph("A note")))

    assert ["Hello", "Item \tPrice", "- first point", "", "A note"] == found.text.split("\n")


@pytest.mark.parametrize(
    ("properties", "of_paragraph", "reason"),
    [
        ("<w:vanish/>", "", "hidden font"),
        ('<w:vanish w:val="true"/>', "", "hidden font"),
        ('<w:rStyle w:val="Ghost"/>', "", "hidden font"),
        ('<w:rStyle w:val="Child"/>', "", "hidden font"),
        ("", '<w:pStyle w:val="Ghost"/>', "hidden font"),
        ('<w:sz w:val="1"/>', "", "too small to read"),
        ('<w:color w:val="FFFFFF"/>', "", "white on white"),
    ],
)
def test_invisible_text_of_a_word_document_is_omitted(properties, of_paragraph, reason):
    body = paragraph("seen") + paragraph("secret", properties, of_paragraph) + paragraph("end")

    found = read(word(body, HIDDEN + CHILD))

    assert ["seen", "end"] == found.text.split()
    assert hidden(6, reason) == found.warnings


@pytest.mark.parametrize(
    ("properties", "of_paragraph"),
    [
        ('<w:vanish w:val="0"/>', ""),
        ('<w:color w:val="FFFFFF"/><w:shd w:fill="000000"/>', ""),
        ('<w:color w:val="FFFFFF"/>', '<w:shd w:fill="000000"/>'),
        ('<w:sz w:val="16"/>', ""),
        # of the paragraph mark, not of its text
        ("", "<w:rPr><w:vanish/></w:rPr>"),
    ],
)
def test_visible_text_of_a_word_document_is_kept(properties, of_paragraph):
    assert ExtractedText("seen") == read(word(paragraph("seen", properties, of_paragraph)))


def test_the_cells_of_a_workbook_as_excel_shows_them():
    strings = "<si><t>Item</t></si><si><r><t>Unit </t></r><r><t>price</t></r></si>"
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="dd.mm.yyyy"/></numFmts>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="9"/>'
        "</cellXfs>"
    )
    rows = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>'
        '<row><c r="A2" t="inlineStr"><is><t>Tea</t></is></c><c r="B2" s="1"><v>46023</v></c>'
        '<c r="C2"><f>1+2</f><v>0.30000000000000004</v></c><c r="D2" t="b"><v>1</v></c></row>'
        '<row><c r="A3" s="2"><v>46023.5</v></c><c r="B3" s="3"><v>0.19</v></c></row>'
    )

    found = read(
        workbook({"Prices": f"<sheetData>{rows}</sheetData>"}, strings=strings, styles=styles)
    )

    assert [
        "Sheet: Prices",
        "Item\t\tUnit price",
        "Tea\t2026-01-01\t0.3\tTRUE",
        "2026-01-01 12:00:00\t19%",
    ] == found.text.split("\n")
    assert () == found.warnings


def test_hidden_sheets_rows_columns_and_cells_are_left_out():
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode=";;;"/></numFmts>'
        '<fonts><font/><font><color rgb="FFFFFFFF"/></font></fonts>'
        '<fills><fill><patternFill patternType="none"/></fill>'
        '<fill><patternFill patternType="solid"/></fill></fills>'
        '<cellXfs><xf/><xf numFmtId="164"/><xf fontId="1" fillId="0"/><xf fontId="1" fillId="1"/>'
        "</cellXfs>"
    )
    rows = (
        '<cols><col min="2" max="3" hidden="1"/></cols><sheetData>'
        '<row><c r="A1"><v>1</v></c><c r="B1"><v>2</v></c><c r="D1"><v>4</v></c></row>'
        '<row hidden="1"><c r="A2"><v>5</v></c></row>'
        '<row><c r="A3" s="1"><v>6</v></c><c r="D3" s="2"><v>7</v></c><c r="E3" s="3"><v>8</v></c>'
        "</row></sheetData>"
    )

    found = read(
        workbook({"A": rows, "B": rows, "C": rows}, styles=styles, B="hidden", C="veryHidden")
    )

    assert ["Sheet: A", "1\t\t\t4", "\t\t\t\t8"] == found.text.split("\n")
    assert (
        *hidden(1, "number format that shows nothing"),
        *hidden(1, "white on white"),
        "hidden sheets omitted: 2",
        "hidden rows omitted: 1",
        "hidden columns omitted: 1",
    ) == found.warnings
    assert {
        "hidden columns", "hidden rows", "hidden sheets",
        "number format that shows nothing", "white on white",
    } == {one.reason for one in found.hidden}  # fmt: skip


def test_the_slides_of_a_presentation_with_their_notes():
    found = read(slides(shape("Title", "Point"), shape("More"), notes="Say hello"))

    assert "Slide 1\nTitle\nPoint\nNotes: Say hello\n\nSlide 2\nMore" == found.text


def test_hidden_slides_and_shapes_are_left_out():
    found = read(slides(shape("Seen") + shape("Secret", hidden=True), shape("Gone"), hidden=(2,)))

    assert "Slide 1\nSeen" == found.text.rstrip()
    assert (*hidden(6, "hidden shape"), "hidden slides omitted: 1") == found.warnings


RTF_TEXTS = {
    rb"{\rtf1 Hello\par World}": "Hello\nWorld",
    rb"{\rtf1\ansi\ansicpg1251 \'cf\'f0\'e8\'e2\'e5\'f2}": "Привет",
    rb"{\rtf1\ansi\ansicpg936 \'c4\'e3\'ba\'c3}": "你好",
    rb"{\rtf1 \u8364?\u-10179?\u-8704?}": "€😀",
    rb"{\rtf1{\fonttbl{\f0 Arial;}}{\*\generator Riched;}{\info{\author Ann}}x\tab y}": "x\ty",
    rb"{\rtf1 a\{b\}\\c\~d}": "a{b}\\c d",
}


@pytest.mark.parametrize("data", RTF_TEXTS, ids=range(len(RTF_TEXTS)))
def test_the_text_of_rtf(data):
    assert ExtractedText(RTF_TEXTS[data]) == read(data)


def test_hidden_text_of_rtf_is_left_out():
    found = read(rb"{\rtf1 seen {\v secret} and \v more\v0  end}")

    assert "seen  and  end" == found.text
    assert hidden(10, "hidden font") == found.warnings


def package(document: bytes) -> bytes:
    return zipped(
        {
            "_rels/.rels": relations(a="officeDocument word/document.xml"),
            "word/document.xml": document,
        }
    )


LAUGHS = b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
HOSTILE = {
    "entities": package(b'<!DOCTYPE x [<!ENTITY a0 "ha">%s]><document>&a9;</document>' % LAUGHS),
    "a file": package(
        b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><document><t>&f;</t></document>'
    ),
    "a tower": package(b"<document>" + b"<p>" * 100_000),
    "a ZIP that unpacks to 256 MB": None,
    "broken XML": package(b"<document><t>hello"),
    "no XML": package(bytes(1_000)),
    "a cell far away": workbook(
        {"A": '<sheetData><row><c r="XFD1048576"><v>1</v></c></row></sheetData>'}
    ),
    "an archive": zipped({"a.txt": "hello"}),
    "half a file": word(paragraph("Hello"))[:400],
    "RTF groups": rb"{\rtf1" + b"{" * 100_000,
    "part that refers to itself": zipped(
        {"_rels/.rels": relations(a="officeDocument _rels/.rels")}
    ),
}


@pytest.mark.one_python
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_gives_little_text_or_a_reason(name):
    # Built lazily, not by every process that collects the tests.
    data = HOSTILE[name] or package(b"<document><t>" + b"x" * (256 * MB) + b"</t>")
    kind = file_kind(data)
    try:
        answer = await in_process(
            extract_as_json,
            data,
            CHARS,
            Bounds(wall_s=60),
            imports=modules_for(kind or RTF),
        )
        text = from_json(answer).text
    except WorkFailed as failure:
        text = str(failure)

    assert 0 < len(text) <= CHARS + 1 or name == "broken XML"
    for leaked in ("root:", "haha", "open files", "crashed", "Traceback"):
        assert leaked not in text


@pytest.mark.parametrize("step", [11, 97])
def test_a_broken_file_is_read_or_refused(step):
    good = word(paragraph("Hello"), HIDDEN)
    for place in range(0, len(good), step):
        broken = good[:place] + bytes([good[place] ^ 0x15]) + good[place + 1 :]
        if file_kind(broken) != OFFICE:
            continue
        with suppress(ValueError):
            assert len(read(broken).text) <= CHARS + 1


def test_a_character_more_than_wanted_tells_that_there_is_more():
    assert "Hello" == extract_text(word(paragraph("Hello world")), 4).text
