"""What a mail adds to a conversation, apart from what it repeats."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.mail.attributions import attribution_start, header_word, is_forward, is_separator
from postroom.mail.signatures import find_signature

_MOST_ATTRIBUTION_LINES = 4


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
    lines = text.replace("\r\n", "\n").split("\n")
    marks = _Marks(lines)
    new = [line for line, is_quoted in zip(marks.lines, marks.quoted, strict=True) if not is_quoted]
    old = [line for line, is_quoted in zip(marks.lines, marks.quoted, strict=True) if is_quoted]
    _trim(new)
    signature = find_signature(new)
    return Reply(_joined(new[:signature]), _joined(old), _joined(new[signature:]))


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def _trim(lines: list[str]) -> None:
    while lines and not lines[-1].strip():
        lines.pop()


class _Marks:
    """Lines and which of them are quoted."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.quoted = [_is_quote(line) for line in lines]
        self._adopt_wrapped_lines()
        cut = self._find_cut()
        if cut < len(lines):
            self.quoted[cut:] = [True] * (len(self.lines) - cut)
        self._mark_attributions(cut)

    def _adopt_wrapped_lines(self) -> None:
        """A lone line between two quoted ones is the rest of a quoted line that was too long."""
        quoted, lines = self.quoted, self.lines
        for index in range(1, len(lines) - 1):
            if quoted[index] or not quoted[index - 1] or not quoted[index + 1]:
                continue
            line = lines[index]
            if line.strip() and (len(lines[index - 1]) >= 60 or _looks_cut(line)):
                quoted[index] = True

    def _find_cut(self) -> int:
        """The first line from which on all is quoted, len(lines) if there is none."""
        lines = self.lines
        for index, line in enumerate(lines):
            if self.quoted[index] or not line or line.isspace():
                continue
            if is_forward(line):
                return len(lines)
            if line.lstrip()[:1] in "-_*=" and is_separator(line):
                return index
            if self._is_header_block(index):
                return index
            if line.rstrip().endswith((":", "：", "-", "wrote", "écrit")):
                cut = self._attribution_cut(index)
                if cut >= 0:
                    return cut
        return len(lines)

    def _is_header_block(self, index: int) -> bool:
        """`From: … Sent: … To: …`, as some programs put above the mail they answer."""
        first = header_word(self.lines[index])
        if first not in ("from", "date"):
            return False
        kinds = {first}
        for line in self.lines[index + 1 : index + 8]:
            if kind := header_word(line):
                kinds.add(kind)
        return len(kinds) >= 3 or kinds == {"from", "date"} or kinds == {"date", "to"}

    def _attribution_cut(self, index: int) -> int:
        """Where all is quoted after an attribution without quote marks; -1 if it is none."""
        if self._quote_follows(index):
            return -1
        for first in range(index, max(-1, index - _MOST_ATTRIBUTION_LINES), -1):
            text = "\n".join(self.lines[first : index + 1])
            start = attribution_start(text, quote_follows=False)
            if start >= 0:
                return self._split_line(first, start)
        return -1

    def _quote_follows(self, index: int) -> bool:
        for following in range(index + 1, min(index + 4, len(self.lines))):
            if self.quoted[following]:
                return True
            if self.lines[following].strip():
                return False
        return False

    def _split_line(self, index: int, at: int) -> int:
        """Cut a line in two if the attribution begins inside it; returns where it begins."""
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
            if self.quoted[index] and (index == 0 or not self.quoted[index - 1]):
                index += self._mark_attribution_above(index)
            index += 1

    def _mark_attribution_above(self, quote: int) -> int:
        """Returns by how many lines the text grew."""
        last = quote - 1
        while last >= 0 and not self.lines[last].strip() and quote - last < 4:
            last -= 1
        if last < 0 or self.quoted[last] or not self.lines[last].strip():
            return 0
        for first in range(last, max(-1, last - _MOST_ATTRIBUTION_LINES), -1):
            if self.quoted[first]:
                return 0
            text = "\n".join(self.lines[first : last + 1])
            start = attribution_start(text, quote_follows=True)
            if start >= 0:
                begin = self._split_line(first, start)
                grown = begin - first
                self.quoted[begin : quote + grown] = [True] * (quote + grown - begin)
                return grown
        return 0


def _is_quote(line: str) -> bool:
    if line[:1] == ">":
        return not (line.startswith(">>> ") and line.rstrip().endswith("<<<"))
    return line[:1] == " " and line.lstrip()[:1] == ">" and len(line) - len(line.lstrip()) < 4


def _looks_cut(line: str) -> bool:
    start = line.lstrip()[:1]
    return start.islower() or start in "_(/&" or line.rstrip().endswith(">")
