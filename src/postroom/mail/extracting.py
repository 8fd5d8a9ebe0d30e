"""What a mail was waited for: a one-time code, or the link to follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from postroom.mail.message import Link

_MOST_CHARS = 50_000
_WORDS = re.compile(
    r"\b(?:code|codes|otp|one[- ]time|pass ?code|pin|verification|verify|security code|token"
    r"|2fa|mfa|authenti\w{0,9}|confirmation|einmal\w{0,9}|bestätigung\w{0,9}|sicherheits\w{0,9}"
    r"|código|codigo|clave|verificación|codice|verifica|vérification|kod|kode|koodi|codul"
    r"|parola|wachtwoord|verificatie)\b|код|пароль|验证码|校验码|動態碼|驗證碼|認証|確認コード|コード|인증",
    re.IGNORECASE,
)
_LETTER = r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""What a word goes on with. Chinese, Japanese and Korean put no space between words and numbers."""

_CODE = re.compile(
    rf"(?:(?<!{_LETTER})(?<![.,/$€£#%&=@+:-])|(?<=[^\W\d_][:=]))"
    r"(?:[A-Z]-)?(\d{3}[ \u00a0-]\d{3}|(?<!\d )\d(?: \d){3,7}(?! ?\d)|\d{4,10}"
    r"|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{5,10}|[A-Za-z\d]{3,5}-[A-Za-z\d]{3,5})"
    rf"(?!{_LETTER}|[/%@]|[.,:-]\d|-\w)"
)
_SAID = re.compile(
    rf"(?:{_WORDS.pattern})[*_\"']{{0,3}}"
    r"(?:\s+(?:is|lautet|ist|est|es|è|é)\b\s*[:=：]?|\s*(?:[:=：]|是|は|为|為))[\s\"'*(“„«]*$",
    re.IGNORECASE,
)
"""The end of `your code is`, after which nothing but the code can come."""

_SPACED = re.compile(r"\d(?: \d)+")
_TO_USE = re.compile(r"\b(?:use|enter|type)\s+$", re.IGNORECASE)
_FOR = re.compile(r"\s+to\s+(?:log|sign|verify|confirm)", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d")
_PHONE = re.compile(r"(?:\+|\btel|\bphone|\bcall)[^\n]{0,20}$", re.IGNORECASE)
_OTHER_NUMBER = re.compile(
    r"\b(?:order|invoice|ticket|case|account|reference|customer|zip|p\.?o\.? box|suite|room"
    r"|rechnung|bestellung)\b[^\n]{0,20}$",
    re.IGNORECASE,
)
_URL = re.compile(r"https?://[^\s<>\"'{}|\\^`]{3,2000}", re.IGNORECASE)
_ASKS = re.compile(
    r"verif|confirm|activat|validat|magic|sign[-_]?in|log[-_]?in|reset|passw|invit|accept|token"
    r"|auth|welcome|bestätig|aktivier|confirmar|vérifi|подтверд|验证|確認",
    re.IGNORECASE,
)
_DOES = re.compile(
    r"verif|confirm|activat|validat|magic|sign[-_]?in|log[-_]?in|reset|passw|invit", re.IGNORECASE
)
_LONG_ID = re.compile(r"[A-Za-z0-9_-]{16,}")
_NEVER = re.compile(
    r"unsubscri|abmelden|preferences|view[-_]?(?:in|online)|\.(?:png|gif|jpe?g|css|js)(?:\?|$)",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"privacy|terms|settings|support|help|faq|contact|facebook|twitter|linkedin|instagram|youtube"
    r"|x\.com/|apps?\.apple|play\.google",
    re.IGNORECASE,
)


def find_code(subject: str, text: str) -> str | None:
    """The one-time code of a mail, without the spaces inside it; None if there is none."""
    best: tuple[int, str] | None = None
    for whole in (text[:_MOST_CHARS], subject):
        for match in _CODE.finditer(whole):
            points = _code_points(whole, match)
            if points > 0 and (best is None or points > best[0]):
                best = (points, _bare(match[1]))
    return best[1] if best else None


def _bare(code: str) -> str:
    """`123 456`, `123-456` and `1 2 3 4` are typed without what is between; `AB1-2CD` is not."""
    digits = re.sub(r"[ \u00a0-]", "", code)
    return digits if digits.isdigit() else code


def _code_points(text: str, match: re.Match[str]) -> int:
    before = text[max(0, match.start() - 160) : match.start()]
    after = text[match.end() : match.end() + 80].partition("\n")[0]
    line_before = before.rpartition("\n")[2]
    is_alone = not line_before.strip() and not after.strip(" \t\r.")
    code = match[1]
    is_said = _SAID.search(before) is not None
    if _is_inside(before) or _is_word(code):
        return 0
    if not is_said and not _is_usual(code, before, is_alone=is_alone):
        return 0
    points = 0
    if _WORDS.search(line_before):
        points += 6
    elif _WORDS.search(before) or _WORDS.search(after) or _is_to_use(before, after):
        points += 4
    if is_alone:
        points += 3
    if len(_bare(code)) in (6, 4, 8):
        points += 1
    if _is_other_number(code, line_before) and not is_said:
        points -= 5
    return points - 3


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def _is_word(code: str) -> bool:
    """`one-time` is no code, wherever it stands."""
    return not _has_digit(code) and code != code.upper()


def _is_usual(code: str, before: str, *, is_alone: bool) -> bool:
    """Whether a code looks like one by itself; others count only where they are said to follow."""
    if any(c.islower() for c in code):
        return False
    if _has_digit(code) and not _SPACED.fullmatch(code):
        return True
    last_line = before.rstrip().rpartition("\n")[2]
    return is_alone and _WORDS.search(last_line) is not None


def _is_inside(before: str) -> bool:
    """Whether it is part of a link, or joined to a word that is about something else."""
    if not before or before[-1].isspace():
        return False
    joined = before.rsplit(maxsplit=1)[-1]
    is_other = joined[-1] in ":=" and not _WORDS.search(joined)
    return is_other or any(c in joined for c in "/?&")


def _is_to_use(before: str, after: str) -> bool:
    return _TO_USE.search(before) is not None and _FOR.match(after) is not None


def _is_other_number(code: str, line_before: str) -> bool:
    """A year, a phone number, or the number of an order."""
    is_year = _YEAR.fullmatch(code) is not None
    return is_year or any(kind.search(line_before) for kind in (_PHONE, _OTHER_NUMBER))


def find_link(text: str, links: Iterable[Link] = ()) -> str | None:
    """The link that a mail asks its reader to follow; None if there is none."""
    best: tuple[int, str] | None = None
    for said, url in _links(text[:_MOST_CHARS], links):
        points = 4 * bool(_ASKS.search(url)) + 4 * bool(_ASKS.search(said)) + 1
        points += bool(re.search(r"[=/][A-Za-z0-9_-]{16,}", url))
        points -= 6 * _is_beside(said, url)
        if best is None or points > best[0]:
            best = (points, url)
    return best[1] if best else None


def _is_beside(said: str, url: str) -> bool:
    """Whether a link is one of those that stand below many mails."""
    if _NEVER.search(url) or _NEVER.search(said):
        return True
    is_usual = _BESIDE.search(url) or _BESIDE.search(said)
    return bool(is_usual) and not _does_something(url)


def _does_something(url: str) -> bool:
    """Whether the path says what it does, for somebody in particular."""
    path = url.partition("://")[2].partition("/")[2]
    place, *given = re.split(r"[?#]", path, maxsplit=1)
    names_one = any(_has_digit(found) for found in _LONG_ID.findall(place))
    return _DOES.search(place) is not None and (bool(given) or names_one)


def _links(text: str, links: Iterable[Link]) -> Iterator[tuple[str, str]]:
    for link in links:
        if link.url.lower().startswith(("https://", "http://")):
            yield link.text, link.url
    for match in _URL.finditer(text):
        before = text[max(0, match.start() - 80) : match.start()]
        emphasis = "*_" if before.endswith("_") else "*"
        yield before.rpartition("\n\n")[2], _balanced(match[0]).rstrip(".,;:!?([" + emphasis)


def _balanced(url: str) -> str:
    """A URL up to the first bracket that it closes and did not open: that one is the text's."""
    open_brackets: list[str] = []
    for position, char in enumerate(url):
        if char in "([":
            open_brackets.append(")" if char == "(" else "]")
        elif char in ")]" and (not open_brackets or open_brackets.pop() != char):
            return url[:position]
    return url
