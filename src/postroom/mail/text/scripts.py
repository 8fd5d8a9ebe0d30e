"""Which characters need an invisible one beside them: emoji, and letters of some scripts.

An invisible character stays only where it changes what is seen: a selector after a character of
which Unicode has two presentations, a joiner inside emoji that are one picture, and a joiner or
non-joiner between two letters that would look otherwise without it.
"""

from __future__ import annotations

import re
from functools import cache

VARIANTS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf"
    "\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2604\u260e"
    "\u2611\u2614\u2615\u2618\u261d\u2620\u2622\u2623\u2626\u262a\u262e\u262f\u2638-\u263a\u2640"
    "\u2642\u2648-\u2653\u265f\u2660\u2663\u2665\u2666\u2668\u267b\u267e\u267f\u2692-\u2697\u2699"
    "\u269b\u269c\u26a0\u26a1\u26a7\u26aa\u26ab\u26b0\u26b1\u26bd\u26be\u26c4\u26c5\u26c8\u26ce"
    "\u26cf\u26d1\u26d3\u26d4\u26e9\u26ea\u26f0-\u26f5\u26f7-\u26fa\u26fd\u2702\u2705\u2708-\u270d"
    "\u270f\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755"
    "\u2757\u2763\u2764\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50"
    "\u2b55\u3030\u303d\u3297\u3299\U0001f004\U0001f0cf\U0001f170\U0001f171\U0001f17e\U0001f17f"
    "\U0001f202\U0001f21a\U0001f22f\U0001f237\U0001f30d-\U0001f30f\U0001f315\U0001f31c\U0001f321"
    "\U0001f324-\U0001f32c\U0001f336\U0001f378\U0001f37d\U0001f393\U0001f396\U0001f397"
    "\U0001f399-\U0001f39b\U0001f39e\U0001f39f\U0001f3a7\U0001f3ac-\U0001f3ae\U0001f3c2\U0001f3c4"
    "\U0001f3c6\U0001f3ca-\U0001f3ce\U0001f3d4-\U0001f3e0\U0001f3ed\U0001f3f3\U0001f3f5\U0001f3f7"
    "\U0001f408\U0001f415\U0001f41f\U0001f426\U0001f43f\U0001f441\U0001f442\U0001f446-\U0001f449"
    "\U0001f44d\U0001f44e\U0001f453\U0001f46a\U0001f47d\U0001f4a3\U0001f4b0\U0001f4b3\U0001f4bb"
    "\U0001f4bf\U0001f4cb\U0001f4da\U0001f4df\U0001f4e4-\U0001f4e6\U0001f4ea-\U0001f4ed\U0001f4f7"
    "\U0001f4f9-\U0001f4fb\U0001f4fd\U0001f508\U0001f50d\U0001f512\U0001f513\U0001f549\U0001f54a"
    "\U0001f550-\U0001f567\U0001f56f\U0001f570\U0001f573-\U0001f579\U0001f587\U0001f58a-\U0001f58d"
    "\U0001f590\U0001f5a5\U0001f5a8\U0001f5b1\U0001f5b2\U0001f5bc\U0001f5c2-\U0001f5c4"
    "\U0001f5d1-\U0001f5d3\U0001f5dc-\U0001f5de\U0001f5e1\U0001f5e3\U0001f5e8\U0001f5ef\U0001f5f3"
    "\U0001f5fa\U0001f610\U0001f687\U0001f68d\U0001f691\U0001f694\U0001f698\U0001f6ad\U0001f6b2"
    "\U0001f6b9\U0001f6ba\U0001f6bc\U0001f6cb\U0001f6cd-\U0001f6cf\U0001f6e0-\U0001f6e5\U0001f6e9"
    "\U0001f6f0\U0001f6f3"
)
"""Characters that are drawn as text or as a picture (Unicode's emoji variation sequences)."""

_ADULTS, _CHILDREN = "\U0001f468\U0001f469\U0001f9d1", "\U0001f466\U0001f467\U0001f9d2"
_WORK = (
    "\u2695\u2696\u2708\U0001f33e\U0001f373\U0001f37c\U0001f384\U0001f393\U0001f3a4\U0001f3a8"
    "\U0001f3eb\U0001f3ed\U0001f4bb\U0001f4bc\U0001f527\U0001f52c\U0001f680\U0001f692"
    "\U0001f9af\U0001f9bc\U0001f9bd\U0001f9b0-\U0001f9b3\U0001fa70"
)
_DOING = (
    "\u26f9\U0001f3c3\U0001f3c4\U0001f3ca-\U0001f3cc\U0001f46e-\U0001f478\U0001f481\U0001f482"
    "\U0001f486\U0001f487\U0001f575\U0001f645-\U0001f647\U0001f64b\U0001f64d\U0001f64e\U0001f6a3"
    "\U0001f6b4-\U0001f6b6\U0001f926\U0001f935\U0001f937-\U0001f939\U0001f93c-\U0001f93e"
    "\U0001f9b8\U0001f9b9\U0001f9cd-\U0001f9cf\U0001f9d4\U0001f9d6-\U0001f9df"
)
_PICTURES = (
    f"[{_DOING}][\u2640\u2642]|[{_ADULTS}][{_ADULTS}{_CHILDREN}{_WORK}\u2764\U0001f91d\U0001f430]"
    f"|[{_CHILDREN}][{_CHILDREN}]|[\u2764\U0001f48b\U0001f91d\U0001f430][{_ADULTS}]"
    "|\u2764[\U0001f525\U0001fa79\U0001f48b]|[\u2640\u2642\U0001f6b6\U0001f3c3\U0001f9ce"
    "\U0001f9af\U0001f9bc\U0001f9bd]\u27a1|\U0001f3f3[\U0001f308\u26a7]|\U0001f3f4\u2620"
    "|\U0001f415\U0001f9ba|\U0001f408\u2b1b|\U0001f43b\u2744|\U0001f426[\u2b1b\U0001f525]"
    "|\U0001f62e\U0001f4a8|\U0001f635\U0001f4ab|\U0001f636\U0001f32b|\U0001f642[\u2194\u2195]"
    "|\U0001f441\U0001f5e8|\U0001f34b\U0001f7e9|\U0001f344\U0001f7eb|\u26d3\U0001f4a5"
    "|\U0001faf1\U0001faf2|\U0001f46f[\u2640\u2642]"
)
"""Two emoji of which a joiner makes one picture, or a part of one."""

_MODIFIERS = "\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
# Letters of Arabic that join the next one, those that are joined, and marks between them.
_DUAL = (
    "[\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a\u066e\u066f"
    "\u0678-\u0687\u069a-\u06bf\u06c1\u06c2\u06cc\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff"
    "\u0750-\u0758\u075c-\u076a\u076d-\u0770\u0772\u0775-\u0777\u077a-\u077f\u08a0-\u08a9]"
)
_ARABIC = (
    "[\u0620\u0622-\u063f\u0641-\u064a\u066e\u066f\u0671-\u06d3\u06d5\u06ee\u06ef"
    "\u06fa-\u06fc\u06ff\u0750-\u077f\u08a0-\u08c9]"
)
_ARABIC_MARKS = "".join(map(chr, (*range(0x64B, 0x660), 0x670)))
_VIRAMAS = frozenset("\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca")
_FIRST_CONSONANT, _LAST_CONSONANT = 0x15, 0x3A
_OTHER_CONSONANTS = "[\u0958-\u095f\u0978-\u097f\u09dc-\u09df\u09f0\u09f1\u0cde\u0d9a-\u0dc6]"
_BEFORE_VIRAMA = "[\u09b0\u09f0\u0cb0]"
_CHILLU = "[\u0d15\u0d23\u0d28\u0d2e\u0d2f\u0d30\u0d32-\u0d34]\u0d4d"
_MONGOLIAN = "[\u1820-\u18aa]"
WORD = (
    "\u0610-\u061a\u0620-\u065f\u066e-\u06dc\u06ee\u06ef\u06fa-\u06ff\u0750-\u077f\u08a0-\u0963"
    "\u0971-\u0dff\u1820-\u18aa"
)
"""Letters and marks of the scripts that have joiners inside words."""

_KEYCAP_BASES = frozenset("0123456789#*")
KEYCAP = "\u20e3"
FLAG = "\U0001f3f4"


def _tagged(region: str) -> str:
    return "".join(chr(0xE0000 + ord(outgoing_mail)) for outgoing_mail in region) + "\U000e007f"


FLAG_TAGS = tuple(_tagged(region) for region in ("gbeng", "gbsct", "gbwls"))
"""What may follow a black flag: the three subdivisions whose flags Unicode recommends."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Only when needed: most texts have nothing in them that asks."""
    return re.compile(pattern)


def _is(pattern: str, text: str) -> bool:
    return bool(_compiled(pattern).fullmatch(text))


def has_variant(base: str, selector: str, after: str) -> bool:
    """Whether a variation selector changes what is seen between these two characters."""
    if selector not in "\ufe0e\ufe0f" or not base:
        return False
    if base in _KEYCAP_BASES:
        return selector == "\ufe0f" and after == KEYCAP
    return _is(f"[{VARIANTS}]", base)


def is_joined(before: str, joiner: str, after: str) -> bool:
    """Whether a joiner changes what is seen between some characters and the one after."""
    if not before:
        return False
    if joiner == "\u180e":
        return _is(_MONGOLIAN, before[-1]) and after in ("\u1820", "\u1821")
    if "\u0900" <= before[-1] <= "\u0dff":
        return _is_indic(before, joiner, after)
    if joiner == "\u200c":
        letters = before.rstrip(_ARABIC_MARKS)
        return _is(_ARABIC, after) and bool(letters) and _is(_DUAL, letters[-1])
    return _is(_PICTURES, before.rstrip(_MODIFIERS)[-1:] + after)


def _is_indic(before: str, joiner: str, after: str) -> bool:
    """After the sign that takes a vowel away, or before it, between letters of one script."""
    if joiner == "\u200d" and _is(_CHILLU, before[-2:]):
        return True
    if not after or ord(before[-1]) >> 7 != ord(after) >> 7:
        return False
    if before[-1] in _VIRAMAS:
        return _is_consonant(after)
    return joiner == "\u200d" and after in _VIRAMAS and _is(_BEFORE_VIRAMA, before[-1])


def _is_consonant(char: str) -> bool:
    is_regular = _FIRST_CONSONANT <= ord(char) & 0x7F < _LAST_CONSONANT and char < "\u0d80"
    return is_regular or _is(_OTHER_CONSONANTS, char)
