"""A deterministic corpus of mail-like messages: message *n* of a seed is always the same.

A Zipf vocabulary of 150,000 words with names, numbers, accents, Cyrillic, CJK and URLs; bodies
lognormal with a median of 1.2 KB; 20,000 senders; one in ten with attachments; threads of one to
twenty; 1,000 inboxes, the first of which holds 30 % of all mail; dates that mostly grow.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

INBOXES = 1_000
SENDERS = 20_000
_WORDS = 150_000
_MEDIAN_WORDS = 200
_START = 1_500_000_000
_STEP_S = 75

_COMMON = """
the to of and a in is for you that on it with this be we are i as have at by or not your from will
can if our an all please has was but do me they would so my no there what which about up their
more when one out any new also who other time been just may get us should how some only know need
see work could had than were its them let now thanks like first today make week team meeting
report invoice project order account update attached best regards kind hello dear
"""
_SYLLABLES = """
ba be bi bo bra cal can car cen cha cla com con cor cra da de del der di dis do dra el en er est
eva fa fer fi for fra ga gen ger gra ha hel her ho in ing ion is ja jo ka kel ken la lan len li lin
lo lu ma man mar men mer mi mo mor na ne nel ni nor o or pa par pel per pla po por pre pro qua ra
re rel ri ro ru sa san sel ser si so sta ste stra su ta te tel ter ti tion tor tra tu un ur va vel
ver vi vo wa wel wor ya za ment able ness ful ity ship
"""
_ACCENTED = str.maketrans({"a": "á", "e": "é", "o": "ö", "u": "ü", "i": "í", "n": "ñ"})
_CYRILLIC = "абвгдежзиклмнопрстуфхцчшщыэюя"
_CJK = [chr(c) for c in range(0x4E00, 0x4E00 + 2_000)]
_FIRST = [
    "anna",
    "ben",
    "chiara",
    "dmitri",
    "elif",
    "farid",
    "gustav",
    "hana",
    "ivan",
    "jürgen",
    "karl",
    "lena",
    "maría",
    "noah",
    "olga",
    "pedro",
    "quentin",
    "rosa",
    "søren",
    "tariq",
]
_EXTENSIONS = ["pdf", "docx", "xlsx", "png", "zip", "ics", "txt"]


@dataclass(frozen=True, slots=True)
class Mail:
    """One message of the corpus, before it is folded."""

    number: int
    inbox: int
    thread: int
    subject: str
    text: str
    from_address: str
    from_name: str
    to_address: str
    filenames: tuple[str, ...]
    date: int


class Corpus:
    """The words and people of one seed, and the messages made from them."""

    def __init__(self, seed: int = 4) -> None:
        self.seed = seed
        rng = random.Random(seed)
        self.words = np.array(_vocabulary(rng), dtype=object)
        weights = 1.0 / (np.arange(_WORDS) + 2.7) ** 1.05
        self._cumulative = np.cumsum(weights / weights.sum())
        self.people = [_person(rng, number) for number in range(SENDERS)]

    def mails(self, start: int, stop: int) -> Iterator[Mail]:
        """The messages with these numbers."""
        for number in range(start, stop):
            yield self._mail(number)

    def _mail(self, number: int) -> Mail:
        rng = np.random.Generator(np.random.PCG64((self.seed << 32) + number))
        draw = rng.random(16)
        inbox = 0 if draw[0] < 0.3 else 1 + int((INBOXES - 1) * draw[1] ** 2)
        address, name = self.people[int(SENDERS * draw[2] ** 2)]
        text = self._text(rng, draw)
        return Mail(
            number=number,
            inbox=inbox,
            thread=_thread(number),
            subject=" ".join(self._words(rng, 2 + int(6 * draw[3]))).capitalize(),
            text=text,
            from_address=address,
            from_name=name,
            to_address=f"agent{inbox}@postroom.localhost",
            filenames=self._filenames(rng, draw),
            date=_START + number * _STEP_S + _delay(draw),
        )

    def _words(self, rng: np.random.Generator, count: int) -> list[str]:
        chosen = np.searchsorted(self._cumulative, rng.random(count))
        return list(self.words[np.minimum(chosen, _WORDS - 1)])

    def _text(self, rng: np.random.Generator, draw: np.ndarray) -> str:
        count = max(5, int(_MEDIAN_WORDS * np.exp(0.9 * rng.standard_normal())))
        words = self._words(rng, min(count, 20_000))
        _punctuate(words, rng)
        if draw[4] < 0.06:
            words.insert(len(words) // 2, _cjk(rng))
        if draw[5] < 0.06:
            words += [_cyrillic(rng) for _ in range(12)]
        if draw[6] < 0.25:
            host = words[0].strip(".,").lower()
            words.append(f"https://{host}.example.com/{_token(rng)}?id={_token(rng)}")
        if draw[7] < 0.3:
            day = f"2026-0{1 + int(9 * draw[9])}-1{int(9 * draw[10])}"
            words.append(f"Order #{int(1e7 * draw[8]):07d} of {day},")
        if draw[11] < 0.5:
            words.append("\n\nKind regards,\n" + self.people[int(SENDERS * draw[12])][1])
        return " ".join(words)

    def _filenames(self, rng: np.random.Generator, draw: np.ndarray) -> tuple[str, ...]:
        if draw[13] >= 0.1:
            return ()
        stem = "invoice" if draw[14] < 0.3 else "-".join(self._words(rng, 2))
        return (f"{stem}.{_EXTENSIONS[int(len(_EXTENSIONS) * draw[15])]}",)


def _vocabulary(rng: random.Random) -> list[str]:
    syllables = _SYLLABLES.split()
    words = dict.fromkeys(_COMMON.split())
    while len(words) < _WORDS:
        word = "".join(rng.choices(syllables, k=rng.choice((2, 2, 3, 3, 4))))
        kind = rng.random()
        if kind < 0.05:
            word = word.translate(_ACCENTED)
        elif kind < 0.10:
            word = str(rng.randrange(10, 10 ** rng.randrange(2, 8)))
        elif kind < 0.15:
            word = word.capitalize()
        elif kind < 0.16:
            word = "".join(rng.choices(_CYRILLIC, k=rng.randrange(3, 11)))
        words.setdefault(word)
    return list(words)[:_WORDS]


def _person(rng: random.Random, number: int) -> tuple[str, str]:
    syllables = _SYLLABLES.split()
    first = rng.choice(_FIRST)
    last = "".join(rng.choices(syllables, k=3))
    domain = "".join(rng.choices(syllables, k=2))
    name = f"{first} {last}".title()
    return f"{first[0]}.{last}{number % 97}@{domain}.example", name


def _punctuate(words: list[str], rng: np.random.Generator) -> None:
    """Sentences of about eleven words, commas, and line breaks."""
    marks = rng.random(len(words))
    for position in np.flatnonzero(marks < 0.17).tolist():
        mark = marks[position]
        end = ". " if mark < 0.06 else ".\n" if mark < 0.09 else "," if mark < 0.15 else "!"
        words[position] = words[position] + end.strip(" ")


def _cjk(rng: np.random.Generator) -> str:
    chosen = (2_000 * rng.random(40) ** 3).astype(int)
    return "".join(_CJK[c] for c in chosen) + "。"


def _cyrillic(rng: np.random.Generator) -> str:
    size = len(_CYRILLIC)
    return "".join(_CYRILLIC[int(size * c * c)] for c in rng.random(6))


def _token(rng: np.random.Generator) -> str:
    return "".join("0123456789abcdefghijklmnopqrstuv"[int(32 * c)] for c in rng.random(12))


def _thread(number: int) -> int:
    """Threads of one to twenty neighbouring messages."""
    block, place = divmod(number, 210)
    size, first = 1, 0
    while first + size <= place:
        first += size
        size += 1
    return block * 20 + size


def _delay(draw: np.ndarray) -> int:
    """Most mail is in order within some minutes; some is much older."""
    if draw[14] < 0.05:
        return -int(10_000_000 * draw[15])
    return int(600 * draw[15])
