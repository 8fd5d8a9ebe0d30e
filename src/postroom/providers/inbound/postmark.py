"""Postmark: JSON with the fields of a mail, and the whole of it if the server is set to say so.

Postmark does not sign. Its documentation asks for a name and a password in the webhook's URL, over
HTTPS; there is no time to check, and a repeated posting is recognised as the mail we have.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.blocking import in_thread
from postroom.mail.encoding import phrase
from postroom.mail.rebuild import Header, Part, rebuild
from postroom.ports.inbound import Handed, Posting
from postroom.providers.inbound.trust import (
    as_bytes,
    content_of,
    read_json,
    refuse,
    rows,
    unbase64,
    words,
)

_BARE = re.compile(r"[^<>\s]{1,320}")


@dataclass(frozen=True, slots=True)
class Postmark:
    """Reads what an inbound stream of Postmark posts."""

    login: str = field(repr=False)

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(unbase64(given.strip()), self.login.encode())
        if scheme.lower() != "basic" or not is_known:
            raise refuse("Postmark", "the name and password in the webhook's URL do not fit")
        return None

    async def read(self, posting: Posting) -> Sequence[Handed]:
        self.expect(posting.headers, posting.at)
        return (await in_thread(_handed, posting.body),)


def _handed(body: bytes) -> Handed:
    mail = read_json(body)
    raw = words(mail.get("RawEmail"))
    return Handed(as_bytes(raw) if raw else _rebuilt(mail), tuple(_recipients(mail)))


def _recipients(mail: dict[str, Any]) -> Iterator[str]:
    yield words(mail.get("OriginalRecipient"))
    for name in ("ToFull", "CcFull", "BccFull"):
        for row in rows(mail.get(name)):
            yield words(row.get("Email"))


def _rebuilt(mail: dict[str, Any]) -> bytes:
    text, html = words(mail.get("TextBody")), words(mail.get("HtmlBody"))
    files = [
        Part(
            words(row.get("Name")),
            words(row.get("ContentType")),
            content_of(words(row.get("Content")), "Attachments"),
            words(row.get("ContentID")) or None,
        )
        for row in rows(mail.get("Attachments"))
    ]
    return rebuild(_headers(mail), text or None, html or None, files)


def _sender(mail: dict[str, Any]) -> str:
    """`From` is the address alone; the name is beside it."""
    written, name = words(mail.get("From")).strip(), words(mail.get("FromName")).strip()
    return f"{phrase(name)} <{written}>" if name and _BARE.fullmatch(written) else written


def _headers(mail: dict[str, Any]) -> list[Header]:
    """`Headers` leaves out those that have a field of their own; `MessageID` is Postmark's id."""
    own = [(name, words(mail.get(name))) for name in ("To", "Cc", "Subject", "Date")]
    own += [("From", _sender(mail)), ("Reply-To", words(mail.get("ReplyTo")))]
    more = [(words(h.get("Name")), words(h.get("Value"))) for h in rows(mail.get("Headers"))]
    known = {name.lower() for name, _ in more}
    return [*((n, v) for n, v in own if v and n.lower() not in known), *more]
