"""Mail that a provider only announces is fetched from its host, with the key of that host only."""

from __future__ import annotations

import json
from collections.abc import Iterator

import obstore
import pytest

from postroom.app import App
from postroom.config import read_settings
from postroom.model.view import EVERYTHING
from postroom.providers.inbound_json import MailBucket, Ses
from postroom.wiring import make_inbound
from tests.servers.s3 import environment as s3_environment
from tests.servers.s3 import running as running_s3
from tests.surfaces.rest.inbound.provider_requests import RAW, TOPIC, ProviderRequest, resend, sns


def in_bucket(
    bucket: str = "mail-for-us", key: str = "in/22b80b92", kind: str = "S3"
) -> ProviderRequest:
    """A notification of a mail in a bucket, as documented by Amazon."""
    action = {"type": kind, "topicArn": TOPIC, "bucketName": bucket, "objectKey": key}
    receipt = {"recipients": ["bo@postroom.localhost"], "action": action}
    return sns(Message=json.dumps({"notificationType": "Received", "receipt": receipt}))


@pytest.fixture
def bucket(services: App) -> Iterator[MailBucket]:
    """A configured bucket on a server that speaks S3."""
    with running_s3("mail-for-us") as store:
        bucket = MailBucket("mail-for-us", store, 10_000)
        ses = services.services.inbound["ses"]
        assert isinstance(ses, Ses)
        ses.bucket = bucket
        yield bucket


async def test_a_mail_that_amazon_put_into_our_bucket_is_fetched(anonymous, services, bucket):
    await obstore.put_async(bucket.store, "in/22b80b92", RAW)

    answers = [await in_bucket().to(anonymous) for _ in range(2)]

    assert ["received", "duplicate"] == [answer.json()["status"] for answer in answers]
    message_id = answers[0].json()["messages"][0]["message_id"]
    message = await services.services.store.message(message_id, EVERYTHING)
    assert RAW == await services.services.blobs.read(message.raw)


async def test_the_environment_configures_access_to_the_bucket_with_mail(monkeypatch):
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
        (in_bucket(key=""), 422, "object key"),
        (in_bucket(key="k" * 1_025), 422, "object key"),
        (in_bucket(key="in/too-large"), 413, "10001 bytes"),
        (in_bucket(key="in/sealed"), 422, "encrypted"),
        (in_bucket(key="in/not-there"), 502, "does not have this mail"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_mail_that_cannot_be_fetched_is_refused_with_a_remedy(
    anonymous, bucket, post, status, words
):
    await obstore.put_async(bucket.store, "in/too-large", b"x" * 10_001)
    sealed = {"x-amz-key-v2": "sealed"}
    await obstore.put_async(bucket.store, "in/sealed", RAW, attributes=sealed)

    answer = await post.to(anonymous)

    assert (status, True) == (answer.status_code, words in answer.json()["detail"]), answer.text


async def test_no_bucket_is_read_unless_configured(anonymous):
    answer = await in_bucket().to(anonymous)

    assert 422 == answer.status_code
    assert "POSTROOM_SES_BUCKET" in answer.json()["detail"]


async def test_the_bucket_is_a_setting(tmp_path, app):
    values = {"DATA_DIR": str(tmp_path), "SES_TOPICS": TOPIC, "SES_BUCKET": "mail-for-us"}
    settings = read_settings({f"POSTROOM_{name}": value for name, value in values.items()}).settings

    ses = make_inbound(settings, app.services.store)["ses"]

    assert isinstance(ses, Ses)
    assert ses.bucket is not None
    assert "mail-for-us" == ses.bucket.name


async def test_the_key_is_sent_to_resend_and_not_to_its_download_host(anonymous, provider_hosts):
    await resend().to(anonymous)

    (_, asking), (_, downloading) = provider_hosts.requests
    assert "Bearer re_canary_of_resend" == asking["authorization"]
    assert "authorization" not in downloading


async def test_a_mail_that_resend_no_longer_has_is_a_provider_error(anonymous, provider_hosts):
    provider_hosts.found.clear()

    answer = await resend().to(anonymous)

    assert (502, "provider_error") == (answer.status_code, answer.json()["code"])
