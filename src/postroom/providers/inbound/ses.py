"""Amazon SES: mail in notifications of SNS, which are signed.

The SNS action includes the mail (up to 150 KB). The S3 action names a mail in a bucket, which is
fetched if the settings name that bucket. Other notifications are refused with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import load_pem_x509_certificate

from postroom.errors import InvalidInput, Malformed
from postroom.ports.inbound import Bucket, Fetcher, InboundMail, InboundRequest
from postroom.providers.inbound.forms import (
    INVALID_SIGNATURE,
    NOTICE_BYTES,
    decode_base64,
    decode_content,
    encode_mail,
    read_json,
    refuse,
    text_of,
)

_HOST = r"https://sns\.[a-z0-9-]{3,20}\.amazonaws\.com(?:\.cn)?/"
_CERTIFICATE = re.compile(_HOST + r"[A-Za-z0-9-]{1,100}\.pem")
_CONFIRMATION = re.compile(_HOST + r"\?[!-~]{1,2000}")
_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": (
        "Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type",
    ),
}  # fmt: skip
_HASHES = {"1": hashes.SHA1, "2": hashes.SHA256}
_HINT = "use the action SNS with the encoding Base64 in the SES receipt rule"
_UNKNOWN_TOPIC = "its topic is not in POSTROOM_SES_TOPICS"
WINDOW = timedelta(hours=1)
"""Amazon's advice: retries continue for an hour with the same signature."""


@dataclass(slots=True)
class Ses:
    """Reads notifications of the configured topics, and confirms their subscriptions."""

    topics: tuple[str, ...]
    fetcher: Fetcher
    bucket: Bucket | None = None
    _keys: dict[str, rsa.RSAPublicKey] = field(default_factory=dict)

    def expect(self, headers: Mapping[str, str], at: datetime) -> int | None:
        return NOTICE_BYTES

    async def read(self, posting: InboundRequest) -> Sequence[InboundMail]:
        if not any(topic.encode() in posting.body for topic in self.topics):
            raise refuse("Amazon SES", _UNKNOWN_TOPIC)
        notice = read_json(posting.body)
        await self._check(notice, posting.at)
        if notice["Type"] == "SubscriptionConfirmation":
            await self._confirm(text_of(notice.get("SubscribeURL")))
            return ()
        message = read_json(text_of(notice.get("Message")))
        if message.get("notificationType") != "Received":
            return ()
        receipt = _object(message.get("receipt"))
        listed = receipt.get("recipients")
        recipients = tuple(map(text_of, listed if isinstance(listed, list) else ()))
        return (InboundMail(await self._mail(message, _object(receipt.get("action"))), recipients),)

    async def _mail(self, message: dict[str, Any], action: dict[str, Any]) -> bytes:
        content = message.get("content")
        if isinstance(content, str):
            is_base64 = text_of(action.get("encoding")).upper() == "BASE64"
            return decode_content(content, "content") if is_base64 else encode_mail(content)
        if action.get("type") != "S3":
            raise InvalidInput(f"the notification does not contain the mail; {_HINT}")
        if self.bucket is None or action.get("bucketName") != self.bucket.name:
            raise InvalidInput(
                f"POSTROOM_SES_BUCKET does not name the bucket of the mail; set it, or {_HINT}"
            )
        return await self.bucket.read(text_of(action.get("objectKey")))

    async def _check(self, notice: dict[str, Any], now: datetime) -> None:
        names = _SIGNED.get(text_of(notice.get("Type")))
        version = _HASHES.get(text_of(notice.get("SignatureVersion")))
        if names is None or version is None:
            raise Malformed("not a notification of SNS; turn off raw message delivery")
        if notice.get("TopicArn") not in self.topics:
            raise refuse("Amazon SES", _UNKNOWN_TOPIC)
        signed = "".join(f"{name}\n{notice[name]}\n" for name in names if name in notice)
        key = await self._key(text_of(notice.get("SigningCertURL")))
        try:
            key.verify(
                decode_base64(text_of(notice.get("Signature"))),
                signed.encode("utf-8", "replace"),
                padding.PKCS1v15(),
                version(),
            )
        except InvalidSignature:
            raise refuse("Amazon SES", INVALID_SIGNATURE) from None
        _check_age(text_of(notice.get("Timestamp")), now)

    async def _key(self, url: str) -> rsa.RSAPublicKey:
        if not _CERTIFICATE.fullmatch(url):
            raise refuse("Amazon SES", "its certificate is not at Amazon")
        if url not in self._keys:
            try:
                certificate = load_pem_x509_certificate(await self.fetcher.get(url, {}))
            except ValueError:
                raise refuse("Amazon SES", "its certificate is invalid") from None
            key = certificate.public_key()
            if not isinstance(key, rsa.RSAPublicKey):
                raise refuse("Amazon SES", "its certificate has no RSA key")
            self._keys = {url: key}
        return self._keys[url]

    async def _confirm(self, url: str) -> None:
        if not _CONFIRMATION.fullmatch(url):
            raise refuse("Amazon SES", "its SubscribeURL is not at Amazon")
        await self.fetcher.get(url, {})


def _check_age(timestamp: str, now: datetime) -> None:
    try:
        signed_at = datetime.fromisoformat(timestamp)
    except ValueError:
        raise refuse("Amazon SES", "its timestamp is missing or invalid") from None
    if abs(now - signed_at.replace(tzinfo=signed_at.tzinfo or UTC)) > WINDOW:
        raise refuse("Amazon SES", "its timestamp is too old or in the future; check the clocks")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
