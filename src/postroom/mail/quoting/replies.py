"""Separating the new text of a reply from what it quotes."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.mail.quoting.attributions import (
    ends_with_verb,
    find_attribution,
    has_more_headers,
    header_word,
    is_forward,
    is_rule,
    is_separator,
)
from postroom.mail.quoting.signatures import find_signature

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
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    marks = _Marks(text.split("\n"))
    if True not in marks.quoted:
        new, old = marks.lines, []
    else:
        pairs = list(zip(marks.lines, marks.quoted, strict=True))
        new = [line for line, is_quoted in pairs if not is_quoted]
        old = [line for line, is_quoted in pairs if is_quoted]
        new = _without_gaps(new)
    _trim(new)
    signature = find_signature(new)
    return Reply(_joined(new[:signature]), _joined(old), _joined(new[signature:]))


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def _without_gaps(lines: list[str]) -> list[str]:
    """One empty line where quotations were taken out, not two."""
    spaced = zip(["", *lines], lines, strict=False)
    return [line for above, line in spaced if line.strip() or above.strip()]


def _trim(lines: list[str]) -> None:
    while lines and not lines[-1].strip():
        lines.pop()


class _Marks:
    """Lines and which of them are quoted."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._looks_left = _MAX_LOOKAHEAD
        self.quoted = [_is_quote(line) for line in lines]
        if True in self.quoted:
            self._adopt_wrapped_lines()
        cut = self._find_cut()
        if not self._has_text_above(cut):
            cut = len(self.lines)  # nothing above the old mail: it was passed on as it is
        if cut < len(self.lines):
            self.quoted[cut:] = [True] * (len(self.lines) - cut)
        if True in self.quoted[:cut]:
            self._mark_attributions(cut)

    def _has_text_above(self, cut: int) -> bool:
        above = zip(self.lines[:cut], self.quoted, strict=False)
        return any(line.strip() and not is_quoted for line, is_quoted in above)

    def _adopt_wrapped_lines(self) -> None:
        """A lone line between two quoted ones is the rest of a quoted line that was too long."""
        quoted, lines = self.quoted, self.lines
        if any(line.startswith(">>> ") for line in lines):
            self._release_decorations()
        for index in range(1, len(lines) - 1):
            if quoted[index] or not quoted[index - 1] or not quoted[index + 1]:
                continue
            line = lines[index]
            if line.strip() and (len(lines[index - 1]) >= 60 or _looks_cut(line)):
                quoted[index] = True

    def _release_decorations(self) -> None:
        """`>>> buy now <<<` is no quotation."""
        for index, line in enumerate(self.lines):
            if line.startswith(">>> ") and line.rstrip().endswith("<<<"):
                self.quoted[index] = False

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
        if has_more_headers(self.lines[index]):
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
