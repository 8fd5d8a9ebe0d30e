"""Ways to unsubscribe from list mail: one-click (RFC 8058), a mail or a web page (RFC 2369)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address
from postroom.mail.dkim import parse_tags
from postroom.mail.message import ParsedMessage
from postroom.model.mail.message import ListUnsubscribe
from postroom.model.values import dataclass

_POST = "list-unsubscribe-post"
_HEADERS = frozenset(("list-unsubscribe", _POST))
_ONE_CLICK = "list-unsubscribe=one-click"
_MAX_SUBJECT, _MAX_BODY = 500, 5_000


@dataclass(frozen=True, slots=True)
class UnsubscribeMail:
    """The mail that unsubscribes, as a mailto URL describes it (RFC 6068)."""

    address: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class UnsubscribeOptions:
    """What a mail offers; `host` is that of the web page, which `one_click` need not open."""

    one_click: str | None = None
    mail: UnsubscribeMail | None = None
    host: str | None = None
    is_signed: bool = False
    """Whether every DKIM signature of the mail covers the headers (RFC 8058 §4)."""

    @property
    def public_form(self) -> ListUnsubscribe | None:
        """What callers see: no link that somebody would follow."""
        if self.mail is None and self.host is None:
            return None
        address = self.mail.address if self.mail else None
        return ListUnsubscribe(self.one_click is not None, address, self.host)


def unsubscribe_options(parsed: ParsedMessage) -> UnsubscribeOptions:
    """The ways that the headers of a mail name."""
    pages = [url for url in parsed.list_unsubscribe if _host(url)]
    secure = next((url for url in pages if url.lower().startswith("https:")), None)
    post = "".join((parsed.header(_POST) or "").split()).lower()
    mails = (_mail(url) for url in parsed.list_unsubscribe)
    chosen = secure or next(iter(pages), None)
    return UnsubscribeOptions(
        one_click=secure if post == _ONE_CLICK else None,
        mail=next((mail for mail in mails if mail is not None), None),
        host=_host(chosen) if chosen else None,
        is_signed=_is_signed([v for n, v in parsed.headers if n.lower() == "dkim-signature"]),
    )


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.hostname if parts.scheme.lower() in ("http", "https") else None


def _mail(url: str) -> UnsubscribeMail | None:
    """The mail of a mailto URL; None if it names no address, or several."""
    if not url.lower().startswith("mailto:"):
        return None
    address, _, query = url[len("mailto:") :].partition("?")
    pairs = (pair.partition("=") for pair in query.split("&"))
    fields = {name.lower(): unquote(value) for name, _, value in pairs}
    try:
        _, checked = parse_address(unquote(address))
    except InvalidInput:
        return None
    subject = " ".join(_printable(fields.get("subject", "")).split())[:_MAX_SUBJECT]
    text = _printable(fields.get("body", ""))[:_MAX_BODY]
    return UnsubscribeMail(checked, subject or "unsubscribe", text or "unsubscribe")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " if c != "\n" else c for c in text)


def _is_signed(signatures: Sequence[str]) -> bool:
    covered = [set(parse_tags(value.lower()).get("h", "").split(":")) for value in signatures]
    return bool(covered) and all(names >= _HEADERS for names in covered)
