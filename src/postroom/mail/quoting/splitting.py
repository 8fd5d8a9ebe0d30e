"""Tell new words from quoted ones, line by line."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from postroom.mail.data import load
from postroom.mail.quoting.attributions import (
    LONGEST,
    TRAILING,
    find_attribution,
    is_only_verb,
)
from postroom.mail.quoting.headings import (
    header_word,
    is_forward,
    is_header_block,
    is_rule,
    is_ruled,
    is_separator,
    is_short_rule,
    line_above,
    opens_notice,
    reply_marks,
)
from postroom.mail.quoting.signatures import find_signature
from postroom.mail.text.prefilter import (
    OTHER_MARK,
    lines_with_headings,
    lines_with_verbs,
    may_have_marks,
    may_have_reply_mark,
    words_of,
)

_MAX_ATTRIBUTION_LINES = 5
_MAX_BROKEN_LINES = 12
_DECORATED, _EMPHASIS = frozenset("-_*=~#<>|‐—–―─ ["), frozenset("*_#~[")
_SPARSE = re.compile(r"\d[-/.:年월]\s?\d")
_OTHER_MARK = re.compile(OTHER_MARK, re.MULTILINE)
_PROMPTS = frozenset(load("quotations")["prompts"])
_PROMPT = ">>> "
_MAX_LOOKAHEAD = 2_000
_SHORTEST_SEPARATOR = 6
_DIRECTION = " \t\xa0\u200e\u200f\u202c"
_SENTENCE_ENDS = (":", "：", "-", "*")
_VERB_TRAILING = " \t-*_:："
_LINE_ENDS = frozenset("".join((*_SENTENCE_ENDS, _DIRECTION, _VERB_TRAILING)))
_QUOTE_STARTS = (">", " >", "  >", "   >", "＞")
_MARKS_OF_BROKEN = ("<", ">", "@", "mailto:")
_MARKS_AROUND = "> \t"
_NO_LINE_AFTER = "nothing"


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
    lines, quoted, new, signature = _classify_lines(text)
    old = [line for line, is_quoted in zip(lines, quoted, strict=True) if is_quoted]
    kept = [lines[index] for index in new]
    return Reply(_join_lines(kept[:signature]), _join_lines(old), _join_lines(kept[signature:]))


def line_kinds(text: str) -> list[tuple[str, str]]:
    """The lines of a text, each new, quoted or signature; one that is partly quoted is two."""
    lines, quoted, new, signature = _classify_lines(text)
    kinds = ["quoted" if is_quoted else "new" for is_quoted in quoted]
    for index in new[signature:]:
        kinds[index] = "signature"
    return list(zip(kinds, lines, strict=True))


def _classify_lines(text: str) -> tuple[list[str], list[bool], list[int], int]:
    """Lines, which are quoted, the indexes of the new ones, and where their signature begins."""
    marks = _QuotedLines(text.replace("\r\n", "\n"))
    lines = marks.lines
    new = list(range(len(lines)))
    if True in marks.quoted:
        new = _without_gaps(lines, [index for index in new if not marks.quoted[index]])
    while new and not lines[new[-1]].strip():
        new.pop()
    return lines, marks.quoted, new, find_signature([lines[index] for index in new])


def _join_lines(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def _without_gaps(lines: list[str], new: list[int]) -> list[int]:
    """One empty line where quotations were taken out, not two."""
    above = ["", *(lines[index] for index in new)]
    return [at for over, at in zip(above, new, strict=False) if lines[at].strip() or over.strip()]


class _QuotedLines:
    """Lines and which of them are quoted."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self._looks_left = _MAX_LOOKAHEAD
        has_marks = may_have_marks(text)
        has_reply_mark = has_marks and may_have_reply_mark(text)
        self._reply_marks = reply_marks(text) if has_reply_mark else frozenset()
        self._verb_lines = lines_with_verbs(text)
        self.quoted = [False] * len(self.lines)
        if ">" in text or "＞" in text:
            starts = _QUOTE_STARTS  # mbox wrote the > of `>From `
            self.quoted = [
                line.startswith(starts) and not line.startswith(">From ") for line in self.lines
            ]
        if has_marks and _OTHER_MARK.search(text):
            self._find_other_marks()
        if True in self.quoted:
            self._unquote_prompts()
            self._unquote_broken_ends()
            if _PROMPT in text:
                self._unquote_enclosed()
            self._quote_wrapped_lines()
        self._headings = lines_with_headings(text)
        cut = self._find_cut()
        above = zip(self.lines[:cut], self.quoted, strict=False)
        if not any(line.strip() and not is_quoted for line, is_quoted in above):
            cut = len(self.lines)  # nothing above the old mail: it was forwarded unchanged
        if cut < len(self.lines):
            self.quoted[cut:] = [True] * (len(self.lines) - cut)
        if True in self.quoted[:cut]:
            self._mark_attributions(cut)

    def _find_other_marks(self) -> None:
        """Lines that begin with `| `, `: ` or initials, if several do or one is announced."""
        index = 0
        while index < len(self.lines):
            mark = _other_mark(self.lines[index])
            if not mark:
                index += 1
                continue
            end = index + 1
            while end < len(self.lines) and _other_mark(self.lines[end]) == mark:
                end += 1
            if self._is_other_quote(mark, index, end):
                self.quoted[index:end] = [True] * (end - index)
            index = end

    def _is_other_quote(self, mark: str, first: int, end: int) -> bool:
        above = self.lines[first - 1].strip() if first else ""
        over = (above or (self.lines[first - 2] if first > 1 else "")).strip(_MARKS_AROUND)
        is_announced = (
            over.endswith((":", "：")) and find_attribution(over, quote_follows=True) >= 0
        )
        if end - first < 2:
            return is_announced
        if mark not in ("|", ":"):
            return True
        # a table has more bars, a pipe of a shell continues the line above
        is_code = any(line.rstrip().endswith("\\") for line in self.lines[first:end])
        return not is_code and (not above or is_announced)

    def _unquote_prompts(self) -> None:
        """Lines behind `>>> ` are typed into a program if no mail is quoted around them."""
        first = self.quoted.index(True)
        lines = zip(self.lines[first:], self.quoted[first:], strict=True)
        if not all(line.startswith(_PROMPT) for line, is_quoted in lines if is_quoted):
            return
        above = next((line for line in reversed(self.lines[:first]) if line.strip()), "")
        if above and find_attribution(above, quote_follows=True) < 0:
            self.quoted = [False] * len(self.lines)

    def _unquote_broken_ends(self) -> None:
        """`> wrote:` is no quotation if its `<` is in the lines above."""
        for index in self._verb_lines:
            line = self.lines[index]
            if self.quoted[index] and line.rstrip().endswith((":", "：")) and len(line) <= 60:
                above = index - 1
                while above >= 0 and index - above < 4 and not self.lines[above].strip():
                    above -= 1
                if above < 0 or self.quoted[above] or not is_only_verb(line.strip("> \t")):
                    continue
                said = "".join(self.lines[max(above - 3, 0) : above + 1])
                if said.count("<") > said.count(">") or "mailto:" in said:
                    self.quoted[index] = False

    def _unquote_enclosed(self) -> None:
        """`>>> buy now <<<` is no quotation, nor is `>>> Ada 05.03.2024 15:12 >>>` above one."""
        for index, line in enumerate(self.lines):
            if line.startswith(_PROMPT) and line.rstrip().endswith(("<<<", ">>>")):
                self.quoted[index] = False

    def _quote_wrapped_lines(self) -> None:
        """A lone line between two quoted ones is the rest of a quoted line that was too long."""
        quoted, lines = self.quoted, self.lines
        around = enumerate(zip(quoted, quoted[1:], quoted[2:], strict=False), 1)
        for index in [at for at, (above, own, below) in around if above and below and not own]:
            line = lines[index]
            if line.strip() and (len(lines[index - 1]) >= 60 or _looks_cut(line)):
                quoted[index] = True

    def _find_cut(self) -> int:
        """The first line from which on all is quoted, len(lines) if there is none."""
        marks, ends = self._reply_marks, set(self._attribution_ends())
        headings = range(len(self.lines)) if marks else self._headings
        for index in sorted(ends.union(headings)) if headings else sorted(ends):
            line = self.lines[index]
            if not line or self.quoted[index]:
                continue
            cut = self._heading_cut(index, line) if headings else -1
            if cut < 0 and marks and line in marks:
                cut = self._above_rules(index)
            if cut < 0 and headings:
                cut = self._header_cut(index, line)
            if cut < 0 and index in ends:
                cut = self._cut_below(index, line)
            if cut >= 0:
                return cut
        return len(self.lines)

    def _attribution_ends(self) -> list[int]:
        """The lines that are not quoted and with which an attribution may end."""
        lines, verbs = self.lines, frozenset(self._verb_lines)
        rows = enumerate(zip(lines, self.quoted, (*lines[1:], _NO_LINE_AFTER), strict=True))
        return [
            index for index, (line, is_quoted, after) in rows
            if line and not is_quoted and (
                line[-1] in _LINE_ENDS or index in verbs
                or ((not after or after.isspace()) and _SPARSE.search(line))
            )
        ]  # fmt: skip

    def _heading_cut(self, index: int, line: str) -> int:
        """The cut if the line is a separator or opens a notice, else -1."""
        if line[0] not in _DECORATED and not line[0].isspace():
            return -1
        start = line.lstrip()[:2]
        if start[:1] in _DECORATED and (start[1:] in _DECORATED or start[:1] in _EMPHASIS):
            if is_forward(line):
                return len(self.lines)
            is_old = len(line) >= _SHORTEST_SEPARATOR and is_separator(line)
            if is_old or (is_short_rule(line) and opens_notice(self._next_text(index))):
                return index
        return -1

    def _next_text(self, index: int) -> str:
        """The next line that is not empty."""
        return next((line for line in self.lines[index + 1 : index + 5] if line.strip()), "")

    def _is_alone(self, last: int) -> bool:
        """Whether a paragraph ends here and more text follows."""
        if last + 1 >= len(self.lines) or self.lines[last + 1].strip():
            return False
        return bool(self._next_text(last))

    def _header_cut(self, index: int, line: str) -> int:
        """The cut if a header block begins here, else -1."""
        if header_word(line) in ("from", "date") and self._looks_left:
            self._looks_left -= 1
            if is_header_block(self.lines, index):
                return self._above_rules(index)
        return -1

    def _cut_below(self, index: int, line: str) -> int:
        """The cut if an attribution ends here, else -1."""
        ends = line.rstrip(_DIRECTION).endswith(_SENTENCE_ENDS)
        if ends or _ends_with_verb(line):
            if is_forward(line):
                return len(self.lines)
            return self._attribution_cut(index)
        is_sparse = len(line) <= 200 and self._is_alone(index) and _SPARSE.search(line)
        return self._attribution_cut(index) if is_sparse else -1

    def _above_rules(self, index: int) -> int:
        """Headers and a rule or heading right above the quoted mail belong to it."""
        while index and header_word(self.lines[index - 1]):
            index -= 1
        above = line_above(self.lines, index)
        is_old = above >= 0 and (is_rule(self.lines[above]) or is_ruled(self.lines[above]))
        return above if is_old else index

    def _attribution_cut(self, index: int) -> int:
        """Where all is quoted after an attribution without quote marks; -1 otherwise."""
        if self._quote_follows(index) or not self._looks_left:
            return -1
        self._looks_left -= 1
        if not self._may_have_verb(index - _MAX_BROKEN_LINES, index) and not self._may_lack_verb(
            index
        ):
            return -1
        first, text = self._lines_above(index)
        is_alone = self._is_alone(index) and (first == 0 or not self.lines[first - 1].strip())
        may_have_verb = self._may_have_verb(first, index)
        may_be_broken = may_have_verb or any(mark in text for mark in _MARKS_OF_BROKEN)
        if not is_alone and not may_be_broken:
            return -1  # neither an address nor a verb
        start = find_attribution(text, quote_follows=False, is_paragraph=is_alone)
        if may_be_broken and self._has_broken(first, index):
            broken = self._lines_above(index, is_broken=True)
            wider = find_attribution(broken[1], quote_follows=False)
            if wider >= 0:
                (first, text), start = broken, wider
        if start < 0:
            return -1
        cut = self._split(first, text, start)
        return self._above_rules(cut) if cut and header_word(self.lines[cut - 1]) else cut

    def _lines_above(self, last: int, *, is_broken: bool = False) -> tuple[int, str]:
        """The few lines that end with `last`, up to an empty or quoted one.

        A broken attribution may have empty lines between short ones; these are skipped.
        """
        first, chars = last, len(self.lines[last])
        most = _MAX_BROKEN_LINES if is_broken else _MAX_ATTRIBUTION_LINES
        while first > 0 and last - first < most - 1:
            above = self.lines[first - 1]
            chars += len(above) + 1
            if self.quoted[first - 1] or len(above) > 200 or (is_broken and chars > LONGEST):
                break
            if not above.strip() and not is_broken:
                break
            first -= 1
        while first < last and not self.lines[first].strip():
            first += 1
        return first, "\n".join(self.lines[first : last + 1])

    def _has_broken(self, first: int, last: int) -> bool:
        """Whether one of these lines cannot be the first of an attribution."""
        return any(self._is_broken(index) for index in range(first, last + 1))

    def _is_broken(self, first: int) -> bool:
        """Whether the line cannot be the first of an attribution."""
        line = self.lines[first].strip()
        if not line or line.startswith(("<", ">", "mailto:", "[mailto:")):
            return True
        if len(line) > 60:
            return False
        is_address = "@" in line and " " not in line
        return is_address or (self._may_have_verb(first, first) and is_only_verb(line))

    def _may_lack_verb(self, last: int) -> bool:
        """Whether an attribution without a verb may end here: one with a colon, or a paragraph."""
        ending = self.lines[last].rstrip(TRAILING)
        return not ending or ending.endswith((":", "：")) or self._is_alone(last)

    def _may_have_verb(self, first: int, last: int) -> bool:
        """False if these lines have no verb of writing; before any line was split."""
        at = bisect_left(self._verb_lines, first)
        return at < len(self._verb_lines) and self._verb_lines[at] <= last

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
        while (index := self._next_quotation(index, cut)) >= 0:
            index += self._mark_attribution_above(index) + 1

    def _next_quotation(self, first: int, cut: int) -> int:
        """The next quoted line above the cut whose previous line is not quoted, else -1."""
        try:
            above = self.quoted.index(False, max(first - 1, 0), cut)
            return self.quoted.index(True, above, cut)
        except ValueError:
            return -1

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


def _ends_with_verb(line: str) -> bool:
    last = line.rstrip(_VERB_TRAILING).rpartition(" ")[2]
    return last.lower() in words_of("verbs")


def _other_mark(line: str) -> str:
    """The mark of a quoted line that is no `>`, else nothing."""
    found = _OTHER_MARK.match(line)
    if found is None:
        return ""
    if found[1]:
        return "" if found[1] == "|" and "|" in line[found.end() :] else found[1]
    return "" if found[2].lower() in _PROMPTS else found[2]


def _looks_cut(line: str) -> bool:
    start = line.lstrip()[:1]
    return start.islower() or start in "_(/&" or line.rstrip().endswith(">")
