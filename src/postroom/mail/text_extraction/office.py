"""The text of Office Open XML files: Word documents and PowerPoint presentations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.mail.text_extraction.extract import ExtractedText, TextBuilder
from postroom.mail.text_extraction.package import Attributes, Package, XmlEvent, open_package
from postroom.mail.text_extraction.spreadsheet import read_workbook

_OFF = frozenset(("0", "false", "off", "none"))
_TINY_HALF_POINTS = 2


def read_office(data: bytes, max_chars: int) -> ExtractedText:
    """The text of a Word, Excel or PowerPoint file.

    Raises:
        ValueError: it is another kind of file, locked or damaged.
    """
    package = open_package(data)
    main = next(iter(package.related("", "officeDocument")), "")
    root = next((event.name for event in package.events(main)), "")
    readers = {"document": _read_word, "workbook": read_workbook, "presentation": _read_slides}
    if root not in readers:
        raise ValueError("it is a ZIP archive, not a Word, Excel or PowerPoint file")
    builder = TextBuilder(max_chars)
    readers[root](package, main, builder)
    if package.is_cut:
        builder.warnings.append("the file unpacks to more than 128 MB; the rest was not read")
    return builder.result()


def is_on(attributes: Attributes, name: str = "val") -> bool:
    """A switch of Office: present without a value, or with one that is not off."""
    return attributes.get(name, "1").lower() not in _OFF


def _read_word(package: Package, main: str, builder: TextBuilder) -> None:
    hidden_styles = _hidden_styles(package, main)
    parts = [main, *package.related(main, "footnotes", "endnotes", "comments")]
    margins = package.related(main, "header", "footer")
    _WordReader(builder, hidden_styles).read(package, parts)
    seen = set()
    for name in dict.fromkeys(margins):
        text = TextBuilder(builder.max_chars)
        _WordReader(text, hidden_styles).read(package, [name])
        builder.take_hidden(text)
        words = text.result().text
        if words and words not in seen:
            seen.add(words)
            builder.write(f"{words}\n")


def _hidden_styles(package: Package, main: str) -> frozenset[str]:
    """The styles whose text is hidden, by themselves or by the style they are based on."""
    hidden: dict[str, bool] = {}
    based_on: dict[str, str] = {}
    style = ""
    for name in package.related(main, "styles")[:1]:
        for event in package.events(name):
            if event.kind != "start":
                continue
            if event.name == "style":
                style = event.attributes.get("styleId", "")
            elif event.name == "basedOn":
                based_on[style] = event.attributes.get("val", "")
            elif event.name == "vanish" and style:
                hidden[style] = is_on(event.attributes)
    found = set()
    for style in {*hidden, *based_on}:
        at, steps = style, 0
        while at not in hidden and at in based_on and steps < len(based_on):
            at, steps = based_on[at], steps + 1
        if hidden.get(at):
            found.add(style)
    return frozenset(found)


@dataclass(slots=True)
class _WordReader:
    """Reads paragraphs and tables; a run tells its properties before its text."""

    builder: TextBuilder
    hidden_styles: frozenset[str]
    path: list[str] = field(default_factory=list)
    is_paragraph_hidden: bool = False
    reason: str = ""
    is_white: bool = False
    is_shaded: bool = False
    has_background: bool = False

    def read(self, package: Package, names: list[str]) -> None:
        for name in names:
            for event in package.events(name):
                self._read(event)
                if self.builder.is_full:
                    return
            self.builder.write("\n")

    def _read(self, event: XmlEvent) -> None:
        if event.kind == "start":
            self.path.append(event.name)
            self._start(event.name, event.attributes)
        elif event.kind == "end":
            _write_end(self.builder, event.name, self.path)
            self.path.pop()
        elif self.path[-1] == "t" and "Fallback" not in self.path:
            self._text(event.name)

    def _start(self, name: str, attributes: Attributes) -> None:
        if name == "p":
            self.is_paragraph_hidden = self.is_shaded = False
        elif name == "pStyle":
            self.is_paragraph_hidden = attributes.get("val", "") in self.hidden_styles
        elif name == "numPr":
            self.builder.write("- ")
        elif name == "r":
            self.reason, self.is_white = "", False
        elif name == "background":
            self.has_background = True
        elif name in ("tab", "ptab") and "pPr" not in self.path:
            self.builder.write("\t")
        elif name in ("br", "cr"):
            self.builder.write("\n")
        elif name == "noBreakHyphen":
            self.builder.write("-")
        elif "pPr" in self.path:
            self.is_shaded = self.is_shaded or name == "shd"
        elif "rPr" in self.path:
            self._property(name, attributes)

    def _property(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name in ("vanish", "specVanish"):
            self.reason = "hidden font" if is_on(attributes) else ""
        elif name == "rStyle" and value in self.hidden_styles:
            self.reason = "hidden font"
        elif name == "sz" and value.isdecimal() and int(value) <= _TINY_HALF_POINTS:
            self.reason = "too small to read"
        elif name == "color":
            self.is_white = value.upper() == "FFFFFF"
        elif name in ("shd", "highlight"):
            self.is_shaded = True

    def _text(self, text: str) -> None:
        reason = self.reason or ("hidden font" if self.is_paragraph_hidden else "")
        # A table or a box may have its own colour.
        is_on_paper = not (self.is_shaded or self.has_background)
        is_on_paper = is_on_paper and not {"tbl", "txbxContent"} & set(self.path)
        if not reason and self.is_white and is_on_paper:
            reason = "white on white"
        if reason:
            self.builder.hide(text, reason)
        else:
            self.builder.write(text)


def _write_end(builder: TextBuilder, name: str, path: list[str]) -> None:
    """What stands between cells, rows and paragraphs; those of a cell stay on its line."""
    if name == "tc":
        builder.write("\t")
    elif name == "tr" or (name == "p" and "tc" not in path):
        builder.write("\n")
    elif name == "p":
        builder.write(" ")


def _read_slides(package: Package, main: str, builder: TextBuilder) -> None:
    targets = {relation.id: relation.target for relation in package.relationships(main)}
    ids = [
        event.attributes.get("r:id", "")
        for event in package.events(main)
        if event.kind == "start" and event.name == "sldId"
    ]
    left_out = 0
    for number, name in enumerate((targets.get(id_, "") for id_ in ids), start=1):
        events = package.events(name)
        slide = next(events, None)
        if slide is not None and not is_on(slide.attributes, "show"):
            left_out += 1
            continue
        builder.write(f"Slide {number}\n")
        _SlideReader(builder).read(events)
        notes = TextBuilder(builder.max_chars)
        for notes_name in package.related(name, "notesSlide"):
            _SlideReader(notes, only_body=True).read(package.events(notes_name))
        builder.take_hidden(notes)
        if words := notes.result().text:
            builder.write(f"Notes: {words}\n")
        builder.write("\n")
        if builder.is_full:
            break
    if left_out:
        builder.warnings.append(f"hidden slides omitted: {left_out}")


_SHAPES = ("sp", "pic", "graphicFrame", "grpSp", "cxnSp")


@dataclass(slots=True)
class _SlideReader:
    """Reads the shapes of a slide; a shape says first whether it is hidden."""

    builder: TextBuilder
    only_body: bool = False
    """Of notes, only what the author wrote: not the number or picture of the slide."""
    path: list[str] = field(default_factory=list)
    hidden_depth: int = 0
    placeholder: str = ""

    def read(self, events: Iterator[XmlEvent]) -> None:
        for event in events:
            if event.kind == "start":
                self.path.append(event.name)
                self._start(event)
            elif event.kind == "end" and self.path:
                if len(self.path) == self.hidden_depth:
                    self.hidden_depth = 0
                _write_end(self.builder, event.name, self.path)
                self.path.pop()
            elif event.kind == "text" and self.path and self.path[-1] == "t":
                self._text(event.name)
            if self.builder.is_full:
                return

    def _start(self, event: XmlEvent) -> None:
        if event.name in _SHAPES:
            self.placeholder = ""
        elif event.name == "ph":
            self.placeholder = event.attributes.get("type", "body")
        elif event.name == "cNvPr" and is_on({"val": event.attributes.get("hidden", "0")}):
            self.hidden_depth = self.hidden_depth or len(self.path) - 2
        elif event.name == "br":
            self.builder.write("\n")

    def _text(self, text: str) -> None:
        if "Fallback" in self.path or (self.only_body and self.placeholder != "body"):
            return
        if self.hidden_depth:
            self.builder.hide(text, "hidden shape")
        else:
            self.builder.write(text)
