"""English words without their endings, so that `invoices` finds `invoice` (Porter's second way).

The rules are those of the Snowball project's English stemmer. R1 is what follows the first
consonant after a vowel, R2 the same within R1; an ending goes only where a rule says so.
"""

from __future__ import annotations

import re
from functools import lru_cache

_VOWELS = "aeiouy"
_REGION = re.compile(r"[aeiouy][^aeiouy]")
_HAS_VOWEL = re.compile(r"[aeiouy]")
_SHORT_END = re.compile(r"(?:[^aeiouy][aeiouy][^aeiouywxY]|^[aeiouy][^aeiouy]|^past)$")
_CONSONANT_Y = re.compile(r"(?:^|(?<=[aeiouy]))y")
_R1_STARTS = re.compile(r"^(?:gener|commun|arsen|past|univers|later|emerg|organ|inter)")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")

_WHOLE = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
}
_AS_THEY_ARE = frozenset(("sky", "news", "howe", "atlas", "cosmos", "bias", "andes"))
_DONE_AFTER_1A = frozenset(
    ("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed", "evening")
)
_STEP_2 = {
    "ization": "ize",
    "ational": "ate",
    "fulness": "ful",
    "ousness": "ous",
    "iveness": "ive",
    "tional": "tion",
    "biliti": "ble",
    "lessli": "less",
    "entli": "ent",
    "ation": "ate",
    "alism": "al",
    "aliti": "al",
    "ousli": "ous",
    "iviti": "ive",
    "fulli": "ful",
    "ogist": "og",
    "enci": "ence",
    "anci": "ance",
    "abli": "able",
    "izer": "ize",
    "ator": "ate",
    "alli": "al",
    "bli": "ble",
}
_STEP_3 = {
    "ational": "ate",
    "tional": "tion",
    "alize": "al",
    "icate": "ic",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4 = (
    *("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous"),
    *("ive", "ize", "al", "er", "ic"),
)


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a lower-case English word of ASCII letters."""
    if len(word) <= 2 or word in _AS_THEY_ARE:
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    word = _CONSONANT_Y.sub("Y", word)
    r1, r2 = _regions(word)
    word = _plural(word)
    if word not in _DONE_AFTER_1A:
        word = _past(word, r1)
        if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
            word = word[:-1] + "i"
        word = _replaced(word, r1)
        word = _adjective(word, r1, r2)
        word = _cut(word, r2)
        word = _last(word, r1, r2)
    return word.lower()


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin."""
    start = _R1_STARTS.match(word)
    r1 = start.end() if start else _after(word, 0)
    return r1, _after(word, r1)


def _after(word: str, place: int) -> int:
    found = _REGION.search(word, place)
    return found.end() if found else len(word)


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _HAS_VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _past(word: str, r1: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            return word[: 2 - len(ending)] if len(word) - len(ending) >= r1 else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            return _without(word, len(ending), r1, is_ing=ending == "ing")
    return word


def _without(word: str, length: int, r1: int, *, is_ing: bool) -> str:
    rest = word[:-length]
    if is_ing and re.fullmatch(r"[^aeiouy]y", rest):
        return rest[0] + "ie"
    if not _HAS_VOWEL.search(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if rest.endswith(_DOUBLES):
        return rest if len(rest) == 3 and rest[0] in "aeo" else rest[:-1]
    if r1 >= len(rest) and _SHORT_END.search(rest):
        return rest + "e"
    return rest


def _replaced(word: str, r1: int) -> str:
    for ending, new in _STEP_2.items():
        if word.endswith(ending):
            return word[: -len(ending)] + new if len(word) - len(ending) >= r1 else word
    if word.endswith("ogi") and len(word) - 3 >= r1 and word[-4:-3] == "l":
        return word[:-1]
    if word.endswith("li") and len(word) - 2 >= r1 and word[-3:-2] in tuple("cdeghkmnrt"):
        return word[:-2]
    return word


def _adjective(word: str, r1: int, r2: int) -> str:
    for ending, new in _STEP_3.items():
        if word.endswith(ending):
            return word[: -len(ending)] + new if len(word) - len(ending) >= r1 else word
    if word.endswith("ative") and len(word) - 5 >= r2:
        return word[:-5]
    return word


def _cut(word: str, r2: int) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            return word[: -len(ending)] if len(word) - len(ending) >= r2 else word
    if word.endswith(("sion", "tion")) and len(word) - 3 >= r2:
        return word[:-3]
    return word


def _last(word: str, r1: int, r2: int) -> str:
    end = len(word) - 1
    if word.endswith("e"):
        if end >= r2 or (end >= r1 and not _SHORT_END.search(word[:-1])):
            return word[:-1]
    elif word.endswith("ll") and end >= r2:
        return word[:-1]
    return word
