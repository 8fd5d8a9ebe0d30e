"""Inbound webhooks that post JSON: Postmark, Resend and Amazon SES.

Postmark posts the fields of a mail, and the raw mail if the server is set to include it. It does
not sign. As its documentation asks, a name and a password are in the webhook's URL. There is no
timestamp to check; a repeated request is recognised as a duplicate mail.

Resend posts a signed notification; the raw mail is fetched with an API key.

SES sends mail in notifications of SNS, which are signed. The SNS action includes the mail (up to
150 KB). The S3 action names a mail in a bucket, which is fetched if the settings name that bucket.
Other notifications are refused with a hint.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import load_pem_x509_certificate

from postroom.blocking import in_thread
from postroom.errors import (
    InvalidInput,
    Malformed,
    ProviderAuthFailed,
    ProviderError,
    TooLarge,
    trusted,
)
from postroom.mail.compose import Header, OutgoingAttachment, phrase, rebuild
from postroom.ports.provider import Bucket, Fetcher, InboundMail, InboundRequest
from postroom.providers import inbound_forms
from postroom.providers.inbound_forms import (
    decode_base64,
    object_of,
    objects_of,
    read_json,
    refusal,
    text_of,
    texts_of,
)

if TYPE_CHECKING:
    from obstore.store import S3Store  # an extra

_ADDRESS = re.compile(r"[^<>\s]{1,320}")


@dataclass(frozen=True, slots=True)
class Postmark:
    """Reads mail of a Postmark inbound stream."""

    login: str = field(repr=False)

    def max_bytes(self, headers: Mapping[str, str], at: datetime) -> int | None:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(decode_base64(credentials.strip()), self.login.encode())
        if scheme.lower() != "basic" or not is_known:
            raise refusal("Postmark", "the name or password in the webhook's URL is wrong")
        return None

    async def read(self, request: InboundRequest) -> Sequence[InboundMail]:
        self.max_bytes(request.headers, request.at)
        return (await in_thread(self._read_mail, request.body),)

    @staticmethod
    def _read_mail(body: bytes) -> InboundMail:
        mail = read_json(body)
        rows = (
            row for name in ("ToFull", "CcFull", "BccFull") for row in objects_of(mail.get(name))
        )
        recipients = (mail.get("OriginalRecipient"), *(row.get("Email") for row in rows))
        raw = text_of(mail.get("RawEmail"))
        content = inbound_forms.encode_mail(raw) if raw else _rebuild_mail(mail)
        return InboundMail(content, tuple(map(text_of, recipients)))


def _rebuild_mail(mail: dict[str, Any]) -> bytes:
    text, html = text_of(mail.get("TextBody")), text_of(mail.get("HtmlBody"))
    files = [
        OutgoingAttachment(
            text_of(row.get("Name")),
            text_of(row.get("ContentType")),
            inbound_forms.decode_content(text_of(row.get("Content")), "Attachments"),
            text_of(row.get("ContentID")) or None,
        )
        for row in objects_of(mail.get("Attachments"))
    ]
    return rebuild(_headers(mail), text or None, html or None, files)


def _headers(mail: dict[str, Any]) -> list[Header]:
    """All headers; `Headers` omits those with a separate field. `MessageID` is Postmark's."""
    sender, name = text_of(mail.get("From")).strip(), text_of(mail.get("FromName")).strip()
    if name and _ADDRESS.fullmatch(sender):
        sender = f"{phrase(name)} <{sender}>"
    own = [(name, text_of(mail.get(name))) for name in ("To", "Cc", "Subject", "Date")]
    own += [("From", sender), ("Reply-To", text_of(mail.get("ReplyTo")))]
    rows = objects_of(mail.get("Headers"))
    more = [(text_of(row.get("Name")), text_of(row.get("Value"))) for row in rows]
    known = {name.lower() for name, _ in more}
    return [*((n, v) for n, v in own if v and n.lower() not in known), *more]


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

    def max_bytes(self, headers: Mapping[str, str], at: datetime) -> int | None:
        inbound_forms.check_time("Resend", headers.get("svix-timestamp", ""), at, self.window)
        return inbound_forms.NOTICE_BYTES

    async def read(self, request: InboundRequest) -> Sequence[InboundMail]:
        self._check(request)
        notice = read_json(request.body)
        if notice.get("type") != "email.received":
            return ()
        data = object_of(notice.get("data"))
        email_id = text_of(data.get("email_id"))
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", email_id):
            raise Malformed("data.email_id: must be the id of a received email")
        lists = (texts_of(data.get(name)) for name in ("received_for", "to", "cc", "bcc"))
        return (InboundMail(await self._fetch(email_id), sum(lists, ())),)

    def _check(self, request: InboundRequest) -> None:
        values = [request.headers.get(f"svix-{name}", "") for name in ("id", "timestamp")]
        signed = ".".join([*values, ""]).encode("utf-8", "replace") + request.body
        listed = request.headers.get("svix-signature", "").split(" ")
        signatures = [decode_base64(item[3:]) for item in listed if item.startswith("v1,")]
        inbound_forms.check_hmac("Resend", self.signing_key, signed, signatures)
        inbound_forms.check_time("Resend", values[1], request.at, self.window)

    async def _fetch(self, email_id: str) -> bytes:
        login = {"Authorization": f"Bearer {self.api_key}"}
        email = read_json(await self.fetcher.get(f"{API}/emails/receiving/{email_id}", login))
        url = text_of(object_of(email.get("raw")).get("download_url"))
        if not url.startswith("https://"):
            raise ProviderError("unexpected response from Resend: no URL of the raw mail")
        return await self.fetcher.get(url, {})


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

    def max_bytes(self, headers: Mapping[str, str], at: datetime) -> int | None:
        return inbound_forms.NOTICE_BYTES

    async def read(self, request: InboundRequest) -> Sequence[InboundMail]:
        if not any(topic.encode() in request.body for topic in self.topics):
            raise refusal("Amazon SES", _UNKNOWN_TOPIC)
        notice = read_json(request.body)
        await self._check(notice, request.at)
        if notice["Type"] == "SubscriptionConfirmation":
            url = text_of(notice.get("SubscribeURL"))
            if not _CONFIRMATION.fullmatch(url):
                raise refusal("Amazon SES", "its SubscribeURL is not at Amazon")
            await self.fetcher.get(url, {})
            return ()
        message = read_json(text_of(notice.get("Message")))
        if message.get("notificationType") != "Received":
            return ()
        receipt = object_of(message.get("receipt"))
        mail = await self._mail(message, object_of(receipt.get("action")))
        return (InboundMail(mail, texts_of(receipt.get("recipients"))),)

    async def _mail(self, message: dict[str, Any], action: dict[str, Any]) -> bytes:
        content = message.get("content")
        if isinstance(content, str):
            is_base64 = text_of(action.get("encoding")).upper() == "BASE64"
            if is_base64:
                return inbound_forms.decode_content(content, "content")
            return inbound_forms.encode_mail(content)
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
            raise refusal("Amazon SES", _UNKNOWN_TOPIC)
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
            raise refusal("Amazon SES", inbound_forms.INVALID_SIGNATURE) from None
        try:
            signed_at = datetime.fromisoformat(text_of(notice.get("Timestamp")))
        except ValueError:
            raise refusal("Amazon SES", inbound_forms.INVALID_TIMESTAMP) from None
        inbound_forms.check_age(
            "Amazon SES", signed_at.replace(tzinfo=signed_at.tzinfo or UTC), now, WINDOW
        )

    async def _key(self, url: str) -> rsa.RSAPublicKey:
        if not _CERTIFICATE.fullmatch(url):
            raise refusal("Amazon SES", "its certificate is not at Amazon")
        if url not in self._keys:
            try:
                certificate = load_pem_x509_certificate(await self.fetcher.get(url, {}))
            except ValueError:
                raise refusal("Amazon SES", "its certificate is invalid") from None
            key = certificate.public_key()
            if not isinstance(key, rsa.RSAPublicKey):
                raise refusal("Amazon SES", "its certificate has no RSA key")
            self._keys = {url: key}
        return self._keys[url]


_TIMEOUTS: dict[str, Any] = {
    "timeout": "20s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
}
"""Not as `client_options`, which would override `AWS_ALLOW_HTTP` and others in the environment."""

_MAX_KEY_BYTES = 1_024
_KMS_KEY = "x-amz-key"
"""The metadata with the key of a mail that Amazon encrypted with KMS."""


@dataclass(frozen=True, slots=True)
class MailBucket:
    """Reads mail from one bucket."""

    name: str
    store: S3Store
    max_bytes: int

    @classmethod
    def named(cls, name: str, max_bytes: int) -> MailBucket:
        from obstore.store import S3Store

        return cls(name, S3Store(name, **_TIMEOUTS), max_bytes)

    async def read(self, key: str) -> bytes:
        """Read a mail. Raises InvalidInput, TooLarge, ProviderError."""
        if not key or len(key.encode("utf-8", "replace")) > _MAX_KEY_BYTES:
            raise InvalidInput(
                "the notification has no object key, which names the mail in the bucket"
            )
        import obstore
        from obstore import exceptions

        try:
            found = await obstore.get_async(self.store, key)
            size = found.meta["size"]
            if size > self.max_bytes:
                raise TooLarge(f"the mail has {size} bytes; the limit is {self.max_bytes}")
            if any(_KMS_KEY in str(name).lower() for name in found.attributes):
                raise InvalidInput("the mail is encrypted; turn that off in the SES receipt rule")
            return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            absent = ProviderError("the bucket does not have this mail yet")
            raise trusted(absent) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            refused = ProviderAuthFailed("the bucket refused the login; check its policy")
            raise trusted(refused) from error
        except exceptions.BaseError as error:
            silent = ProviderError("the bucket with the mail does not respond; try again")
            raise trusted(silent) from error
