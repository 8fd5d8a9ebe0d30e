"""How a mail ends: closings, names, device lines and footers, taken off one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable

from postroom.mail.data import load, pattern
from postroom.mail.quoting.headings import is_rule
from postroom.mail.text.prefilter import prefilter

_WORDS = load("quotations")
_MAX_LINES = 40
_MAX_CLOSING_LINES = 12
_MAX_CONTACT_LINES = 24
_MAX_DEVICE_LINES = 8
_MAX_BLOCK_LINES = 8
_MAX_ROUNDS = 8
_SENT_FROM = pattern(_WORDS["sent_from"])
_may_be_sent_from = prefilter(_SENT_FROM.pattern)
_DEVICE, _DEVICE_VERB = pattern(_WORDS["device_sentence"]), pattern(_WORDS["device_verb"])
_may_name_device = prefilter(_DEVICE.pattern)
_CLOSING = pattern(_WORDS["closing"])
_CLOSING_AND_NAME = re.compile(
    _CLOSING.pattern.removesuffix("$").rpartition("\\s{0,9}[")[0], re.IGNORECASE
)
_may_close = prefilter(f"^{_CLOSING_AND_NAME.pattern}")
_THANKS = pattern(_WORDS["thanks"])
_SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,}[.!]$")
_CONTACT = re.compile(
    r"\+?\(?\d[\d ().-]{6,20}\d|\w@\w|https?://|www\.|\b(?:skype|twitter|linkedin|icq)\b",
    re.IGNORECASE,
)
_may_be_contact = prefilter(_CONTACT.pattern)
_LINK = re.compile(r"\W{0,3}(?:https?://|www\.|mailto:)\S{1,500}$", re.IGNORECASE)
_DELIMITERS = ("--", "—", "––")
_RULES = ("__", "-----", "=====")
_RULE_STARTS = (" ", *_RULES)
_FOOTER_RULE = re.compile(r"\s{0,3}(?:_{2,80}|-{5,80}|={5,80})\s{0,9}$")
_LIST_FOOTER = pattern(_WORDS["list_footer"])
_NAME_LINE = re.compile(r"\s{0,3}(?:/{1,2}|[-–—~]{1,2})\s{0,2}([^\W\d_][\w.'’ -]{0,40})\W{0,3}$")
_POSTSCRIPT = pattern(_WORDS["postscript"])
_DISCLAIMER = pattern(_WORDS["disclaimer"])
_may_disclaim = prefilter(_DISCLAIMER.pattern)
_MAX_DISCLAIMER_CHARS, _MAX_DISCLAIMER_LINES = 5_000, 60
_SEGMENTS = re.compile(r"\s[·•∙]\s|\|")
_SYMBOLS = re.compile(r"[\s.·•…*_~|=\u200b\u200c\u200d\u2060\ufeff\xad-]{1,20}$")


def find_signature(lines: list[str]) -> int:
    """The index of the first line of the signature; len(lines) if there is none.

    A delimiter or a footer of a list is where the signature begins; then a closing above it is
    text. Without one, lines are taken off the end as long as the last ones are a sign-off.
    """
    end = len(lines)
    for find in (_footer, _delimiter):
        found = find(lines[:end])
        if found < end and (find is _delimiter or _has_text(lines[:found])):
            end = found
    if end < len(lines):
        return end
    own = _postscript_end(lines)
    for _ in range(_MAX_ROUNDS):
        found = _sign_off(lines[:end])
        if found >= end or found < own or not _has_text(lines[:found]):
            break
        end = found
        while end and not lines[end - 1].strip():
            end -= 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    return end


def _has_text(lines: list[str]) -> bool:
    """Whoever writes only "Thanks" has written something."""
    return any(line.strip() for line in lines)


def _postscript_end(lines: list[str]) -> int:
    """The end of the paragraph of the last `PS: …`, which is text; 0 if there is none."""
    for index in range(len(lines) - 1, max(-1, len(lines) - _MAX_LINES), -1):
        if _POSTSCRIPT.match(lines[index]):
            rest = (at for at in range(index, len(lines)) if not lines[at].strip())
            return next(rest, len(lines))
    return 0


def _sign_off(lines: list[str]) -> int:
    """Where the last sign-off of some lines begins."""
    finders: tuple[Callable[[list[str]], int], ...] = (
        _symbols, _sent_from, _device_sentence, _disclaimer, _ruled, _closing, _name_line,
        _contacts,
    )  # fmt: skip
    for find in finders:
        if (found := find(lines)) < len(lines) and _has_text(lines[:found]):
            return found
    return len(lines)


def _delimiter(lines: list[str]) -> int:
    """The line that is just two dashes (RFC 3676 §4.3)."""
    first = max(0, len(lines) - _MAX_LINES)
    for index, line in enumerate(lines[first:], first):
        if line.startswith(_DELIMITERS) and line.rstrip() in _DELIMITERS:
            return index
    return len(lines)


def _footer(lines: list[str]) -> int:
    """What a mailing list appends under a rule."""
    first = max(0, len(lines) - _MAX_LINES)
    for index, line in enumerate(lines[first:], first):
        may_be_rule = line.startswith(_RULE_STARTS) and line.rstrip().endswith(_RULES)
        if may_be_rule and _FOOTER_RULE.match(line):
            below = " ".join(lines[index + 1 : index + 9])
            if _LIST_FOOTER.search(below[:600]):
                return index
    return len(lines)


def _symbols(lines: list[str]) -> int:
    """A last line without a letter: the dot that stands for a picture, a rule."""
    return len(lines) - 1 if lines and _SYMBOLS.match(lines[-1]) else len(lines)


def _sent_from(lines: list[str]) -> int:
    """`Sent from my phone`, with links, apologies and a name below it.

    As a paragraph of its own it ends the text whatever follows: some programs put the old mail
    there without a mark.
    """
    may_follow = True
    if not _may_be_sent_from("\n".join(line.strip()[:201] for line in lines[-_MAX_DEVICE_LINES:])):
        return len(lines)
    for index in range(len(lines) - 1, max(-1, len(lines) - _MAX_DEVICE_LINES), -1):
        above = lines[index - 1].strip() if index else ""
        below = lines[index + 1].strip() if index + 1 < len(lines) else ""
        if (may_follow or not (above or below)) and is_device_line(lines[index]):
            return index
        line = lines[index].strip()
        if line and not _LINK.match(line) and not _is_name(line, max_words=6):
            may_follow = False
    return len(lines)


def is_device_line(line: str) -> bool:
    """A line that says on what or by what the mail was written."""
    line = line.strip()
    if not line or len(line) > 200 or not _SENT_FROM.match(line):
        return False
    return len(line.split()) <= 7 or _DEVICE.search(line) is not None


def _device_sentence(lines: list[str]) -> int:
    """A last paragraph of one sentence that names a device or program."""
    start = len(lines)
    while start and lines[start - 1].strip() and len(lines) - start < 3:
        start -= 1
    said = " ".join(lines[start:])
    if not 0 < len(said) <= 200 or len(said.split()) > 20 or said.rstrip().endswith(("?", ":")):
        return len(lines)
    is_alone = start == 0 or not lines[start - 1].strip()
    is_one = is_alone and _may_name_device(said) and _DEVICE.search(said)
    return (
        start
        if is_one
        and _DEVICE_VERB.search(said)
        and not re.search(r"\b(?:i|ich|je|yo|io|ik|jag|jeg|ja|я)\b", said.lower())
        else len(lines)
    )


def _disclaimer(lines: list[str]) -> int:
    """A last paragraph for whoever the mail was not meant for, as companies append it."""
    start = chars = 0
    for start in range(len(lines) - 1, max(-1, len(lines) - _MAX_DISCLAIMER_LINES), -1):
        chars += len(lines[start])
        if not lines[start].strip() or chars > _MAX_DISCLAIMER_CHARS:
            start += 1
            break
    said = " ".join(line.strip() for line in lines[start:])
    is_one = len(said.encode()) >= 60 and _may_disclaim(said) and _DISCLAIMER.search(said)
    return start if is_one else len(lines)


def _ruled(lines: list[str]) -> int:
    """A rule of underscores with a few short lines below."""
    for index in range(len(lines) - 2, max(-1, len(lines) - _MAX_BLOCK_LINES - 2), -1):
        line = lines[index].strip()
        if len(line) >= 3 and not line.strip("_"):
            below = [text for text in lines[index + 1 :] if text.strip()]
            is_short = all(_is_name(text.strip(), max_words=7) for text in below)
            return index if below and is_short else len(lines)
    return len(lines)


def _closing(lines: list[str]) -> int:
    """`Regards,` on a separate line, with nothing below it but a name and details of the writer."""
    below: list[str] = []
    for index in range(len(lines) - 1, max(-1, len(lines) - _MAX_CLOSING_LINES), -1):
        line = lines[index].strip()
        may_close = bool(line) and len(line) <= 60 and _may_close(line)
        if may_close and _CLOSING.match(line):
            max_words = 3 if line.endswith((".", "!")) else 7  # "Thanks!" may go on
            is_signed = all(_is_name(words, max_words=max_words) for words in below)
            # a closing alone is one if it does not thank: thanks belong to the text
            is_closing = is_signed and (below or (len(line) > 4 and not _THANKS.search(line)))
            return index if is_closing else len(lines)
        if may_close and not below and _is_closing_with_name(line):
            return index
        if line:
            below.append(line)
            if not _is_name(line, max_words=7):
                break  # no signature can begin above it
    return len(lines)


def _is_closing_with_name(line: str) -> bool:
    """`Regards, Ada` and `Mvh Ada Holm` on one line."""
    found = _CLOSING_AND_NAME.match(line) if len(line) <= 60 else None
    if found is None or found.end() < 2:
        return False
    rest = line[found.end() :]
    name = rest.strip(" ,.-–—/")
    is_apart = rest[:1] in (" ", ",", ".", "-", "/")
    words = name.split()
    is_name = all(word[0].isupper() or not word.isascii() for word in words)
    return is_apart and 1 <= len(words) <= 3 and is_name and not line.endswith(("?", ":", "!"))


def _name_line(lines: list[str]) -> int:
    """`/Ada`, `// Ada` and `- Ada` as the last line."""
    last = lines[-1] if lines else ""
    found = _NAME_LINE.match(last) if len(last) <= 60 else None
    if found is None:
        return len(lines)
    words = found[1].split()
    is_name = len(words) <= 3 and all(w[0].isupper() or not w[0].isascii() for w in words)
    mark = last.lstrip()[:1]
    above = next((line for line in reversed(lines[:-1]) if line.strip()), "")
    is_list = above.lstrip()[:1] == mark or above.rstrip().endswith((":", "："))
    is_apart = mark == "/" or len(lines) < 2 or not lines[-2].strip()
    return len(lines) - 1 if is_name and is_apart and not is_list else len(lines)


def _is_name(line: str, *, max_words: int) -> bool:
    """A name, a position, a company, or several: a few words each that are no question."""
    if len(line) > 70 or line.endswith(("?", ":")):
        return (
            len(line) <= 140
            and "|" in line
            and all(_is_name(one, max_words=max_words) for one in line.split("|") if len(one) <= 70)
        )
    return all(len(one.split()) <= max_words for one in _SEGMENTS.split(line))


def _contacts(lines: list[str]) -> int:
    """A last block of short lines with a phone number, an address or a link in several."""
    block: list[str] = []
    for line in reversed(lines[-_MAX_CONTACT_LINES:]):
        stripped = line.strip()
        if "<" in stripped or not _is_name(stripped, max_words=7) or _is_sentence(stripped):
            break
        block.append(stripped)
    if len(block) < 2 or not _may_be_contact("\n".join(block)):
        return len(lines)
    contacts = sum(_CONTACT.search(line) is not None for line in block)
    return _block_start(lines, len(lines) - len(block)) if contacts >= 2 else len(lines)


def _is_sentence(line: str) -> bool:
    return line.endswith((".", "!")) and _SENTENCE.search(line) is not None


def _block_start(lines: list[str], first: int) -> int:
    """The first line after an empty one or on a rule, unless a colon announces the block."""
    for index in range(first, len(lines) - 1):
        above = lines[index - 1].strip() if index else ""
        if is_rule(lines[index]) or (not above and index and lines[index].strip()):
            before = next((line for line in reversed(lines[:index]) if line.strip()), "")
            return len(lines) if before.rstrip().endswith((":", "：")) or not before else index
    return len(lines)
