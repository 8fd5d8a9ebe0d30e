"""Resend: a signed notice without the mail, which is then fetched with an API key, whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from postroom.errors import Malformed, ProviderError
from postroom.ports.inbound import Fetcher, Handed, Posting
from postroom.providers.inbound.trust import (
    NOTICE_BYTES,
    check_hmac,
    check_time,
    read_json,
    unbase64,
    words,
)

API = "https://api.resend.com"
PREFIX = "whsec_"
_LEAST_KEY_BYTES = 16


def key_of(secret: str) -> bytes:
    """The key in a signing secret as Resend shows it. Raises ValueError."""
    key = unbase64(secret.removeprefix(PREFIX))
    if len(key) < _LEAST_KEY_BYTES:
        raise ValueError("must be the whole signing secret, such as whsec_ and base64 after it")
    return key


@dataclass(frozen=True, slots=True)
class Resend:
    """Reads notices of received mail; the signature is that of Standard Webhooks."""

    signing_key: bytes = field(repr=False)
    api_key: str = field(repr=False)
    window: timedelta
    fetcher: Fetcher

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        check_time("Resend", headers.get("svix-timestamp", ""), at, self.window)
        return NOTICE_BYTES

    async def read(self, posting: Posting) -> Sequence[Handed]:
        self._check(posting)
        notice = read_json(posting.body)
        if notice.get("type") != "email.received":
            return ()
        data = notice.get("data")
        email_id = words(data.get("email_id")) if isinstance(data, dict) else ""
        if not isinstance(data, dict) or not re.fullmatch(r"[A-Za-z0-9-]{1,64}", email_id):
            raise Malformed("data.email_id: it must be the id of a received email")
        return (Handed(await self._fetch(email_id), tuple(_recipients(data))),)

    def _check(self, posting: Posting) -> None:
        said = [posting.headers.get(f"svix-{name}", "") for name in ("id", "timestamp")]
        signed = ".".join([*said, ""]).encode("utf-8", "replace") + posting.body
        listed = posting.headers.get("svix-signature", "").split(" ")
        given = [unbase64(word[3:]) for word in listed if word.startswith("v1,")]
        check_hmac("Resend", self.signing_key, signed, given)
        check_time("Resend", said[1], posting.at, self.window)

    async def _fetch(self, email_id: str) -> bytes:
        login = {"Authorization": f"Bearer {self.api_key}"}
        email = read_json(await self.fetcher.get(f"{API}/emails/receiving/{email_id}", login))
        raw = email.get("raw")
        url = words(raw.get("download_url")) if isinstance(raw, dict) else ""
        if not url.startswith("https://"):
            raise ProviderError("Resend does not say where the whole mail is; try again later")
        return await self.fetcher.get(url, {})


def _recipients(data: dict[str, Any]) -> Iterator[str]:
    for name in ("received_for", "to", "cc", "bcc"):
        listed = data.get(name)
        yield from map(words, listed if isinstance(listed, list) else ())
