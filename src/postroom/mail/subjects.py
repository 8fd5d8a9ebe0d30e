"""Subject lines: what they are about without `Re:`, `Fwd:` and list tags."""

from __future__ import annotations

import re

_REPLY = (
    "re", "aw", "antw", "antwort", "sv", "vs", "rif", "ris", "res", "r", "odp", "ynt", "yan", "bls",
    "atb", "ref", "réf", "rép", "rv", "回复", "回覆", "答复", "答覆", "回信", "返信", "답장",
    "회신", "ответ", "отв", "на", "відп", "απ", "σχετ", "vá", "odg", "yht", "re^2", "svar", "reply",
)  # fmt: skip
_FORWARD = (
    "fwd", "fw", "wg", "tr", "rv", "enc", "i", "fs", "vb", "doorst", "pd", "vl", "trs",
    "továbbítás", "转发", "轉寄", "轉發", "転送", "전달", "пересл", "пер", "ilt", "προωθ", "vidb",
    "vs", "fyi",
)  # fmt: skip
_REPLIES = frozenset(_REPLY)
_FORWARDS = frozenset(_FORWARD)
_PREFIX = re.compile(r"\s*+([^\W\d_][\w^]{0,11})\s?(?:[\[(]\d{1,3}[\])]|\*\d{1,3})?\s?[:：]\s*+")
_TAG = re.compile(r"\s*+\[[^\]\[]{1,60}\]\s*+")
_WAS = re.compile(r"\s\(was:? [^()]{1,200}\)\s{0,9}$", re.IGNORECASE)
_FWD_TAIL = re.compile(r"\s{1,9}\((?:fwd|forward)\)\s{0,9}$", re.IGNORECASE)
_MOST_PREFIXES = 50


def base_subject(subject: str) -> str:
    """The subject without reply and forward prefixes and list tags, white space collapsed."""
    rest, _ = _strip(" ".join(subject.split())[:2_000])
    return rest


def is_reply_subject(subject: str) -> bool:
    """True if the subject claims to answer something."""
    _, prefixes = _strip(" ".join(subject.split())[:2_000])
    return any(prefix in _REPLIES for prefix in prefixes)


def without_reply_prefixes(subject: str) -> str:
    """The subject without `Re:` and its kin at its start; tags and `Fwd:` stay."""
    rest = " ".join(subject.split())
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(rest)
        if match is None or match[1].lower() not in _REPLIES:
            break
        rest = rest[match.end() :]
    return rest


def _strip(subject: str) -> tuple[str, list[str]]:
    prefixes: list[str] = []
    rest = subject
    for _ in range(_MOST_PREFIXES):
        if (match := _PREFIX.match(rest)) and _is_prefix(match[1]):
            prefixes.append(match[1].lower())
        elif not (match := _TAG.match(rest)) or not rest[match.end() :].strip():
            break
        rest = rest[match.end() :]
    rest = _FWD_TAIL.sub("", _WAS.sub("", rest))
    return rest.strip(), prefixes


def _is_prefix(word: str) -> bool:
    return word.lower() in _REPLIES or word.lower() in _FORWARDS
