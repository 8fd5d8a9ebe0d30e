"""The text of a PDF that shows on its pages."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_float, c_int, c_uint, c_void_p, cast
from dataclasses import dataclass
from typing import Any

from postroom.mail.text_extraction.extract import ExtractedText, TextBuilder

_MAX_COVERS = 2_000
_MAX_DEPTH = 4
_SCANNED = 0.5
"""The part of a page that a picture covers if the page is a scan."""

_PAPER = (255, 255, 255)
_TOO_CLOSE = 10
_TINY_POINTS = 1.0
_MAX_COMPARED = 200_000


def read_pdf(data: bytes, max_chars: int) -> ExtractedText:
    """The text of the first pages, as far as *max_chars* characters and one more.

    Raises:
        ValueError: it is no PDF, it is locked, or it cannot be read.
    """
    import pypdfium2  # type: ignore[import-untyped]

    builder = TextBuilder(max_chars)
    try:
        document = pypdfium2.PdfDocument(data)
        for number, page in enumerate(document, start=1):
            text = _Page(page, number, builder).text().replace("\r\n", "\n").strip()
            builder.write(text + "\n" if text else "")
            if builder.is_full:
                break
    except pypdfium2.PdfiumError as error:
        raise ValueError(f"the PDF cannot be read: {error}") from error
    return builder.result()


Box = tuple[float, float, float, float]
_Colour = tuple[int, int, int]
_LAYERS = ("invisible in print", "behind a picture")
"""How the text of a scanned page is hidden by programs that read the picture."""


@dataclass(slots=True)
class _Object:
    """A drawn object: its address, its type and its box on the page."""

    pointer: Any
    kind: int
    box: Box | None
    depth: int

    @property
    def address(self) -> int:
        return cast(self.pointer, c_void_p).value or 0


class _Page:
    """One page: which of its text objects show."""

    def __init__(self, page: Any, number: int, builder: TextBuilder) -> None:
        import pypdfium2.raw as raw  # type: ignore[import-untyped]

        self.raw = raw
        self.page = page
        self.number = number
        self.builder = builder
        self.box: Box = page.get_bbox()
        self.hidden: dict[int, str] = {}
        self.covers: list[tuple[Box, _Colour | None]] = []
        self.texts: dict[int, Box] = {}
        self.compared = 0
        self.is_scan = False

    def text(self) -> str:
        """The visible text, in the order in which PDFium reads it."""
        page_text = self.page.get_textpage()
        for drawn in self._objects(self.page.raw, 0):
            self._classify(drawn)
        if not self.hidden:
            shown: str = page_text.get_text_bounded(errors="replace")
            return shown
        seen, hidden = self._split_by_visibility(page_text)
        layer = next((why for why in _LAYERS if hidden.get(why, "").strip()), "")
        if self.is_scan and not seen.strip() and layer:
            self.builder.warnings.append(
                "the text of a scanned page is a layer that a reader does not see; it may differ "
                f"from the picture (page {self.number})"
            )
            seen = hidden.pop(layer)
        for reason, text in hidden.items():
            self.builder.hide(text, reason)
        return seen

    def _split_by_visibility(self, page_text: Any) -> tuple[str, dict[str, str]]:
        """The characters that show, and those that do not by their reasons."""
        raw, seen, hidden = self.raw, list[str](), dict[str, list[str]]()
        reason = ""
        for index in range(page_text.count_chars()):
            char = chr(raw.FPDFText_GetUnicode(page_text.raw, index) & 0x1FFFFF)
            if not raw.FPDFText_IsGenerated(page_text.raw, index):
                drawn = raw.FPDFText_GetTextObject(page_text.raw, index)
                reason = self.hidden.get(cast(drawn, c_void_p).value or 0, "") if drawn else ""
            (hidden.setdefault(reason, []) if reason else seen).append(char)
        return "".join(seen), {why: "".join(chars) for why, chars in hidden.items()}

    def _objects(self, holder: Any, depth: int) -> Iterator[_Object]:
        raw = self.raw
        is_page = depth == 0
        count = raw.FPDFPage_CountObjects if is_page else raw.FPDFFormObj_CountObjects
        get = raw.FPDFPage_GetObject if is_page else raw.FPDFFormObj_GetObject
        for index in range(count(holder)):
            pointer = get(holder, index)
            if not pointer:
                continue
            kind = raw.FPDFPageObj_GetType(pointer)
            yield _Object(pointer, kind, self._box_of(pointer), depth)
            if kind == raw.FPDF_PAGEOBJ_FORM and depth < _MAX_DEPTH:
                yield from self._objects(pointer, depth + 1)

    def _box_of(self, pointer: Any) -> Box | None:
        left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
        if not self.raw.FPDFPageObj_GetBounds(pointer, left, bottom, right, top):
            return None
        return left.value, bottom.value, right.value, top.value

    def _classify(self, drawn: _Object) -> None:
        if drawn.kind == self.raw.FPDF_PAGEOBJ_TEXT:
            if reason := self._hidden_reason(drawn):
                self.hidden[drawn.address] = reason
            elif drawn.box is not None and not drawn.depth:
                self.texts[drawn.address] = drawn.box
        elif drawn.box is not None and len(self.covers) < _MAX_COVERS and self._paints(drawn):
            self.covers.append((drawn.box, self._colour_of(drawn)))
            if not drawn.depth and not self.raw.FPDFPageObj_HasTransparency(drawn.pointer):
                self._hide_covered(drawn.box)

    def _hide_covered(self, over: Box) -> None:
        """Hide the texts that were drawn before, and that a picture or a filled box lies over."""
        self.compared += len(self.texts)
        if self.compared > _MAX_COMPARED:
            return
        for address, box in list(self.texts.items()):
            if over[0] <= box[0] and over[1] <= box[1] and over[2] >= box[2] and over[3] >= box[3]:
                self.hidden[address] = "behind a picture"
                del self.texts[address]

    def _hidden_reason(self, drawn: _Object) -> str:
        """Why a text does not show; "" if it does."""
        raw = self.raw
        if raw.FPDFTextObj_GetTextRenderMode(drawn.pointer) == raw.FPDF_TEXTRENDERMODE_INVISIBLE:
            return "invisible in print"
        # A form has its own coordinates and may be drawn on anything.
        if drawn.depth or drawn.box is None:
            return ""
        if self._is_outside(drawn.box):
            return "outside the page"
        if drawn.box[3] - drawn.box[1] < _TINY_POINTS:
            return "too small to read"
        colour = self._fill_colour(drawn.pointer)
        if colour is None:
            return ""
        if colour[3] == 0:
            return "transparent"
        below = self._background_at(drawn.box)
        if below is None or any(
            abs(a - b) > _TOO_CLOSE for a, b in zip(colour, below, strict=False)
        ):
            return ""
        return "white on white" if min(below) > 250 else "in the colour of its background"

    def _is_outside(self, box: Box) -> bool:
        left, bottom, right, top = self.box
        return box[2] <= left or box[0] >= right or box[3] <= bottom or box[1] >= top

    def _paints(self, drawn: _Object) -> bool:
        """Whether an object changes what is below a text; lines and clips do not."""
        raw = self.raw
        if drawn.kind == raw.FPDF_PAGEOBJ_IMAGE:
            self.is_scan = self.is_scan or self._share_of_page(drawn.box) >= _SCANNED
        if drawn.kind != raw.FPDF_PAGEOBJ_PATH:
            return True
        mode, stroke = c_int(), c_int()
        return not raw.FPDFPath_GetDrawMode(drawn.pointer, mode, stroke) or bool(mode.value)

    def _colour_of(self, drawn: _Object) -> _Colour | None:
        """The colour of a filled path; None for what may have many."""
        colour = (
            self._fill_colour(drawn.pointer) if drawn.kind == self.raw.FPDF_PAGEOBJ_PATH else None
        )
        return colour[:3] if colour is not None and colour[3] == 255 else None

    def _share_of_page(self, box: Box | None) -> float:
        """The part of the page that a box takes."""
        if box is None:
            return 0.0
        left, bottom, right, top = self.box
        width = min(box[2], right) - max(box[0], left)
        height = min(box[3], top) - max(box[1], bottom)
        area = (right - left) * (top - bottom)
        return max(width, 0) * max(height, 0) / area if area > 0 else 0.0

    def _background_at(self, box: Box) -> _Colour | None:
        """The colour on which a text is drawn; None if that is not known."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        for cover, colour in reversed(self.covers):
            if cover[0] <= x <= cover[2] and cover[1] <= y <= cover[3]:
                return colour
        return _PAPER

    def _fill_colour(self, pointer: Any) -> tuple[int, int, int, int] | None:
        red, green, blue, alpha = c_uint(), c_uint(), c_uint(), c_uint()
        if not self.raw.FPDFPageObj_GetFillColor(pointer, red, green, blue, alpha):
            return None
        return red.value, green.value, blue.value, alpha.value
