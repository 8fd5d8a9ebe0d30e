"""What was found in a mail, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from postroom.model.message import Message

_HIDDEN = {
    "display": "it is switched off by its style",
    "visibility": "it is made invisible by its style",
    "zero size": "it is in a box without a size",
    "clipped": "it is cut away by its style",
    "off screen": "it is placed outside of the page",
    "tag characters": "it is written in characters that no program displays",
    "variation selectors": "it is written in characters that only change the one before them",
    "zero-width characters": "it is written in characters without a width",
    "direction override": "characters turn its reading direction around",
}
_REMOVED = {
    "tag": "tag characters, in which whole sentences can be hidden",
    "variation": "variation selectors, in which bytes can be hidden",
    "direction": "marks that turn the reading direction around",
    "zero_width": "characters without a width",
    "filler": "fillers that look like nothing",
    "control": "control characters",
    "format": "invisible format characters",
}
_AUTH = {
    "spf": "Did the mail come from a server that the domain of the envelope sender allows?",
    "dkim": "Is it signed, and unchanged since?",
    "dmarc": "Does one of the two cover the domain in From?",
    "arc": "What did a server that passed it on find?",
}
_TONES = {"pass": "good", "fail": "bad", "permerror": "bad", "softfail": "warn"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found: what, and why it matters; `tone` is good, warn, bad or empty."""

    what: str
    why: str = ""
    tone: str = ""


def kept_out(mail: Message) -> list[Finding]:
    """What the agent does not get of a mail, and why."""
    return [*_hidden(mail.security), *_removed(mail.security), *_not_loaded(mail), *_cut(mail)]


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _hidden(security: dict[str, Any]) -> Iterator[Finding]:
    listed = security.get("hidden_text") or ()
    for found in listed:
        times = f", {found['count']} times" if found.get("count", 1) > 1 else ""
        reason = _HIDDEN.get(found["reason"], f"because of its {found['reason']}")
        yield Finding(
            f"Hidden text: {_number(found['chars'], 'character')}{times}",
            f"A reader cannot see it: {reason}. It may be meant for a machine, so the agent does "
            "not get it.",
            "bad",
        )
    rest = security.get("hidden_text_total", 0) - len(listed)
    if rest > 0:
        yield Finding(f"{_number(rest, 'more hidden text')}", "Not listed one by one.", "bad")


def _removed(security: dict[str, Any]) -> Iterator[Finding]:
    for kind, count in (security.get("removed_characters") or {}).items():
        yield Finding(
            f"{_number(count, 'invisible character')} removed",
            f"They were {_REMOVED.get(kind, kind)}.",
            "warn",
        )


def _not_loaded(mail: Message) -> Iterator[Finding]:
    pixels = mail.security.get("tracking_pixels", 0)
    images = mail.security.get("remote_images", 0) - pixels
    if images > 0:
        yield Finding(
            f"{_number(images, 'remote picture')} not loaded",
            "Loading one would tell its sender when and where the mail is read.",
            "warn",
        )
    if pixels:
        yield Finding(
            f"{_number(pixels, 'tracking pixel')} not loaded",
            "It is an invisible picture that reports that the mail was opened.",
            "warn",
        )


def _cut(mail: Message) -> Iterator[Finding]:
    quoted = len(mail.text) - len(mail.new_text if mail.new_text is not None else mail.text)
    if quoted > 0:
        yield Finding(
            f"{_number(quoted, 'character')} of quoted mail left out by read_mail",
            "The agent can ask for it (quoted=true); get_message has it in text.",
        )


def sender_findings(mail: Message) -> list[Finding]:
    """Who really sent a mail, as far as it is known."""
    return [*_authentication(mail), *_disguises(mail.security)]


def _authentication(mail: Message) -> Iterator[Finding]:
    results = {name: mail.auth.get(name) or "unknown" for name in _AUTH}
    if set(results.values()) == {"unknown"}:
        yield Finding(
            "SPF, DKIM and DMARC: not checked",
            "Anybody can write any address into From. Name the servers whose checks you trust: "
            "POSTROOM_TRUSTED_SERVERS.",
        )
        return
    for name, question in _AUTH.items():
        if results[name] != "unknown":
            words = f"{name.upper()}: {results[name]}"
            yield Finding(words, question, _TONES.get(results[name], ""))
    if mail.auth.get("aligned"):
        yield Finding("A check that passed covers the domain in From", tone="good")


def _disguises(security: dict[str, Any]) -> Iterator[Finding]:
    for words in security.get("lookalike") or ():
        yield Finding(words[:1].upper() + words[1:], "The sender may be a disguise.", "bad")
    if imitated := security.get("imitates"):
        yield Finding(
            f"The domain resembles {imitated}, which this inbox knows",
            "The sender is new. Compare the addresses letter by letter.",
            "bad",
        )
    if security.get("first_time_sender"):
        yield Finding(
            "First mail from this address",
            "It has not written to this inbox before, and the inbox has not written to it.",
            "warn",
        )
    if security.get("text_differs"):
        yield Finding(
            "The plain text and the HTML say different things",
            "A person reads the HTML, a machine often reads the plain text.",
            "bad",
        )
    for name in security.get("disguised_attachments") or ():
        yield Finding(f"The file {name} is not what it says", "Do not open it.", "bad")
