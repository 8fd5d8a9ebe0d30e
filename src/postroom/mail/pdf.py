"""The text of a PDF. Run it in a process of its own: the file comes from a stranger."""

from __future__ import annotations

from postroom.mail.charsets import clean

NEEDS = ("pypdfium2", "encodings.utf_16_le")
"""The modules that are loaded only when a PDF is read."""


def pdf_text(data: bytes, max_chars: int) -> str:
    """The text of the first pages, as far as *max_chars* characters and one more.

    Raises:
        ValueError: it is no PDF, it is locked, or it cannot be read.
    """
    import pypdfium2  # type: ignore[import-untyped]

    try:
        document = pypdfium2.PdfDocument(data)
        return _text(document, max_chars)
    except pypdfium2.PdfiumError as error:
        raise ValueError(f"the PDF cannot be read: {error}") from error


def _text(document: object, max_chars: int) -> str:
    """One character more than allowed tells that there is more."""
    pages: list[str] = []
    left = max_chars + 1
    for page in document:  # type: ignore[attr-defined]
        text = clean(page.get_textpage().get_text_bounded(errors="replace")).replace("\r\n", "\n")
        pages.append(text.strip()[:left])
        left -= len(pages[-1]) + 1
        if left <= 0:
            break
    return "\n".join(pages).lstrip()[: max_chars + 1]
