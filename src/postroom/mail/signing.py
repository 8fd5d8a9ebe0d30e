"""A signature under what is sent."""

from __future__ import annotations

import re

from postroom.mail.html import html_to_text

_BODY_END = re.compile(r"</body\s*>", re.IGNORECASE)


def signed(text: str | None, html: str | None, signature: str) -> tuple[str | None, str | None]:
    """Both versions of a mail with a signature under them, as RFC 3676 §4.3 parts it off."""
    if not signature:
        return text, html
    if text is not None:
        text = f"{text.rstrip()}\n\n-- \n{html_to_text(signature).text.strip()}\n"
    if html is not None:
        block = f'<div class="signature">-- <br>{signature}</div>'
        ends = [found.start() for found in _BODY_END.finditer(html)]
        at = ends[-1] if ends else len(html)
        html = html[:at] + block + html[at:]
    return text, html
