"""Do the plain part and the HTML part of a mail say the same?"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w{3,}")
_FEW = 6
_MOST_CHARS = 200_000


def text_differs(plain: str, rendered: str) -> bool:
    """True if the plain part has a paragraph that the HTML part does not say.

    That way round, because a person reads the HTML while a machine reads the plain text.
    """
    seen = set(_WORD.findall(rendered[:_MOST_CHARS].casefold()))
    if not seen:
        return False
    for paragraph in re.split(r"\n[ \t]*+\n", plain[:_MOST_CHARS]):
        prose = " ".join(word for word in paragraph.casefold().split() if not _is_address(word))
        words = _WORD.findall(prose)
        missing = sum(word not in seen for word in words)
        if missing >= _FEW and missing > 0.6 * len(words):
            return True
    return False


def _is_address(word: str) -> bool:
    """Links and addresses: HTML shows them otherwise, or not at all."""
    return "://" in word or "@" in word or word.startswith(("<", "[", "www."))
