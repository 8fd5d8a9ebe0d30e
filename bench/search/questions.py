"""The queries: fixed classes, and a random mix from the corpus."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.search.corpus import Corpus
from bench.search.loading import searchable
from postroom.mail.text.fold import fold
from postroom.model.mail.storage import FIELD_BORDER

MIX = 465


@dataclass(frozen=True, slots=True)
class Question:
    """A text to find, and its class."""

    kind: str
    q: str


ONE_WORD = ("rare word", "common word", "inside words", "no match", "one character",
            "two characters", "CJK pair")  # fmt: skip


def fixed(corpus: Corpus) -> list[Question]:
    """One query for each class."""
    address, _ = corpus.people[7]
    return [
        Question("rare word", fold(str(corpus.words[90_000]))),
        Question("common word", "regards"),
        Question("inside words", "nvoic"),
        Question("no match", "zzqzzq"),
        Question("one character", "e"),
        Question("two characters", "of"),
        Question("CJK pair", "一丁"),
        Question("address", fold(address)),
        Question("file name", "invoice.pdf"),
        Question("phrase, middling", "kind regards, anna"),
        Question("phrase of common words", "of the"),
        Question("phrase, never together", "regards invoice meeting hello"),
        Question("inside two words", "e of t"),
    ]


def mix(corpus: Corpus, messages: int, seed: int = 465) -> list[Question]:
    """Random substrings of the corpus."""
    rng = random.Random(seed)
    makers = (_word, _part, _part, _words, _words, _words, _slice, _slice, _slice, _foreign)
    found: dict[str, Question] = {}
    while len(found) < MIX:
        mail = next(corpus.mails(number := rng.randrange(messages), number + 1))
        fields = [field for field in searchable(mail).split(FIELD_BORDER) if len(field) > 2]
        field = rng.choices(fields, weights=[len(field) for field in fields])[0]
        maker: Callable[[random.Random, str], str] = rng.choice(makers)
        q = maker(rng, field)
        if q and len(q) <= 256:
            found.setdefault(q, Question(maker.__name__.strip("_"), q))
    return list(found.values())


def _word(rng: random.Random, text: str) -> str:
    return rng.choice(text.split())


def _part(rng: random.Random, text: str) -> str:
    """A part of a word."""
    word = rng.choice(text.split())
    size = rng.randrange(1, max(2, min(len(word), 8)))
    start = rng.randrange(len(word) - size + 1)
    return word[start : start + size]


def _words(rng: random.Random, text: str) -> str:
    """Two to four words."""
    words = text.split()
    size = min(len(words), rng.randrange(2, 5))
    start = rng.randrange(len(words) - size + 1)
    return " ".join(words[start : start + size])


def _slice(rng: random.Random, text: str) -> str:
    """Any part of the text."""
    size = rng.randrange(4, 25)
    start = rng.randrange(max(1, len(text) - size))
    return text[start : start + size].strip()


def _foreign(rng: random.Random, text: str) -> str:
    """A part that is not ASCII, if there is one."""
    places = [at for at, character in enumerate(text) if ord(character) > 0x2FF]
    if not places:
        return ""
    start = rng.choice(places)
    return text[start : start + rng.randrange(1, 6)].strip()
