"""Postmark: JSON with the fields of a mail, and the raw mail if the server is set to include it.

Postmark does not sign. As its documentation asks, a name and a password are in the webhook's URL.
There is no timestamp to check; a repeated request is recognised as a duplicate mail.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.blocking import in_thread
from postroom.mail.composing.compose import Header, OutgoingAttachment, phrase, rebuild
from postroom.ports.inbound import Handed, Posting
from postroom.providers.inbound.forms import (
    decode_base64,
    decode_content,
    encode_mail,
    objects_of,
    read_json,
    refuse,
    text_of,
)

_BARE = re.compile(r"[^<>\s]{1,320}")


@dataclass(frozen=True, slots=True)
class Postmark:
    """Reads mail of a Postmark inbound stream."""

    login: str = field(repr=False)

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(decode_base64(credentials.strip()), self.login.encode())
        if scheme.lower() != "basic" or not is_known:
            raise refuse("Postmark", "the name or password in the webhook's URL is wrong")
        return None

    async def read(self, posting: Posting) -> Sequence[Handed]:
        self.expect(posting.headers, posting.at)
        return (await in_thread(_handed, posting.body),)


def _handed(body: bytes) -> Handed:
    mail = read_json(body)
    raw = text_of(mail.get("RawEmail"))
    return Handed(encode_mail(raw) if raw else _rebuilt(mail), tuple(_recipients(mail)))


def _recipients(mail: dict[str, Any]) -> Iterator[str]:
    yield text_of(mail.get("OriginalRecipient"))
    for name in ("ToFull", "CcFull", "BccFull"):
        for row in objects_of(mail.get(name)):
            yield text_of(row.get("Email"))


def _rebuilt(mail: dict[str, Any]) -> bytes:
    text, html = text_of(mail.get("TextBody")), text_of(mail.get("HtmlBody"))
    files = [
        OutgoingAttachment(
            text_of(row.get("Name")),
            text_of(row.get("ContentType")),
            decode_content(text_of(row.get("Content")), "Attachments"),
            text_of(row.get("ContentID")) or None,
        )
        for row in objects_of(mail.get("Attachments"))
    ]
    return rebuild(_headers(mail), text or None, html or None, files)


def _sender(mail: dict[str, Any]) -> str:
    """The From header; Postmark puts the name into another field."""
    address, name = text_of(mail.get("From")).strip(), text_of(mail.get("FromName")).strip()
    return f"{phrase(name)} <{address}>" if name and _BARE.fullmatch(address) else address


def _headers(mail: dict[str, Any]) -> list[Header]:
    """All headers; `Headers` omits those with a field of their own. `MessageID` is Postmark's."""
    own = [(name, text_of(mail.get(name))) for name in ("To", "Cc", "Subject", "Date")]
    own += [("From", _sender(mail)), ("Reply-To", text_of(mail.get("ReplyTo")))]
    more = [
        (text_of(h.get("Name")), text_of(h.get("Value"))) for h in objects_of(mail.get("Headers"))
    ]
    known = {name.lower() for name, _ in more}
    return [*((n, v) for n, v in own if v and n.lower() not in known), *more]
