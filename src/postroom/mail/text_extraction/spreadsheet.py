"""The text of Excel workbooks: the cells that show, as lines with tabs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from postroom.mail.text_extraction.extract import TextBuilder
from postroom.mail.text_extraction.package import Attributes, Package

_MAX_COLUMNS = 500
_DATE_FORMATS = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
_PERCENT_FORMATS = frozenset((9, 10))
_LITERALS = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
_DATE_LETTERS = re.compile(r"[ymdhs]", re.IGNORECASE)
_REFERENCE = re.compile(r"([A-Z]{1,3})\d*")
_WHITE = "FFFFFF"
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30, tzinfo=UTC), datetime(1904, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _CellStyle:
    """How the cells of a style show."""

    is_date: bool = False
    is_percent: bool = False
    hiding: str = ""


@dataclass(slots=True)
class _Styles:
    formats: dict[int, str] = field(default_factory=dict)
    white_fonts: set[int] = field(default_factory=set)
    filled: set[int] = field(default_factory=set)
    cells: list[_CellStyle] = field(default_factory=list)

    def cell(self, index: str) -> _CellStyle:
        known = index.isdecimal() and len(index) < 7 and int(index) < len(self.cells)
        return self.cells[int(index)] if known else _CellStyle()


def read_workbook(package: Package, main: str, builder: TextBuilder) -> None:
    """Write the sheets of a workbook, each under its name."""
    targets = {relation.id: relation.target for relation in package.relationships(main)}
    strings = _shared_strings(package, main, builder.max_chars)
    styles = _read_styles(package, main)
    sheets: list[Attributes] = []
    epoch = _EPOCH
    for event in package.events(main):
        if event.kind == "start" and event.name == "sheet":
            sheets.append(event.attributes)
        elif event.attributes.get("date1904") in ("1", "true"):
            epoch = _EPOCH_1904
    shown = [sheet for sheet in sheets if sheet.get("state", "visible") == "visible"]
    if len(shown) < len(sheets):
        builder.warnings.append(f"hidden sheets omitted: {len(sheets) - len(shown)}")
    reader = _SheetReader(builder, strings, styles, epoch)
    for sheet in sheets:
        if sheet not in shown and not builder.is_full:
            apart = TextBuilder(builder.max_chars)
            other = _SheetReader(apart, strings, styles, epoch)
            other.read(package, targets.get(sheet.get("r:id", ""), ""))
            builder.hide_words(apart.result().text, "hidden sheets")
    for sheet in shown:
        builder.write(f"Sheet: {sheet.get('name', '')}\n")
        reader.read(package, targets.get(sheet.get("r:id", ""), ""))
        builder.write("\n")
        if builder.is_full:
            break
    for what, count in (("rows", reader.hidden_rows), ("columns", len(reader.hidden_columns))):
        if count:
            builder.warnings.append(f"hidden {what} omitted: {count}")


def _shared_strings(package: Package, main: str, max_chars: int) -> list[str]:
    """The texts that cells refer to by number."""
    found: list[str] = []
    pieces: list[str] = []
    path: list[str] = []
    for name in package.related(main, "sharedStrings")[:1]:
        for event in package.events(name):
            if event.kind == "start":
                path.append(event.name)
            elif event.kind == "end":
                path.pop()
                if event.name == "si":
                    found.append("".join(pieces)[: max_chars + 1])
                    pieces = []
            elif path[-1] == "t" and "rPh" not in path:
                pieces.append(event.name)
    return found


def _read_styles(package: Package, main: str) -> _Styles:
    styles = _Styles()
    path: list[str] = []
    fonts = fills = -1
    for name in package.related(main, "styles")[:1]:
        for event in package.events(name):
            if event.kind == "end":
                path.pop()
            if event.kind != "start":
                continue
            given, above = event.attributes, path[-1] if path else ""
            path.append(event.name)
            if event.name == "numFmt" and given.get("numFmtId", "").isdecimal():
                styles.formats[int(given["numFmtId"])] = given.get("formatCode", "")
            elif event.name == "font" and above == "fonts":
                fonts += 1
            elif event.name == "color" and above == "font" and "fonts" in path and _is_white(given):
                styles.white_fonts.add(fonts)
            elif event.name == "fill" and above == "fills":
                fills += 1
            elif event.name in ("patternFill", "gradientFill"):
                if given.get("patternType") != "none":
                    styles.filled.add(fills)
            elif event.name == "xf" and above == "cellXfs":
                styles.cells.append(_cell_style(styles, given))
    return styles


def _is_white(colour: Attributes) -> bool:
    """Theme 0 is the colour of the paper."""
    return colour.get("rgb", "").upper()[-6:] == _WHITE or (
        colour.get("theme") == "0" and "tint" not in colour
    )


def _cell_style(styles: _Styles, given: Attributes) -> _CellStyle:
    numbers = (given.get(name, "0") for name in ("numFmtId", "fontId", "fillId"))
    number, font, fill = (int(n) if n.isdecimal() and len(n) < 7 else 0 for n in numbers)
    code = _LITERALS.sub("", styles.formats.get(number, ""))
    hiding = ""
    if styles.formats.get(number, "").startswith(";;"):
        hiding = "number format that shows nothing"
    elif font in styles.white_fonts and fill not in styles.filled:
        hiding = "white on white"
    return _CellStyle(
        is_date=number in _DATE_FORMATS or bool(code and _DATE_LETTERS.search(code)),
        is_percent=number in _PERCENT_FORMATS or "%" in code,
        hiding=hiding,
    )


@dataclass(slots=True)
class _SheetReader:
    """Reads the rows of sheets."""

    builder: TextBuilder
    strings: list[str]
    styles: _Styles
    epoch: datetime
    hidden_rows: int = 0
    hidden_columns: set[tuple[str, int]] = field(default_factory=set)

    def read(self, package: Package, name: str) -> None:
        hidden: list[tuple[int, int]] = []
        row: dict[int, str] = {}
        is_row_hidden = False
        cell: Attributes = {}
        value: list[str] = []
        path: list[str] = []
        column = 0
        for event in package.events(name):
            if event.kind == "start":
                path.append(event.name)
                if event.name == "col" and _is_hidden(event.attributes):
                    hidden.append(_span(event.attributes))
                elif event.name == "row":
                    row, column, is_row_hidden = {}, 0, _is_hidden(event.attributes)
                elif event.name == "c":
                    cell, value = event.attributes, []
                    column = _column(cell.get("r", "")) or column + 1
            elif event.kind == "text":
                if path[-1] in ("v", "t") and "rPh" not in path:
                    value.append(event.name)
            else:
                path.pop()
                if event.name == "c":
                    if any(first <= column <= last for first, last in hidden):
                        self.hidden_columns.add((name, column))
                        words = self._cell_text(cell, "".join(value), is_row_hidden=True)
                        self.builder.hide_words(words, "hidden columns")
                    elif text := self._cell_text(cell, "".join(value), is_row_hidden=is_row_hidden):
                        row[column] = text
                elif event.name == "row" and is_row_hidden:
                    self.hidden_rows += bool(row)
                    self.builder.hide_words(" ".join(row.values()), "hidden rows")
                elif event.name == "row":
                    self._write(row)
            if self.builder.is_full:
                return

    def _cell_text(self, cell: Attributes, value: str, *, is_row_hidden: bool) -> str:
        """The text of a cell as Excel shows it, on one line."""
        style = self.styles.cell(cell.get("s", ""))
        text = " ".join(self._value(cell.get("t", "n"), value, style).split())
        if style.hiding and text and not is_row_hidden:
            self.builder.hide(text, style.hiding)
            return ""
        return text

    def _value(self, kind: str, value: str, style: _CellStyle) -> str:
        if kind == "s":
            known = value.isdecimal() and len(value) < 9 and int(value) < len(self.strings)
            return self.strings[int(value)] if known else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if kind != "n" or not value:
            return value
        try:
            number = float(value)
        except ValueError:
            return value
        if style.is_date:
            return self._moment(number) or value
        return f"{number * 100:.15g}%" if style.is_percent else f"{number:.15g}"

    def _moment(self, days: float) -> str | None:
        """A date, a time of day, or both."""
        try:
            moment = self.epoch + timedelta(seconds=round(days * 86_400))
        except (OverflowError, ValueError):
            return None
        if 0 <= days < 1:
            return f"{moment:%H:%M:%S}"
        return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"

    def _write(self, row: dict[int, str]) -> None:
        """A line with a tab for each column, up to the last that says something."""
        last = max(row, default=0)
        if last > _MAX_COLUMNS:
            line = "\t".join(row[column] for column in sorted(row))
        else:
            line = "\t".join(row.get(column, "") for column in range(1, last + 1))
        if row:
            self.builder.write(f"{line}\n")


def _is_hidden(attributes: Attributes) -> bool:
    is_flat = attributes.get("ht") == "0" or attributes.get("width") == "0"
    return attributes.get("hidden") in ("1", "true") or is_flat


def _span(attributes: Attributes) -> tuple[int, int]:
    first, last = attributes.get("min", ""), attributes.get("max", "")
    return (int(first), int(last)) if first.isdecimal() and last.isdecimal() else (0, 0)


def _column(reference: str) -> int:
    """The number of the column in a reference such as `AB12`; 0 if it is not a reference."""
    match = _REFERENCE.fullmatch(reference)
    number = 0
    for letter in match[1] if match else "":
        number = number * 26 + ord(letter) - 64
    return number
