"""Resend: a signed notification; the raw mail is fetched with an API key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from postroom.errors import Malformed, ProviderError
from postroom.ports.inbound import Fetcher, InboundMail, InboundRequest
from postroom.providers.inbound.forms import (
    NOTICE_BYTES,
    check_hmac,
    check_time,
    decode_base64,
    read_json,
    text_of,
)

API = "https://api.resend.com"
PREFIX = "whsec_"
_MIN_KEY_BYTES = 16


def key_of(secret: str) -> bytes:
    """The key in a signing secret of Resend. Raises ValueError."""
    key = decode_base64(secret.removeprefix(PREFIX))
    if len(key) < _MIN_KEY_BYTES:
        raise ValueError("must be the whole signing secret: whsec_ and base64")
    return key


@dataclass(frozen=True, slots=True)
class Resend:
    """Reads notifications of received mail, signed as in Standard Webhooks."""

    signing_key: bytes = field(repr=False)
    api_key: str = field(repr=False)
    window: timedelta
    fetcher: Fetcher

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        check_time("Resend", headers.get("svix-timestamp", ""), at, self.window)
        return NOTICE_BYTES

    async def read(self, posting: InboundRequest) -> Sequence[InboundMail]:
        self._check(posting)
        notice = read_json(posting.body)
        if notice.get("type") != "email.received":
            return ()
        data = notice.get("data")
        email_id = text_of(data.get("email_id")) if isinstance(data, dict) else ""
        if not isinstance(data, dict) or not re.fullmatch(r"[A-Za-z0-9-]{1,64}", email_id):
            raise Malformed("data.email_id: must be the id of a received email")
        return (InboundMail(await self._fetch(email_id), tuple(_recipients(data))),)

    def _check(self, posting: InboundRequest) -> None:
        values = [posting.headers.get(f"svix-{name}", "") for name in ("id", "timestamp")]
        signed = ".".join([*values, ""]).encode("utf-8", "replace") + posting.body
        listed = posting.headers.get("svix-signature", "").split(" ")
        signatures = [decode_base64(item[3:]) for item in listed if item.startswith("v1,")]
        check_hmac("Resend", self.signing_key, signed, signatures)
        check_time("Resend", values[1], posting.at, self.window)

    async def _fetch(self, email_id: str) -> bytes:
        login = {"Authorization": f"Bearer {self.api_key}"}
        email = read_json(await self.fetcher.get(f"{API}/emails/receiving/{email_id}", login))
        raw = email.get("raw")
        url = text_of(raw.get("download_url")) if isinstance(raw, dict) else ""
        if not url.startswith("https://"):
            raise ProviderError("unexpected response from Resend: no URL of the raw mail")
        return await self.fetcher.get(url, {})


def _recipients(data: dict[str, Any]) -> Iterator[str]:
    for name in ("received_for", "to", "cc", "bcc"):
        listed = data.get(name)
        yield from map(text_of, listed if isinstance(listed, list) else ())
