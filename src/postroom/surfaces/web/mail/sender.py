"""The sender of a mail and the findings about it, in words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from postroom.mail.senders import decode_punycode
from postroom.mail.text.marks import how_hidden
from postroom.model.mail.message import Mark, Message

_MAX_MARKS = 100
_BY_CHARACTERS = (
    *("tag characters", "variation selectors", "zero-width characters", "direction override"),
)

_REMOVED = {
    "tag": "tag characters, in which whole sentences can be hidden",
    "variation": "variation selectors, in which bytes can be hidden",
    "direction": "marks that reverse the reading direction",
    "zero_width": "characters without a width",
    "filler": "filler characters that look blank",
    "control": "control characters",
    "format": "invisible format characters",
}


@dataclass(frozen=True, slots=True)
class MailNote:
    """Something that was found: what, and why it matters; `tone` is good, warn, bad or empty."""

    what: str
    why: str = ""
    tone: str = ""
    marks: tuple[int, ...] = ()
    """The numbers of its marks in the mail."""


def withheld(mail: Message, marks: Sequence[Mark] = ()) -> list[MailNote]:
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


def _hidden(security: dict[str, Any], marks: Sequence[Mark]) -> Iterator[MailNote]:
    listed = security.get("hidden_text") or ()
    for found in listed:
        times = f", {found['count']} times" if found.get("count", 1) > 1 else ""
        what = (found["reason"], found["chars"])
        here = [mark for mark in marks if (mark.reason, mark.chars) == what]
        if found["reason"] in _BY_CHARACTERS:
            here = [mark for mark in marks if mark.kind == "invisible"][:_MAX_MARKS]
        end = "so the agent does not get it"
        if any(mark.is_in_agent_text for mark in here):
            end = "and the agent gets the same text elsewhere in the mail"
        yield MailNote(
            f"Hidden text: {_number(found['chars'], 'character')}{times}",
            f"A reader cannot see it: {how_hidden(found['reason'])}. It may be meant for a "
            f"machine, {end}.",
            "bad",
            tuple(mark.number for mark in here),
        )
    rest = security.get("hidden_text_total", 0) - len(listed)
    if rest > 0:
        yield MailNote(f"{_number(rest, 'more hidden text')}", "Not listed one by one.", "bad")


def _removed(security: dict[str, Any], marks: tuple[int, ...]) -> Iterator[MailNote]:
    for kind, count in (security.get("removed_characters") or {}).items():
        yield MailNote(
            f"{_number(count, 'invisible character')} removed",
            f"They were {_REMOVED.get(kind, kind)}.",
            "warn",
            marks,
        )


def _not_loaded(mail: Message, marks: Mapping[str, tuple[int, ...]]) -> Iterator[MailNote]:
    pixels = mail.security.get("tracking_pixels", 0)
    images = mail.security.get("remote_images", 0) - pixels
    if images > 0:
        yield MailNote(
            f"{_number(images, 'remote picture')} not loaded",
            "Loading one would tell its sender when and where the mail is read.",
            "warn",
            marks.get("picture", ()),
        )
    if pixels:
        yield MailNote(
            f"{_number(pixels, 'tracking pixel')} not loaded",
            "It is an invisible picture that reports that the mail was opened.",
            "warn",
            marks.get("pixel", ()),
        )


def _cut(mail: Message, marks: tuple[int, ...]) -> Iterator[MailNote]:
    quoted = len(mail.text) - len(mail.new_text if mail.new_text is not None else mail.text)
    if quoted > 0:
        yield MailNote(
            f"{_number(quoted, 'character')} of quoted mail and signature left out by read_mail",
            "The agent can ask for it (quoted=true); get_message has it in text.",
            marks=marks,
        )


_AUTH = {
    "spf": "Did the mail come from a server that the domain of the envelope sender allows?",
    "dkim": "Is it signed, and unchanged since?",
    "dmarc": "Does one of the two cover the domain in From?",
    "arc": "What did a server that forwarded it find?",
}
_TONES = {"pass": "good", "fail": "bad", "permerror": "bad", "softfail": "warn"}
_MAX_LETTERS = 80


def verdict_on_sender(mail: Message) -> MailNote:
    """One sentence: is the address in From authenticated?"""
    domain = decode_punycode(mail.from_address.rpartition("@")[2].lower())
    if mail.direction == "outbound":
        return MailNote("Sent by you", "It was sent from an inbox of this Postroom.", "good")
    if not domain:
        return MailNote("No sender", "The From header has no address.", "bad")
    auth = {name: mail.auth.get(name) or "unknown" for name in _AUTH}
    if auth["dmarc"] == "fail":
        return MailNote(
            f"This message is probably forged: it failed the checks of {domain}",
            "The domain asks receivers to check its mail (DMARC), and the check failed.",
            "bad",
        )
    if mail.auth.get("aligned") or auth["dmarc"] == "pass":
        how = "Signed by" if auth["dkim"] == "pass" else "Sent by a server of"
        why = f"It was really sent by {domain}. This does not mean that {domain} is trustworthy."
        return MailNote(f"{how} {domain}", why, "good")
    why = "Anyone can put any address into From"
    if set(auth.values()) == {"unknown"}:
        return MailNote("Sender not verified", f"{why}, and no check was made.", "warn")
    return MailNote("Sender not verified", f"{why}, and no check passed for {domain}.", "warn")


def sender_notes(mail: Message) -> list[MailNote]:
    """The details: what the checks found, and what is suspicious."""
    return [*_authentication(mail), *_disguises(mail.security)]


def _authentication(mail: Message) -> Iterator[MailNote]:
    results = {name: mail.auth.get(name) or "unknown" for name in _AUTH}
    if set(results.values()) == {"unknown"}:
        yield MailNote(
            "SPF, DKIM and DMARC: not checked",
            "Name the servers whose checks you trust: POSTROOM_TRUSTED_SERVERS.",
        )
        return
    for name, question in _AUTH.items():
        if results[name] != "unknown":
            words = f"{name.upper()}: {results[name]}"
            yield MailNote(words, question, _TONES.get(results[name], ""))
    if mail.auth.get("aligned"):
        yield MailNote("A check that passed covers the domain in From", tone="good")


def _disguises(security: dict[str, Any]) -> Iterator[MailNote]:
    for words in security.get("lookalike") or ():
        yield MailNote(
            words[:1].upper() + words[1:], "The sender may be impersonating someone.", "bad"
        )
    if imitated := security.get("imitates"):
        yield MailNote(
            f"The domain resembles {imitated}, which this inbox knows",
            "The sender is new. Compare the domains character by character.",
            "bad",
        )
    if security.get("first_time_sender"):
        yield MailNote(
            "First message from this address",
            "It has not written to this inbox before, and the inbox has not written to it.",
            "warn",
        )
    if security.get("text_differs"):
        yield MailNote(
            "The plain text and the HTML differ",
            "A person reads the HTML, a machine often reads the plain text.",
            "bad",
        )
    for name in security.get("disguised_attachments") or ():
        yield MailNote(f"The file {name} is not the type it claims to be", "Do not open it.", "bad")


@dataclass(frozen=True, slots=True)
class AlignedLetters:
    """A place where two domains are compared: the letters there, and whether they differ."""

    theirs: str
    known: str
    differs: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two domains, letter by letter; `notes` name letters that are not what they look like."""

    theirs: str
    known: str
    letters: tuple[AlignedLetters, ...]
    notes: tuple[str, ...]


def compare_domains(mail: Message) -> Comparison | None:
    """The domain of the sender beside the one that it imitates; None if it imitates none."""
    theirs = decode_punycode(mail.from_address.rpartition("@")[2].lower())[:_MAX_LETTERS]
    known = str(mail.security.get("imitates") or "")[:_MAX_LETTERS]
    if not known and theirs.isascii():
        return None
    letters = tuple(_letters(theirs, known)) if known else ()
    return Comparison(theirs, known, letters, tuple(_odd_letters(theirs)))


def _letters(theirs: str, known: str) -> Iterator[AlignedLetters]:
    matcher = SequenceMatcher(None, theirs, known, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        size = max(j - i, m - k)
        for at in range(size):
            one, other = theirs[i:j][at : at + 1], known[k:m][at : at + 1]
            yield AlignedLetters(one, other, tag != "equal")


def _odd_letters(domain: str) -> Iterator[str]:
    for letter in dict.fromkeys(domain):
        if not letter.isascii():
            yield f"“{letter}” is {unicodedata.name(letter, f'U+{ord(letter):04X}')}"
