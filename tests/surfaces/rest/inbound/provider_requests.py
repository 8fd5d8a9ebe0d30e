"""Requests of the mail providers, signed as they sign them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from postroom.app import App
from postroom.model.view import EVERYTHING
from tests.mails import mail
from tests.surfaces.rest.conftest import RestClient

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TOPIC = "arn:aws:sns:eu-west-1:123456789012:mail"
MAILGUN_KEY = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0"
RESEND_SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
RAW = mail("Hello from afar", attachments=[("invoice.pdf", "application/pdf", b"%PDF-1.4 ...")])
SENDGRID = ec.generate_private_key(ec.SECP256R1())
AMAZON = rsa.generate_private_key(65537, 2048)


def sendgrid_public_key() -> str:
    der = SENDGRID.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(der).decode()


def amazon_certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = x509.CertificateBuilder(name, name, AMAZON.public_key(), 1, NOW, NOW + timedelta(days=9))
    return made.sign(AMAZON, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True)
class ProviderRequest:
    """A request that is ready to be sent."""

    provider: str
    body: bytes
    headers: dict[str, str]
    query: str = ""

    async def to(self, rest: RestClient) -> httpx2.Response:
        path = f"/v1/inbound/{self.provider}{self.query}"
        return await rest.send("POST", path, content=self.body, headers=self.headers)


def form(
    fields: dict[str, str | bytes], files: dict[str, tuple[str, str, bytes]]
) -> ProviderRequest:
    """A multipart form as these providers send it."""
    parts = []
    for name, value in fields.items():
        content = value if isinstance(value, bytes) else value.encode()
        parts.append((f'Content-Disposition: form-data; name="{name}"', content))
    for name, (filename, kind, content) in files.items():
        head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
        parts.append((f"{head}\r\nContent-Type: {kind}", content))
    body = b"".join(b"--xYzZY\r\n" + h.encode() + b"\r\n\r\n" + c + b"\r\n" for h, c in parts)
    return ProviderRequest(
        "", body + b"--xYzZY--\r\n", {"Content-Type": "multipart/form-data; boundary=xYzZY"}
    )


def mailgun_signature(at: datetime, token: str = "a" * 50) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    digest = hmac.new(MAILGUN_KEY.encode(), f"{timestamp}{token}".encode(), hashlib.sha256)
    return {"timestamp": timestamp, "token": token, "signature": digest.hexdigest()}


def mailgun(at: datetime = NOW, subject: str = "Hello from afar") -> ProviderRequest:
    headers = [["From", "Ana <ana@example.com>"], ["Subject", subject], ["Message-Id", "<1@x.org>"]]
    fields = {
        "recipient": "bo@postroom.localhost",
        "sender": "ana@example.com",
        "from": "Ana <ana@example.com>",
        "subject": subject,
        "body-plain": "Grüße\r\n",
        "body-html": '<p>Gr\u00fc\u00dfe <img src="cid:logo@x"></p>',
        "stripped-text": "Grüße",
        "message-headers": json.dumps(headers),
        "attachment-count": "2",
        "content-id-map": json.dumps({"<logo@x>": "attachment-2"}),
        **mailgun_signature(at),
    }
    files = {
        "attachment-1": ("invoice.pdf", "application/pdf", b"%PDF-1.4 ..."),
        "attachment-2": ("logo.png", "image/png", b"\x89PNG\r\n--not-the-end"),
    }
    return replace(form(fields, files), provider="mailgun")


def mailgun_mime(at: datetime = NOW) -> ProviderRequest:
    fields = {"recipient": "bo@postroom.localhost", "body-mime": RAW, **mailgun_signature(at)}
    return ProviderRequest(
        "mailgun",
        urlencode(fields).encode(),
        {"Content-Type": "application/x-www-form-urlencoded"},
        "?format=mime",
    )


def signed_sendgrid(post: ProviderRequest, at: datetime) -> ProviderRequest:
    timestamp = str(int(at.timestamp()))
    signature = SENDGRID.sign(timestamp.encode() + post.body, ec.ECDSA(hashes.SHA256()))
    headers = {
        "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
        "X-Twilio-Email-Event-Webhook-Timestamp": timestamp,
    }
    return replace(post, provider="sendgrid", headers={**post.headers, **headers})


def sendgrid(at: datetime = NOW) -> ProviderRequest:
    fields = {
        "headers": (
            "From: Ana <ana@example.com>\nSubject: Hello\n from afar\nMessage-ID: <1@x.org>\n"
        ),
        "to": "bo@postroom.localhost",
        "from": "Ana <ana@example.com>",
        "text": "Grüße".encode("latin-1"),
        "html": "<p>Grüße</p>",
        "charsets": json.dumps({"text": "iso-8859-1", "html": "UTF-8"}),
        "envelope": json.dumps({"to": ["bo@postroom.localhost"], "from": "ana@example.com"}),
        "attachments": "1",
    }
    files = {"attachment1": ("invoice.pdf", "application/pdf", b"%PDF-1.4 ...")}
    return signed_sendgrid(form(fields, files), at)


def sendgrid_raw(at: datetime = NOW) -> ProviderRequest:
    envelope = json.dumps({"to": ["bo@postroom.localhost"], "from": "ana@example.com"})
    return signed_sendgrid(form({"email": RAW, "envelope": envelope}, {}), at)


def postmark(**more: object) -> ProviderRequest:
    body = {
        "FromName": "Ana",
        "From": "Ana <ana@example.com>",
        "OriginalRecipient": "451d9b70@inbound.postmarkapp.com",
        "ToFull": [{"Email": "bo@postroom.localhost", "Name": "", "MailboxHash": ""}],
        "Subject": "Hello from afar",
        "MessageID": "22c74902-a0c1-4511-804f2-341342852c90",
        "Date": "Sun, 15 Nov 2026 11:59:00 +0000",
        "TextBody": "Grüße",
        "HtmlBody": "<p>Grüße</p>",
        "Headers": [{"Name": "Message-ID", "Value": "<1@x.org>"}],
        "Attachments": [
            {
                "Name": "invoice.pdf",
                "Content": base64.b64encode(b"%PDF-1.4 ...").decode(),
                "ContentType": "application/pdf",
                "ContentLength": 12,
            }
        ],
        **more,
    }
    login = base64.b64encode(b"postmark:canary-of-postmark").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    return ProviderRequest("postmark", json.dumps(body).encode(), headers)


def resend(
    at: datetime = NOW, kind: str = "email.received", to: str = "bo@postroom.localhost"
) -> ProviderRequest:
    body = json.dumps(
        {
            "type": kind,
            "created_at": "2026-11-15T12:00:00.126Z",
            "data": {
                "email_id": "56761188",
                "from": "Ana <ana@example.com>",
                "to": [to],
                "cc": [],
                "bcc": [],
                "subject": "Hello from afar",
                "attachments": [{"id": "2a0c9ce0", "filename": "invoice.pdf"}],
            },
        }
    ).encode()
    timestamp = str(int(at.timestamp()))
    signed = f"msg_1.{timestamp}.".encode() + body
    digest = hmac.digest(b"k" * 24, signed, hashlib.sha256)
    headers = {
        "svix-id": "msg_1",
        "svix-timestamp": timestamp,
        "svix-signature": f"v1,AAAA v1,{base64.b64encode(digest).decode()}",
        "Content-Type": "application/json",
    }
    return ProviderRequest("resend", body, headers)


def sns(at: datetime = NOW, to: str = "bo@postroom.localhost", **more: str) -> ProviderRequest:
    content = base64.b64encode(RAW).decode()
    receipt = {
        "recipients": [to],
        "action": {"type": "SNS", "topicArn": TOPIC, "encoding": "BASE64"},
    }
    received = {"notificationType": "Received", "mail": {}, "receipt": receipt, "content": content}
    notice = {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Subject": "Amazon SES Email Receipt Notification",
        "Message": json.dumps(received),
        "Timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "1",
        "SigningCertURL": ("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"),
        **more,
    }
    names = ("Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token")
    signed = "".join(
        f"{n}\n{notice[n]}\n" for n in (*names, "TopicArn", "Type") if n in notice
    ).encode()
    kind = hashes.SHA1() if notice["SignatureVersion"] == "1" else hashes.SHA256()
    signature = AMAZON.sign(signed, padding.PKCS1v15(), kind)
    notice["Signature"] = base64.b64encode(signature).decode()
    return ProviderRequest(
        "ses", json.dumps(notice).encode(), {"Content-Type": "text/plain; charset=UTF-8"}
    )


def subscription() -> ProviderRequest:
    url = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t"
    post = sns(Type="SubscriptionConfirmation", Token="t", SubscribeURL=url, Subject="")
    notice = json.loads(post.body)
    del notice["Subject"]
    names = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    signed = "".join(f"{name}\n{notice[name]}\n" for name in names).encode()
    signature = AMAZON.sign(signed, padding.PKCS1v15(), hashes.SHA1())
    notice["Signature"] = base64.b64encode(signature).decode()
    return replace(post, body=json.dumps(notice).encode())


WHOLE = {
    "mailgun": mailgun_mime,
    "sendgrid": sendgrid_raw,
    "resend": resend,
    "ses": sns,
    "postmark": lambda: postmark(RawEmail=RAW.decode()),
}
IN_FIELDS = {"mailgun": mailgun, "sendgrid": sendgrid, "postmark": postmark}
SIGNED = {"mailgun": mailgun, "sendgrid": sendgrid, "resend": resend, "ses": sns}


async def stored(services: App, answer: httpx2.Response):
    """The message that a response names."""
    assert 200 == answer.status_code, answer.text
    (received,) = answer.json()["messages"]
    return await services.services.store.message(received["message_id"], EVERYTHING)


async def inbox_of(services: App, message):
    return await services.services.store.inbox(message.inbox_id, EVERYTHING)
