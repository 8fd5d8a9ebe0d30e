"""Small Office files as Word, Excel and PowerPoint write them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_P = "http://schemas.openxmlformats.org/presentationml/2006/main"
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def relations(**targets: str) -> str:
    """Relationships by id: `kind target`."""
    named = {id_: words.split() for id_, words in targets.items()}
    rows = (
        f'<Relationship Id="{id_}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for id_, (kind, target) in named.items()
    )
    return (
        f'<?xml version="1.0"?><Relationships xmlns="{_RELATIONS}">{"".join(rows)}</Relationships>'
    )


def word(body: str, styles: str = "", **parts: str) -> bytes:
    """A Word document; *body* holds paragraphs."""
    more = {name: f"{name} {name}.xml" for name in parts}
    return zipped(
        {
            "_rels/.rels": relations(a="officeDocument word/document.xml"),
            "word/_rels/document.xml.rels": relations(s="styles styles.xml", **more),
            "word/styles.xml": f'<w:styles xmlns:w="{_W}">{styles}</w:styles>',
            "word/document.xml": f'<w:document xmlns:w="{_W}"><w:body>{body}</w:body></w:document>',
            **{
                f"word/{name}.xml": f'<w:x xmlns:w="{_W}">{content}</w:x>'
                for name, content in parts.items()
            },
        }
    )


def paragraph(text: str, properties: str = "", of_paragraph: str = "") -> str:
    run = f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'
    return f"<w:p><w:pPr>{of_paragraph}</w:pPr>{run}</w:p>"


def workbook(
    sheets: Mapping[str, str], *, strings: str = "", styles: str = "", **state: str
) -> bytes:
    """An Excel workbook; each sheet is the content of its `worksheet` element."""
    rows = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}" state="{state.get(name, "visible")}"/>'
        for n, name in enumerate(sheets, start=1)
    )
    targets = {f"r{n}": f"worksheet worksheets/sheet{n}.xml" for n in range(1, len(sheets) + 1)}
    return zipped(
        {
            "_rels/.rels": relations(a="officeDocument xl/workbook.xml"),
            "xl/_rels/workbook.xml.rels": relations(
                **targets, s="sharedStrings sharedStrings.xml", t="styles styles.xml"
            ),
            "xl/workbook.xml": f'<workbook xmlns="{_S}" xmlns:r="{_OFFICE}"><sheets>{rows}</sheets>'
            "</workbook>",
            "xl/sharedStrings.xml": f'<sst xmlns="{_S}">{strings}</sst>',
            "xl/styles.xml": f'<styleSheet xmlns="{_S}">{styles}</styleSheet>',
            **{
                f"xl/worksheets/sheet{n}.xml": f'<worksheet xmlns="{_S}">{content}</worksheet>'
                for n, content in enumerate(sheets.values(), start=1)
            },
        }
    )


def slides(*contents: str, hidden: tuple[int, ...] = (), notes: str = "") -> bytes:
    """A PowerPoint presentation; each slide is given as its shapes."""
    count = range(1, len(contents) + 1)
    ids = "".join(f'<p:sldId id="{255 + n}" r:id="r{n}"/>' for n in count)
    parts = {
        "_rels/.rels": relations(a="officeDocument ppt/presentation.xml"),
        "ppt/_rels/presentation.xml.rels": relations(
            **{f"r{n}": f"slide slides/slide{n}.xml" for n in count}
        ),
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{_P}" xmlns:r="{_OFFICE}"><p:sldIdLst>'
        f"{ids}</p:sldIdLst></p:presentation>",
    }
    for number, content in enumerate(contents, start=1):
        show = ' show="0"' if number in hidden else ""
        parts[f"ppt/slides/slide{number}.xml"] = (
            f'<p:sld xmlns:p="{_P}" xmlns:a="{_A}"{show}><p:cSld><p:spTree>{content}'
            "</p:spTree></p:cSld></p:sld>"
        )
    if notes:
        parts["ppt/slides/_rels/slide1.xml.rels"] = relations(n="notesSlide ../notesSlides/n1.xml")
        parts["ppt/notesSlides/n1.xml"] = (
            f'<p:notes xmlns:p="{_P}" xmlns:a="{_A}"><p:cSld><p:spTree>'
            f"{shape('7', placeholder='sldNum')}{shape(notes, placeholder='body')}"
            "</p:spTree></p:cSld></p:notes>"
        )
    return zipped(parts)


def shape(*lines: str, hidden: bool = False, placeholder: str = "title") -> str:
    text = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in lines)
    mark = ' hidden="1"' if hidden else ""
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="x"{mark}/><p:nvPr><p:ph type="{placeholder}"/>'
        f"</p:nvPr></p:nvSpPr><p:txBody>{text}</p:txBody></p:sp>"
    )
