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
_CODE = re.compile(
    r"(?<![\w.,/$€£#%&=@+:-])"
    r"(?:[A-Z]-)?(\d{3}[ \u00a0-]\d{3}|\d{4,10}|(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z\d]{5,10}"
    r"|[A-Z\d]{3,5}-[A-Z\d]{3,5})"
    r"(?![\w/%@]|[.,:-]\d|-\w)"
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_PHONE = re.compile(r"(?:\+|\btel|\bphone|\bcall)[^\n]{0,20}$", re.IGNORECASE)
_OTHER_NUMBER = re.compile(
    r"\b(?:order|invoice|ticket|case|account|reference|customer|zip|p\.?o\.? box|suite|room"
    r"|rechnung|bestellung)\b[^\n]{0,20}$",
    re.IGNORECASE,
)
_URL = re.compile(r"https?://[^\s<>\"'\[\]{}|\\^`]{3,2000}", re.IGNORECASE)
_ASKS = re.compile(
    r"verif|confirm|activat|validat|magic|sign[-_]?in|log[-_]?in|reset|passw|invit|accept|token"
    r"|auth|welcome|bestätig|aktivier|confirmar|vérifi|подтверд|验证|確認",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"unsubscri|abmelden|privacy|terms|preferences|settings|support|help|faq|contact|facebook"
    r"|twitter|linkedin|instagram|youtube|x\.com/|apps?\.apple|play\.google|view[-_]?(?:in|online)"
    r"|\.(?:png|gif|jpe?g|css|js)(?:\?|$)",
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
    """`123 456` and `123-456` are typed without what stands between; `AB1-2CD` is not."""
    digits = re.sub(r"[ \u00a0-]", "", code)
    return digits if digits.isdigit() else code


def _code_points(text: str, match: re.Match[str]) -> int:
    before = text[max(0, match.start() - 160) : match.start()]
    after = text[match.end() : match.end() + 80]
    line_before = before.rpartition("\n")[2]
    code = match[1]
    points = 0
    if _WORDS.search(line_before):
        points += 6
    elif _WORDS.search(before) or _WORDS.search(after.partition("\n")[0]):
        points += 4
    if not line_before.strip() and not after.partition("\n")[0].strip(" \t\r."):
        points += 3
    if len(_bare(code)) in (6, 4, 8):
        points += 1
    if not any(c.isdigit() for c in code):
        points -= 9
    if _YEAR.fullmatch(code) or _PHONE.search(line_before) or _OTHER_NUMBER.search(line_before):
        points -= 5
    return points - 3


def find_link(text: str, links: Iterable[Link] = ()) -> str | None:
    """The link that a mail asks its reader to follow; None if there is none."""
    best: tuple[int, str] | None = None
    for said, url in _links(text[:_MOST_CHARS], links):
        points = 4 * bool(_ASKS.search(url)) + 4 * bool(_ASKS.search(said)) + 1
        points += bool(re.search(r"[=/][A-Za-z0-9_-]{16,}", url))
        points -= 6 * bool(_BESIDE.search(url) or _BESIDE.search(said))
        if best is None or points > best[0]:
            best = (points, url)
    return best[1] if best else None


def _links(text: str, links: Iterable[Link]) -> Iterator[tuple[str, str]]:
    for link in links:
        if link.url.lower().startswith(("https://", "http://")):
            yield link.text, link.url
    for match in _URL.finditer(text):
        said = text[max(0, match.start() - 80) : match.start()].rpartition("\n\n")[2]
        yield said, match[0].rstrip(".,;:!?)*_")
