"""What was found in a mail, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.mail.text.marks import how_hidden
from postroom.model.message import Mark, Message

_MAX_MARKS = 100
_BY_CHARACTERS = (
    *("tag characters", "variation selectors", "zero-width characters", "direction override"),
)

_REMOVED = {
    "tag": "tag characters, in which whole sentences can be hidden",
    "variation": "variation selectors, in which bytes can be hidden",
    "direction": "marks that turn the reading direction around",
    "zero_width": "characters without a width",
    "filler": "fillers that look like nothing",
    "control": "control characters",
    "format": "invisible format characters",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found: what, and why it matters; `tone` is good, warn, bad or empty."""

    what: str
    why: str = ""
    tone: str = ""
    marks: tuple[int, ...] = ()
    """The numbers of the marks where it stands in the mail."""


def kept_out(mail: Message, marks: Sequence[Mark] = ()) -> list[Finding]:
    """What the agent does not get of a mail, and why."""
    by_kind: dict[str, tuple[int, ...]] = {}
    for mark in marks[:_MAX_MARKS]:
        by_kind[mark.kind] = (*by_kind.get(mark.kind, ()), mark.number)
    return [
        *_hidden(mail.security, marks),
        *_removed(mail.security, by_kind.get("invisible", ())),
        *_not_loaded(mail, by_kind),
        *_cut(mail, by_kind.get("quoted", ()) + by_kind.get("signature", ())),
    ]


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _hidden(security: dict[str, Any], marks: Sequence[Mark]) -> Iterator[Finding]:
    listed = security.get("hidden_text") or ()
    for found in listed:
        times = f", {found['count']} times" if found.get("count", 1) > 1 else ""
        what = (found["reason"], found["chars"])
        here = [mark for mark in marks if (mark.reason, mark.chars) == what]
        if found["reason"] in _BY_CHARACTERS:
            here = [mark for mark in marks if mark.kind == "invisible"][:_MAX_MARKS]
        end = "so the agent does not get it"
        if any(mark.is_given for mark in here):
            end = "and the agent gets the same words elsewhere in the mail"
        yield Finding(
            f"Hidden text: {_number(found['chars'], 'character')}{times}",
            f"A reader cannot see it: {how_hidden(found['reason'])}. It may be meant for a "
            f"machine, {end}.",
            "bad",
            tuple(mark.number for mark in here),
        )
    rest = security.get("hidden_text_total", 0) - len(listed)
    if rest > 0:
        yield Finding(f"{_number(rest, 'more hidden text')}", "Not listed one by one.", "bad")


def _removed(security: dict[str, Any], marks: tuple[int, ...]) -> Iterator[Finding]:
    for kind, count in (security.get("removed_characters") or {}).items():
        yield Finding(
            f"{_number(count, 'invisible character')} removed",
            f"They were {_REMOVED.get(kind, kind)}.",
            "warn",
            marks,
        )


def _not_loaded(mail: Message, marks: Mapping[str, tuple[int, ...]]) -> Iterator[Finding]:
    pixels = mail.security.get("tracking_pixels", 0)
    images = mail.security.get("remote_images", 0) - pixels
    if images > 0:
        yield Finding(
            f"{_number(images, 'remote picture')} not loaded",
            "Loading one would tell its sender when and where the mail is read.",
            "warn",
            marks.get("picture", ()),
        )
    if pixels:
        yield Finding(
            f"{_number(pixels, 'tracking pixel')} not loaded",
            "It is an invisible picture that reports that the mail was opened.",
            "warn",
            marks.get("pixel", ()),
        )


def _cut(mail: Message, marks: tuple[int, ...]) -> Iterator[Finding]:
    quoted = len(mail.text) - len(mail.new_text if mail.new_text is not None else mail.text)
    if quoted > 0:
        yield Finding(
            f"{_number(quoted, 'character')} of quoted mail and signature left out by read_mail",
            "The agent can ask for it (quoted=true); get_message has it in text.",
            marks=marks,
        )
