"""Do the plain part and the HTML part of a mail say the same?"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w{3,}")
_NOT_WORDS = re.compile(r"\S*://\S*|\S*@\S*|<[^<>]{0,500}>")
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
        words = _WORD.findall(_NOT_WORDS.sub(" ", paragraph).casefold())
        missing = sum(word not in seen for word in words)
        if missing >= _FEW and missing > 0.6 * len(words):
            return True
    return False
