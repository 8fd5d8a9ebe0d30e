"""Separating the new text of a reply from what it quotes, and from the signature.

Every pattern is applied to a bounded piece of text and has no nested repetition, so that no input
can make it slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from postroom.mail.data import load, pattern

_WORDS = load("quotations")
VERBS, WEAK_VERBS = frozenset(_WORDS["verbs"]), frozenset(_WORDS["weak_verbs"])
VERBS_INSIDE: tuple[str, ...] = tuple(_WORDS["verbs_inside"])
HEADERS = {name: header for header, names in _WORDS["headers"].items() for name in names}

_LONGEST = 500
_WORD_BREAK = re.compile(r"[\s:：,.<>\"'”’*_-]+")
_DATE = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2}[:.h]\d\d\b|\d{4}\s?[年년]|\b(?:19|20)\d\d\b"
    r"|\d{1,2}-[A-Za-z]{3}\.?-\d{2,4}"
)
_TIME = re.compile(r"\d{1,2}[:.h]\d\d")
_ADDRESS = re.compile(r"[^\s@<>()]@[^\s@<>()]{2}|mailto:")
_OPENER = pattern(_WORDS["opener"], re.MULTILINE)
_DATED_LINE = re.compile(
    r"^\W{0,3}(?:\d{1,4}[./年-]\s?\d{1,2}|\d{1,2}[:.]\d\d|\d{1,2}\.? \w{3,12}\.? \d{4})",
    re.MULTILINE,
)
_ENDS_WITH_ADDRESS = re.compile(r"(?:[>)\]\"]|@[\w.-]{3,80})\s?[:：]$")
_ORIGINALS, _FORWARDS = "|".join(_WORDS["originals"]), "|".join(_WORDS["forwards"])
_RULED = re.compile(rf"[-_*=]{{2,80}}\s{{0,9}}(?:{_ORIGINALS})", re.IGNORECASE)
_FORWARD = re.compile(rf"(?:[-_*=>]{{2,80}}\s{{0,9}})?(?:{_FORWARDS})", re.IGNORECASE)
_WROTE = re.compile(r"-{2,60}\s{0,9}\S.{0,200}(?:wrote|schrieb|a écrit)\s?-{2,60}", re.IGNORECASE)
_RULE = re.compile(r"[-_=*]{4,200}$")
_NEXT_HEADER = re.compile(
    r"\s(?:Date|Sent|To|Subject|Datum|Gesendet|An|Betreff|Envoyé|Objet|Fecha|Asunto|Data|Oggetto)"
    r"\s?:"
)


def header_word(line: str) -> str:
    """`from`, `date`, `to` or `subject` if the line looks like that header of a quoted mail."""
    colon = line.find(":", 0, 40)
    if colon < 0:
        colon = line.find("：", 0, 40)
    return HEADERS.get(line[:colon].strip(" \t*_>|\u200e\xa0").lower(), "") if colon > 0 else ""


def is_rule(line: str) -> bool:
    """A line that is only a rule."""
    return bool(_RULE.match(line.strip()[:_LONGEST]))


def is_separator(line: str) -> bool:
    """`-----Original Message-----` and its kin: from here on everything is old."""
    line = line[:_LONGEST].lstrip()
    return bool(_RULED.match(line) or _WROTE.match(line))


def is_forward(line: str) -> bool:
    """The line above a mail that somebody passes on."""
    return bool(_FORWARD.match(line[:_LONGEST].lstrip()))


def find_attribution(text: str, *, quote_follows: bool) -> int:
    """Where in these few lines an attribution begins that runs to their end, -1 if none does.

    With a quotation right below less proof is needed.
    """
    if len(text) > _LONGEST:
        return -1
    stripped = text.rstrip(" \t\n-*_")
    has_colon = stripped.endswith((":", "："))
    has_verb = _has_verb(stripped)
    address = _ADDRESS.search(stripped)
    if not (has_verb or address) or not (has_colon or has_verb or quote_follows):
        return -1
    dated = _DATE.search(stripped)
    if not (address or quote_follows) and _is_weak(stripped):
        return -1
    if dated and (start := _dated_start(stripped, has_verb=has_verb)) >= 0:
        return start
    if dated and address and quote_follows and (line := _DATED_LINE.search(stripped)):
        return line.start()
    is_plain = quote_follows and (has_colon or _has_verb(stripped[-20:]))
    return _last_sentence(stripped) if is_plain else -1


def _has_verb(text: str) -> bool:
    words = _WORD_BREAK.split(text.lower())
    return not VERBS.isdisjoint(words) or any(verb in text for verb in VERBS_INSIDE)


def _is_weak(text: str) -> bool:
    """True if it may be any sentence with a date: no time of day, and a verb of every day."""
    verbs = VERBS.intersection(_WORD_BREAK.split(text.lower()))
    return verbs <= WEAK_VERBS and not _TIME.search(text)


def _dated_start(text: str, *, has_verb: bool) -> int:
    """The start of an attribution with a date; it ends with a verb or with an address."""
    ends_with_address = _ENDS_WITH_ADDRESS.search(text[-100:])
    if not has_verb and not ends_with_address:
        return -1
    for match in _OPENER.finditer(text):
        rest = text[match.start() :]
        if _DATE.search(rest) and (_has_verb(rest) or ends_with_address):
            return match.start()
    dated = _DATED_LINE.search(text)
    if dated:
        return dated.start()
    # whatever the language: a line with a date near its start, a verb and an address
    date = _DATE.search(text)
    start = text.rfind("\n", 0, date.start()) + 1 if date else 0
    is_near = date is not None and date.start() - start <= 60
    return start if is_near and has_verb and _ADDRESS.search(text, start) else -1


def ends_with_verb(line: str) -> bool:
    """True if the last word is one for writing."""
    return line.rstrip().rpartition(" ")[2].lower() in VERBS


def _last_sentence(text: str) -> int:
    """The last line, or the last two if the last one is only `wrote:` or `<address> wrote:`."""
    start = text.rfind("\n") + 1
    last = text[start:]
    is_rest = last.lstrip()[:1] == "<" or len(_WORD_BREAK.split(last.strip())) < 3
    return text.rfind("\n", 0, max(start - 1, 0)) + 1 if is_rest and start else start


_MAX_LINES = 40
_MAX_CLOSING_LINES = 12
_SENT_FROM = pattern(_WORDS["sent_from"])
_CLOSING = pattern(_WORDS["closing"])
_MAX_CONTACT_LINES = 24
_SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,}[.!]$")
_CONTACT = re.compile(
    r"\+?\(?\d[\d ().-]{6,20}\d|\w@\w|https?://|www\.|\b(?:skype|twitter|linkedin|icq)\b",
    re.IGNORECASE,
)
_FOOTER_RULE = re.compile(r"\s{0,3}(?:_{2,80}|-{5,80}|={5,80})\s{0,9}$")
_LIST_FOOTER = pattern(_WORDS["list_footer"])


def find_signature(lines: list[str]) -> int:
    """The index of the first line of the signature; len(lines) if there is none."""
    end = len(lines)
    for find in (_delimiter, _footer, _sent_from, _closing, _contacts):
        found = find(lines[:end])
        # whoever writes only "Thanks" has written something
        if found < end and (find is _delimiter or any(line.strip() for line in lines[:found])):
            end = found
    return end


def _delimiter(lines: list[str]) -> int:
    """The line that is just two dashes (RFC 3676 §4.3)."""
    first = max(0, len(lines) - _MAX_LINES)
    for index in range(first, len(lines)):
        if lines[index].rstrip() in ("--", "—", "––") and lines[index][:1] in "-—–":
            return index
    return len(lines)


def _footer(lines: list[str]) -> int:
    """What a mailing list appends under a rule."""
    first = max(0, len(lines) - _MAX_LINES)
    for index in range(first, len(lines)):
        if lines[index][:1] in "_-= " and _FOOTER_RULE.match(lines[index]):
            below = " ".join(lines[index + 1 : index + 9])
            if _LIST_FOOTER.search(below[:600]):
                return index
    return len(lines)


def _sent_from(lines: list[str]) -> int:
    """`Sent from my phone` as the last words."""
    for index in range(len(lines) - 1, max(-1, len(lines) - 8), -1):
        if _SENT_FROM.match(lines[index][:200]) and len(lines[index]) < 200:
            return index
    return len(lines)


def _closing(lines: list[str]) -> int:
    """`Regards,` on a line of its own, with nothing below it but a name and its trimmings."""
    below: list[str] = []
    for index in range(len(lines) - 1, max(-1, len(lines) - _MAX_CLOSING_LINES), -1):
        line = lines[index].strip()
        if line and len(line) <= 60 and _CLOSING.match(line):
            most = 3 if line.endswith((".", "!")) else 7  # "Thanks!" may go on
            is_signed = below and all(_is_name(words, most=most) for words in below)
            return index if is_signed else len(lines)
        if line:
            below.append(line)
    return len(lines)


def _is_name(line: str, *, most: int) -> bool:
    """A name, a position, a company: a few words that are no question."""
    return len(line) <= 70 and len(line.split()) <= most and not line.endswith(("?", ":"))


def _contacts(lines: list[str]) -> int:
    """A last block of short lines with a phone number, an address or a link in several."""
    contacts = 0
    index = len(lines)
    for line in reversed(lines[-_MAX_CONTACT_LINES:]):
        stripped = line.strip()
        if "<" in stripped or not _is_name(stripped, most=7) or _SENTENCE.search(stripped):
            break
        index -= 1
        contacts += bool(_CONTACT.search(stripped))
    return _block_start(lines, index) if contacts >= 2 else len(lines)


def _block_start(lines: list[str], first: int) -> int:
    """The first line after an empty one or on a rule, unless a colon announces the block."""
    for index in range(first, len(lines) - 1):
        above = lines[index - 1].strip() if index else ""
        if is_rule(lines[index]) or (not above and index and lines[index].strip()):
            before = next((line for line in reversed(lines[:index]) if line.strip()), "")
            return len(lines) if before.rstrip().endswith((":", "：")) or not before else index
    return len(lines)


_MAX_ATTRIBUTION_LINES = 5
_RULE_STARTS = frozenset(("--", "__", "**", "==", "-=", "- "))
_MAX_LOOKAHEAD = 2_000
_SHORTEST_SEPARATOR = 6
_SENTENCE_ENDS = (":", "：", "-", "*")


@dataclass(frozen=True, slots=True)
class Reply:
    """A text in three: what is new, what is quoted, and how the writer signs."""

    new_text: str
    quoted_text: str
    signature: str


def split_reply(text: str) -> Reply:
    """Tell new words from quoted ones, line by line, in time linear in the text.

    Answers between quoted lines are new. A forwarded mail is what its sender wants to say,
    so it stays.
    """
    lines, quoted, new, signature = _told_apart(text)
    old = [line for line, is_quoted in zip(lines, quoted, strict=True) if is_quoted]
    kept = [lines[index] for index in new]
    return Reply(_joined(kept[:signature]), _joined(old), _joined(kept[signature:]))


def line_kinds(text: str) -> list[tuple[str, str]]:
    """The lines of a text, each new, quoted or signature; one that is partly quoted is two."""
    lines, quoted, new, signature = _told_apart(text)
    kinds = ["quoted" if is_quoted else "new" for is_quoted in quoted]
    for index in new[signature:]:
        kinds[index] = "signature"
    return list(zip(kinds, lines, strict=True))


def _told_apart(text: str) -> tuple[list[str], list[bool], list[int], int]:
    """Lines, which are quoted, the indexes of the new ones, and where their signature begins."""
    marks = _Marks(text.replace("\r\n", "\n").split("\n"))
    lines = marks.lines
    new = list(range(len(lines)))
    if True in marks.quoted:
        new = _without_gaps(lines, [index for index in new if not marks.quoted[index]])
    while new and not lines[new[-1]].strip():
        new.pop()
    return lines, marks.quoted, new, find_signature([lines[index] for index in new])


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def _without_gaps(lines: list[str], new: list[int]) -> list[int]:
    """One empty line where quotations were taken out, not two."""
    above = ["", *(lines[index] for index in new)]
    return [at for over, at in zip(above, new, strict=False) if lines[at].strip() or over.strip()]


class _Marks:
    """Lines and which of them are quoted."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._looks_left = _MAX_LOOKAHEAD
        self.quoted = [_is_quote(line) for line in lines]
        if True in self.quoted:
            self._adopt_wrapped_lines()
        cut = self._find_cut()
        above = zip(self.lines[:cut], self.quoted, strict=False)
        if not any(line.strip() and not is_quoted for line, is_quoted in above):
            cut = len(self.lines)  # nothing above the old mail: it was passed on as it is
        if cut < len(self.lines):
            self.quoted[cut:] = [True] * (len(self.lines) - cut)
        if True in self.quoted[:cut]:
            self._mark_attributions(cut)

    def _adopt_wrapped_lines(self) -> None:
        """A lone line between two quoted ones is the rest of a quoted line that was too long."""
        quoted, lines = self.quoted, self.lines
        for index, line in enumerate(lines):  # `>>> buy now <<<` is no quotation
            if line.startswith(">>> ") and line.rstrip().endswith("<<<"):
                quoted[index] = False
        for index in range(1, len(lines) - 1):
            if quoted[index] or not quoted[index - 1] or not quoted[index + 1]:
                continue
            line = lines[index]
            if line.strip() and (len(lines[index - 1]) >= 60 or _looks_cut(line)):
                quoted[index] = True

    def _find_cut(self) -> int:
        """The first line from which on all is quoted, len(lines) if there is none."""
        lines, quoted = self.lines, self.quoted
        for index, line in enumerate(lines):
            if not line or quoted[index]:
                continue
            if line.lstrip()[:2] in _RULE_STARTS:
                if len(line) < _SHORTEST_SEPARATOR:
                    continue
                if is_forward(line):
                    return len(lines)
                if is_separator(line):
                    return index
            elif ":" in line or "：" in line:
                cut = self._cut_at(index, line)
                if cut >= 0:
                    return cut
                continue
            if line.rstrip()[-1:] in ("-", "*"):
                cut = self._attribution_cut(index)
                if cut >= 0:
                    return cut
        return len(lines)

    def _cut_at(self, index: int, line: str) -> int:
        """The cut if a header block or an attribution begins here, else -1."""
        if header_word(line) in ("from", "date") and self._looks_left:
            self._looks_left -= 1
            if self._is_header_block(index):
                return self._above_rules(index)
        if line.rstrip().endswith(_SENTENCE_ENDS) or ends_with_verb(line):
            if is_forward(line):
                return len(self.lines)
            return self._attribution_cut(index)
        return -1

    def _is_header_block(self, index: int) -> bool:
        """`From: … Sent: … To: …`, as some programs put above the mail they answer."""
        if index and self.lines[index - 1].startswith((">From ", "From ")):
            return False  # the header of a patch, under its mbox line
        kinds = {header_word(self.lines[index])}
        if _NEXT_HEADER.search(self.lines[index][:_LONGEST]):  # further headers on the same line
            return "@" in self.lines[index]
        for line in self.lines[index + 1 : index + 8]:
            if kind := header_word(line):
                kinds.add(kind)
        return len(kinds) >= 3 or kinds == {"from", "date"} or kinds == {"date", "to"}

    def _above_rules(self, index: int) -> int:
        """A rule right above the quoted mail belongs to it."""
        above = index - 1
        while above >= 0 and index - above < 4 and not self.lines[above].strip():
            above -= 1
        return above if above >= 0 and is_rule(self.lines[above]) else index

    def _attribution_cut(self, index: int) -> int:
        """Where all is quoted after an attribution without quote marks; -1 if it is none."""
        if self._quote_follows(index):
            return -1
        first, text = self._lines_above(index)
        start = find_attribution(text, quote_follows=False)
        return self._split(first, text, start) if start >= 0 else -1

    def _lines_above(self, last: int) -> tuple[int, str]:
        """The few lines that end with `last`, up to an empty or quoted one."""
        first = last
        while first > 0 and last - first < _MAX_ATTRIBUTION_LINES - 1:
            above = self.lines[first - 1]
            if self.quoted[first - 1] or not above.strip() or len(above) > 200:
                break
            first -= 1
        return first, "\n".join(self.lines[first : last + 1])

    def _quote_follows(self, index: int) -> bool:
        for following in range(index + 1, min(index + 4, len(self.lines))):
            if self.quoted[following]:
                return True
            if self.lines[following].strip():
                return False
        return False

    def _split(self, first: int, text: str, start: int) -> int:
        """Begin a new line at a place in the text of some lines; returns the line's index."""
        index = first + text.count("\n", 0, start)
        at = start - (text.rfind("\n", 0, start) + 1)
        before = self.lines[index][:at].rstrip(" \t-")
        if not before:
            return index
        self.lines[index : index + 1] = [before, self.lines[index][at:]]
        self.quoted[index : index + 1] = [False, self.quoted[index]]
        return index + 1

    def _mark_attributions(self, cut: int) -> None:
        """Attribution lines above quoted lines belong to the quotation."""
        index = 0
        while index < min(cut, len(self.lines)):
            if self.quoted[index] and index and not self.quoted[index - 1]:
                index += self._mark_attribution_above(index)
            index += 1

    def _mark_attribution_above(self, quote: int) -> int:
        """Returns by how many lines the text grew."""
        last = quote - 1
        while last >= 0 and not self.lines[last].strip() and quote - last < 4:
            last -= 1
        if last < 0 or self.quoted[last] or not self.lines[last].strip():
            return 0
        first, text = self._lines_above(last)
        start = find_attribution(text, quote_follows=True)
        if start < 0:
            return 0
        count = len(self.lines)
        begin = self._split(first, text, start)
        grown = len(self.lines) - count
        self.quoted[begin : quote + grown] = [True] * (quote + grown - begin)
        return grown


def _is_quote(line: str) -> bool:
    first = line[:1]
    if first != " ":
        return first == ">" and not line.startswith(">From ")  # mbox wrote that >
    stripped = line.lstrip(" ")
    return stripped[:1] == ">" and len(line) - len(stripped) < 4


def _looks_cut(line: str) -> bool:
    start = line.lstrip()[:1]
    return start.islower() or start in "_(/&" or line.rstrip().endswith(">")
