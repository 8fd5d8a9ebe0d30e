"""Providers post mail in the forms they document; what is not theirs, or not of now, is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import obstore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.errors import NotFound, StorageFull
from postroom.model.key import OWNER
from postroom.parts import make_inbound
from postroom.providers.inbound.bucket import MailBucket
from postroom.providers.inbound.fetcher import HttpsFetcher
from postroom.providers.inbound.ses import Ses
from postroom.providers.webhooks.guard import Guard
from tests.mails import mail, new_inbox
from tests.servers.certificates import certificate
from tests.servers.https import Pages, pages
from tests.servers.s3 import environment as s3_environment
from tests.servers.s3 import running as running_s3
from tests.surfaces.rest.conftest import Rest, visiting

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


class Nearby(Guard):
    """Finds every host on this machine."""

    async def resolve(self, host: str, port: int):
        return ip_address("127.0.0.1")


@dataclass(frozen=True)
class Elsewhere(HttpsFetcher):
    """Goes to the port of a server of ours instead of 443; the rest is real."""

    port: int = 0

    def _read(self, target, address, headers):
        connect = super()._read
        return connect(replace(target, port=self.port), address, headers)


@dataclass(frozen=True)
class Post:
    """A posting, ready to be sent."""

    provider: str
    body: bytes
    headers: dict[str, str]
    query: str = ""

    async def to(self, rest: Rest) -> httpx2.Response:
        path = f"/v1/inbound/{self.provider}{self.query}"
        return await rest.send("POST", path, content=self.body, headers=self.headers)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Pages]:
    """Amazon and Resend, as far as we read from them."""
    names = ("api.resend.com", "inbound-cdn.resend.com", "sns.eu-west-1.amazonaws.com")
    made = certificate(tmp_path / "world", *names)
    async with pages(made.server()) as served:
        served.found = {
            "sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem": amazon_certificate(),
            "sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t": b"<ok/>",
            "api.resend.com/emails/receiving/56761188": json.dumps(
                {"raw": {"download_url": "https://inbound-cdn.resend.com/raw?signature=1"}}
            ).encode(),
            "inbound-cdn.resend.com/raw?signature=1": RAW,
        }
        yield served


@pytest.fixture
async def house(tmp_path: Path, world: Pages) -> AsyncIterator[App]:
    """A Postroom that all five may post to, in a world where it is always noon."""
    values = {
        "DATA_DIR": str(tmp_path / "data"),
        "MAILGUN_SIGNING_KEY": MAILGUN_KEY,
        "SENDGRID_PUBLIC_KEY": sendgrid_public_key(),
        "RESEND_SIGNING_SECRET": RESEND_SECRET,
        "RESEND_API_KEY": "re_canary_of_resend",
        "SES_TOPICS": TOPIC,
        "POSTMARK_LOGIN": "postmark:canary-of-postmark",
    }
    settings = read_settings({f"POSTROOM_{name}": value for name, value in values.items()}).settings
    trusted = tmp_path / "world" / "api.resend.com.pem"
    fetcher = Elsewhere(
        Nearby(), 10_000_000, 5.0, lambda: ssl.create_default_context(cafile=trusted), world.port
    )
    async with open_app(settings) as opened:
        inbound = {
            **opened.house.inbound,
            "resend": replace(opened.house.inbound["resend"], fetcher=fetcher),
            "ses": Ses((TOPIC,), fetcher),
        }
        await new_inbox(opened.context(OWNER))
        yield replace(opened, house=replace(opened.house, clock=lambda: NOW, inbound=inbound))


@pytest.fixture
async def stranger(house: App) -> AsyncIterator[Rest]:
    """Somebody without a key."""
    async with visiting(house, None) as rest:
        yield rest


def form(fields: dict[str, str | bytes], files: dict[str, tuple[str, str, bytes]]) -> Post:
    """A multipart form as these providers send it."""
    parts = []
    for name, value in fields.items():
        content = value if isinstance(value, bytes) else value.encode()
        parts.append((f'Content-Disposition: form-data; name="{name}"', content))
    for name, (filename, kind, content) in files.items():
        head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"'
        parts.append((f"{head}\r\nContent-Type: {kind}", content))
    body = b"".join(b"--xYzZY\r\n" + h.encode() + b"\r\n\r\n" + c + b"\r\n" for h, c in parts)
    return Post(
        "", body + b"--xYzZY--\r\n", {"Content-Type": "multipart/form-data; boundary=xYzZY"}
    )


def mailgun_signature(at: datetime, token: str = "a" * 50) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    digest = hmac.new(MAILGUN_KEY.encode(), f"{timestamp}{token}".encode(), hashlib.sha256)
    return {"timestamp": timestamp, "token": token, "signature": digest.hexdigest()}


def mailgun(at: datetime = NOW, subject: str = "Hello from afar") -> Post:
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


def mailgun_mime(at: datetime = NOW) -> Post:
    fields = {"recipient": "bo@postroom.localhost", "body-mime": RAW, **mailgun_signature(at)}
    return Post(
        "mailgun",
        urlencode(fields).encode(),
        {"Content-Type": "application/x-www-form-urlencoded"},
        "?format=mime",
    )


def signed_sendgrid(post: Post, at: datetime) -> Post:
    timestamp = str(int(at.timestamp()))
    signature = SENDGRID.sign(timestamp.encode() + post.body, ec.ECDSA(hashes.SHA256()))
    headers = {
        "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
        "X-Twilio-Email-Event-Webhook-Timestamp": timestamp,
    }
    return replace(post, provider="sendgrid", headers={**post.headers, **headers})


def sendgrid(at: datetime = NOW) -> Post:
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


def sendgrid_raw(at: datetime = NOW) -> Post:
    envelope = json.dumps({"to": ["bo@postroom.localhost"], "from": "ana@example.com"})
    return signed_sendgrid(form({"email": RAW, "envelope": envelope}, {}), at)


def postmark(**more: object) -> Post:
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
    return Post("postmark", json.dumps(body).encode(), headers)


def resend(
    at: datetime = NOW, kind: str = "email.received", to: str = "bo@postroom.localhost"
) -> Post:
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
    return Post("resend", body, headers)


def sns(at: datetime = NOW, to: str = "bo@postroom.localhost", **more: str) -> Post:
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
    return Post("ses", json.dumps(notice).encode(), {"Content-Type": "text/plain; charset=UTF-8"})


def subscription() -> Post:
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


async def stored(house: App, answer: httpx2.Response):
    """The message that an answer speaks of."""
    assert 200 == answer.status_code, answer.text
    (received,) = answer.json()["messages"]
    return await house.house.store.message(received["message_id"], None)


async def inbox_of(house: App, message):
    return await house.house.store.inbox(message.inbox_id, None)


@pytest.mark.parametrize("provider", WHOLE)
async def test_the_whole_mail_that_a_provider_has_is_stored_byte_for_byte(
    house, stranger, provider
):
    message = await stored(house, await WHOLE[provider]().to(stranger))

    async with visiting(house, await house.owner_key()) as owner:
        raw = await owner.send("GET", f"/v1/messages/{message.id}/raw")
    assert RAW == raw.content


@pytest.mark.parametrize("provider", IN_FIELDS)
async def test_a_mail_in_fields_is_put_together_again(house, stranger, provider):
    message = await stored(house, await IN_FIELDS[provider]().to(stranger))

    assert "Hello from afar" == message.subject
    assert "Grüße" == message.text.strip()
    assert ("Ana", "ana@example.com") == (message.from_name, message.from_address)
    assert "1@x.org" == message.internet_message_id
    files = {a.filename: a.content_type for a in message.attachments}
    assert "application/pdf" == files["invoice.pdf"]


async def test_postmark_tells_the_name_where_answers_go_and_the_hour_apart_from_the_mail(
    house, stranger
):
    """As its documentation shows it: the address alone, and a colon in the zone."""
    post = postmark(
        From="support@postmarkapp.com",
        FromName='Jürgen "J", Support',
        FromFull={"Email": "support@postmarkapp.com", "Name": "Jürgen", "MailboxHash": ""},
        ReplyTo="replyto@postmarkapp.com",
        Date="Fri, 1 Aug 2014 16:45:32 -04:00",
    )

    message = await stored(house, await post.to(stranger))

    assert ('Jürgen "J", Support', "support@postmarkapp.com") == (
        message.from_name,
        message.from_address,
    )
    assert ("replyto@postmarkapp.com",) == message.reply_to_addresses
    assert datetime(2014, 8, 1, 20, 45, 32, tzinfo=UTC) == message.date


async def test_an_image_in_the_html_stays_inline(house, stranger):
    message = await stored(house, await mailgun().to(stranger))

    assert {"invoice.pdf": False, "logo.png": True} == {
        a.filename: a.inline for a in message.attachments
    }


@pytest.mark.parametrize("provider", WHOLE)
async def test_what_is_posted_again_is_recognised(stranger, provider):
    first = await WHOLE[provider]().to(stranger)
    again = await WHOLE[provider]().to(stranger)

    assert ["received", "duplicate"] == [a.json()["status"] for a in (first, again)]
    assert first.json()["messages"][0]["message_id"] == again.json()["messages"][0]["message_id"]


async def test_the_same_mail_by_two_routes_is_one_message(stranger):
    answers = [await WHOLE[provider]().to(stranger) for provider in WHOLE]

    assert 1 == len({answer.json()["messages"][0]["message_id"] for answer in answers})


@pytest.mark.parametrize("provider", SIGNED)
@pytest.mark.parametrize("hours", [-2, 2])
async def test_what_was_signed_at_another_time_is_refused(stranger, provider, hours):
    answer = await SIGNED[provider](NOW + timedelta(hours=hours)).to(stranger)

    assert (401, "unauthenticated") == (answer.status_code, answer.json()["code"])


def tampered(post: Post) -> Iterator[Post]:
    """A posting with one byte of each place changed."""
    for at in (0, len(post.body) // 2, len(post.body) - 1):
        yield replace(post, body=post.body[:at] + bytes([post.body[at] ^ 1]) + post.body[at + 1 :])
    for name, value in post.headers.items():
        if "signature" in name.lower() or name.lower() in ("svix-id", "svix-timestamp"):
            yield replace(post, headers={**post.headers, name: value[:-6] + "AAAAA="})
            yield replace(post, headers={n: v for n, v in post.headers.items() if n != name})


@pytest.mark.parametrize("provider", ["sendgrid", "resend"])
async def test_one_changed_byte_is_refused(stranger, provider):
    for post in tampered(SIGNED[provider]()):
        assert 401 == (await post.to(stranger)).status_code


async def test_a_changed_notice_of_amazon_is_refused(stranger):
    for name in ("Message", "MessageId", "Subject", "Timestamp"):
        notice = json.loads(sns().body)
        notice[name] += " "
        answer = await replace(sns(), body=json.dumps(notice).encode()).to(stranger)

        assert 401 == answer.status_code, name


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example/SimpleNotificationService-1.pem",
        "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.example/x.pem",
        "https://sns.eu-west-1.amazonaws.com@evil.example/x.pem",
        "https://s3.eu-west-1.amazonaws.com/x.pem",
    ],
)
async def test_a_certificate_from_elsewhere_is_not_even_read(stranger, world, place):
    answer = await sns(SigningCertURL=place).to(stranger)

    assert 401 == answer.status_code
    assert [] == world.asked


async def test_a_topic_that_is_not_ours_is_refused(stranger, world):
    answer = await sns(TopicArn=TOPIC.replace("1234", "4321")).to(stranger)

    assert 401 == answer.status_code
    assert [] == world.asked


async def test_amazon_signs_in_two_ways(stranger):
    assert "received" == (await sns(SignatureVersion="2").to(stranger)).json()["status"]


async def test_a_subscription_to_our_topic_is_confirmed(stranger, world):
    answer = await subscription().to(stranger)

    assert (200, "nothing") == (answer.status_code, answer.json()["status"])
    assert "sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t" == world.asked[-1][0]


def in_bucket(bucket: str = "mail-for-us", key: str = "in/22b80b92", kind: str = "S3") -> Post:
    """A notice of a mail that is in a bucket, as Amazon documents it."""
    action = {"type": kind, "topicArn": TOPIC, "bucketName": bucket, "objectKey": key}
    receipt = {"recipients": ["bo@postroom.localhost"], "action": action}
    return sns(Message=json.dumps({"notificationType": "Received", "receipt": receipt}))


@pytest.fixture
def bucket(house: App) -> Iterator[MailBucket]:
    """A bucket that the settings name, on a server that speaks S3."""
    with running_s3("mail-for-us") as store:
        bucket = MailBucket("mail-for-us", store, 10_000)
        ses = house.house.inbound["ses"]
        assert isinstance(ses, Ses)
        ses.bucket = bucket
        yield bucket


async def test_a_mail_that_amazon_put_into_our_bucket_is_fetched(stranger, house, bucket):
    await obstore.put_async(bucket.store, "in/22b80b92", RAW)

    answers = [await in_bucket().to(stranger) for _ in range(2)]

    assert ["received", "duplicate"] == [answer.json()["status"] for answer in answers]
    message_id = answers[0].json()["messages"][0]["message_id"]
    message = await house.house.store.message(message_id, None)
    assert RAW == await house.house.blobs.read(message.raw)


async def test_the_environment_says_how_the_bucket_with_mail_is_reached(monkeypatch):
    with running_s3("mail-for-us") as store:
        for name, value in s3_environment(store).items():
            monkeypatch.setenv(name, value)
        await obstore.put_async(store, "in/22b80b92", RAW)

        assert RAW == await MailBucket.named("mail-for-us", 10_000).read("in/22b80b92")


@pytest.mark.parametrize(
    ("post", "status", "words"),
    [
        (in_bucket(bucket="of-somebody-else"), 422, "POSTROOM_SES_BUCKET"),
        (in_bucket(kind="Lambda"), 422, "action SNS"),
        (in_bucket(key=""), 422, "where in the bucket"),
        (in_bucket(key="k" * 1_025), 422, "where in the bucket"),
        (in_bucket(key="in/too-large"), 413, "10001 bytes"),
        (in_bucket(key="in/sealed"), 422, "encrypted"),
        (in_bucket(key="in/not-there"), 502, "no such mail"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_fetched_is_refused_with_what_to_do(
    stranger, bucket, post, status, words
):
    await obstore.put_async(bucket.store, "in/too-large", b"x" * 10_001)
    sealed = {"x-amz-key-v2": "sealed"}
    await obstore.put_async(bucket.store, "in/sealed", RAW, attributes=sealed)

    answer = await post.to(stranger)

    assert (status, True) == (answer.status_code, words in answer.json()["detail"]), answer.text


async def test_without_a_bucket_in_the_settings_none_is_read(stranger):
    answer = await in_bucket().to(stranger)

    assert 422 == answer.status_code
    assert "POSTROOM_SES_BUCKET" in answer.json()["detail"]


async def test_the_settings_name_the_bucket(tmp_path, app):
    values = {"DATA_DIR": str(tmp_path), "SES_TOPICS": TOPIC, "SES_BUCKET": "mail-for-us"}
    settings = read_settings({f"POSTROOM_{name}": value for name, value in values.items()}).settings

    ses = make_inbound(settings, app.house.store)["ses"]

    assert isinstance(ses, Ses)
    assert ses.bucket is not None
    assert "mail-for-us" == ses.bucket.name


async def test_a_token_of_mailgun_is_good_for_one_mail(stranger):
    await mailgun().to(stranger)

    answer = await mailgun(subject="Another").to(stranger)

    assert 401 == answer.status_code


async def test_a_token_of_mailgun_is_known_by_another_process_until_it_is_too_old(house):
    async with visiting(house, None) as before:
        await mailgun().to(before)
    settings = house.settings
    async with open_app(settings) as again:
        await again.house.store.forget_leases(NOW)
        other = replace(again, house=replace(again.house, clock=lambda: NOW))
        async with visiting(other, None) as after:
            same = await mailgun().to(after)
            forged = await mailgun(subject="Another").to(after)

    assert "duplicate" == same.json()["status"]
    assert 401 == forged.status_code


async def test_base64_may_be_broken_into_lines(house, stranger):
    content = base64.encodebytes(b"hello world " * 20).decode()
    file = {"Name": "f.txt", "ContentType": "text/plain", "Content": content}
    message = await stored(house, await postmark(Attachments=[file]).to(stranger))

    assert [240] == [a.size for a in message.attachments]


async def test_half_a_character_does_not_keep_a_mail_out(house, stranger):
    raw = "Subject: Hello\r\n\r\nHalf: \ud800."
    message = await stored(house, await postmark(RawEmail=raw).to(stranger))

    assert "Half: ?." == message.text.strip()


@pytest.mark.parametrize("field", ["timestamp", "token", "signature"])
async def test_mailgun_without_its_signature_is_refused(stranger, field):
    post = mailgun_mime()
    body = post.body.replace(f"{field}=".encode(), b"other=")

    assert 401 == (await replace(post, body=body).to(stranger)).status_code


@pytest.mark.parametrize("login", ["", "Basic", "Basic x", "Bearer cG9zdG1hcms6eA==", "Basic Og=="])
async def test_postmark_with_another_password_is_refused(stranger, login):
    post = postmark()

    answer = await replace(post, headers={**post.headers, "Authorization": login}).to(stranger)

    assert 401 == answer.status_code


async def test_resend_is_asked_with_our_key_and_its_download_without(stranger, world):
    await resend().to(stranger)

    (_, asking), (_, downloading) = world.asked
    assert "Bearer re_canary_of_resend" == asking["authorization"]
    assert "authorization" not in downloading


async def test_a_mail_that_resend_no_longer_has_is_its_failure(stranger, world):
    world.found.clear()

    answer = await resend().to(stranger)

    assert (502, "provider_error") == (answer.status_code, answer.json()["code"])


async def test_what_is_not_about_received_mail_is_taken_and_left_alone(stranger):
    answer = await resend(kind="email.delivered").to(stranger)

    assert (200, "nothing") == (answer.status_code, answer.json()["status"])


@pytest.mark.parametrize(
    ("post", "status"),
    [
        (lambda: replace(postmark(), body=b"[]"), 400),
        (lambda: replace(postmark(), body=b"{" * 100_000), 400),
        (lambda: replace(mailgun(), body=b"--xYzZY\r\n\r\n"), 400),
        (lambda: replace(mailgun(), headers={"Content-Type": "text/plain"}), 400),
        (lambda: postmark(ToFull="x", Attachments=7, Headers=[1], TextBody=[]), 403),
        (lambda: postmark(Attachments=[{"Name": "x", "Content": "!!not base64"}]), 400),
        (lambda: replace(postmark(), provider="unheard-of"), 422),
        (lambda: replace(postmark(), query="?format=pdf"), 422),
    ],
)
async def test_what_cannot_be_read_is_refused(stranger, post, status):
    answer = await post().to(stranger)

    assert status == answer.status_code, answer.text


def for_nobody(post: Post) -> Post:
    return replace(post, body=post.body.replace(b"bo@postroom", b"no@postroom"))


FOR_NOBODY = {
    "mailgun": (406, lambda: for_nobody(mailgun())),
    "postmark": (403, lambda: for_nobody(postmark())),
    "resend": (200, lambda: resend(to="no@postroom.localhost")),
    "sendgrid": (404, lambda: signed_sendgrid(for_nobody(sendgrid_raw()), NOW)),
    "ses": (404, lambda: sns(to="no@postroom.localhost")),
}


@pytest.mark.parametrize("provider", FOR_NOBODY)
async def test_a_mail_for_nobody_is_refused_in_the_code_after_which_a_provider_stops(
    stranger, provider
):
    status, post = FOR_NOBODY[provider]

    answer = await post().to(stranger)

    assert (status, status) == (answer.status_code, answer.json()["status"])
    assert "no inbox has an address" in answer.json()["detail"]


def for_two() -> Post:
    both = [{"Email": f"{name}@postroom.localhost"} for name in ("bo", "cy")]
    return postmark(RawEmail=RAW.decode(), ToFull=both)


def remove_while_bytes_are_written(house: App, monkeypatch, *gone: str) -> None:
    put, store = house.house.blobs.put, house.house.store

    async def meanwhile(contents):
        for inbox_id in gone:
            with suppress(NotFound):
                await store.remove_inbox(inbox_id, None, force=True)
        return await put(contents)

    monkeypatch.setattr(house.house.blobs, "put", meanwhile)


async def test_an_inbox_that_goes_meanwhile_takes_nobody_elses_copy_with_it(
    house, stranger, monkeypatch
):
    cy = await new_inbox(house.context(OWNER), "cy")
    remove_while_bytes_are_written(house, monkeypatch, cy.id)

    answer = await for_two().to(stranger)

    message = await stored(house, answer)
    assert ("received", "bo") == (
        answer.json()["status"],
        (await inbox_of(house, message)).address.split("@")[0],
    )


async def test_when_all_inboxes_go_meanwhile_a_mail_is_for_nobody(house, stranger, monkeypatch):
    cy = await new_inbox(house.context(OWNER), "cy")
    bo = await inbox_of(house, await stored(house, await postmark().to(stranger)))
    remove_while_bytes_are_written(house, monkeypatch, bo.id, cy.id)

    assert 403 == (await for_two().to(stranger)).status_code


async def test_a_copy_that_can_still_be_stored_is_posted_again(house, stranger, monkeypatch):
    """One inbox goes, and there is no room for the other's copy: that is nobody's last word."""
    bo = await inbox_of(house, await stored(house, await postmark().to(stranger)))
    cy = await new_inbox(house.context(OWNER), "cy")
    remove_while_bytes_are_written(house, monkeypatch, bo.id)
    add = house.house.store.add_messages

    async def full(messages):
        if [cy.id] == [message.inbox_id for message in messages]:
            raise StorageFull("the disk is full")
        return await add(messages)

    with monkeypatch.context() as patched:
        patched.setattr(house.house.store, "add_messages", full)
        refused = await for_two().to(stranger)
    again = await for_two().to(stranger)

    assert (507, "storage_full") == (refused.status_code, refused.json()["code"])
    assert cy.id == (await stored(house, again)).inbox_id


@pytest.mark.parametrize("provider", WHOLE)
async def test_what_we_have_no_time_for_is_never_dropped_by_a_provider(house, stranger, provider):
    house.rates.per_second, house.rates.burst = 1e9, 1
    house.rates.take("inbound")
    house.rates.per_second = 0.5

    answer = await WHOLE[provider]().to(stranger)

    assert (503, "rate_limited") == (answer.status_code, answer.json()["code"])


async def test_a_token_of_mailgun_is_for_the_mail_however_it_is_written_down(stranger):
    first, again = mailgun(), mailgun()
    other = again.body.replace(b"xYzZY", b"another")
    kind = {"Content-Type": "multipart/form-data; boundary=another"}

    answers = [
        await post.to(stranger) for post in (first, replace(again, body=other, headers=kind))
    ]

    assert ["received", "duplicate"] == [answer.json()["status"] for answer in answers]


async def test_a_header_of_a_mail_in_fields_cannot_make_another(house, stranger):
    sly = "Hello\r\nBcc: eve@example.com\r\n\r\nfrom afar"

    message = await stored(house, await postmark(Subject=sly).to(stranger))

    assert "Hello Bcc: eve@example.com from afar" == message.subject
    assert () == message.bcc_addresses


async def test_a_provider_that_is_not_set_up_is_switched_off(rest):
    problem = await rest.problem("POST", "/v1/inbound/mailgun", content=b"x")

    assert (404, "feature_disabled") == (problem["status"], problem["code"])
    assert "POSTROOM_MAILGUN_SIGNING_KEY" in problem["detail"]
