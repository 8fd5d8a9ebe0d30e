"""Requests without a valid and current signature are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.app import open_app
from tests.surfaces.rest.conftest import rest_client
from tests.surfaces.rest.inbound.provider_requests import (
    NOW,
    SIGNED,
    TOPIC,
    ProviderRequest,
    mailgun,
    mailgun_mime,
    postmark,
    sns,
    subscription,
)


@pytest.mark.parametrize("provider", SIGNED)
@pytest.mark.parametrize("hours", [-2, 2])
async def test_an_old_or_future_signature_is_refused(anonymous, provider, hours):
    answer = await SIGNED[provider](NOW + timedelta(hours=hours)).to(anonymous)

    assert (401, "unauthenticated") == (answer.status_code, answer.json()["code"])


def tampered(post: ProviderRequest) -> Iterator[ProviderRequest]:
    """Copies of a request, each with one changed byte."""
    for at in (0, len(post.body) // 2, len(post.body) - 1):
        yield replace(post, body=post.body[:at] + bytes([post.body[at] ^ 1]) + post.body[at + 1 :])
    for name, value in post.headers.items():
        if "signature" in name.lower() or name.lower() in ("svix-id", "svix-timestamp"):
            yield replace(post, headers={**post.headers, name: value[:-6] + "AAAAA="})
            yield replace(post, headers={n: v for n, v in post.headers.items() if n != name})


@pytest.mark.parametrize("provider", ["sendgrid", "resend"])
async def test_one_changed_byte_is_refused(anonymous, provider):
    for post in tampered(SIGNED[provider]()):
        assert 401 == (await post.to(anonymous)).status_code


async def test_a_changed_notice_of_amazon_is_refused(anonymous):
    for name in ("Message", "MessageId", "Subject", "Timestamp"):
        notice = json.loads(sns().body)
        notice[name] += " "
        answer = await replace(sns(), body=json.dumps(notice).encode()).to(anonymous)

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
async def test_a_certificate_of_another_host_is_not_fetched(anonymous, provider_hosts, place):
    answer = await sns(SigningCertURL=place).to(anonymous)

    assert 401 == answer.status_code
    assert [] == provider_hosts.requests


async def test_a_topic_that_is_not_ours_is_refused(anonymous, provider_hosts):
    answer = await sns(TopicArn=TOPIC.replace("1234", "4321")).to(anonymous)

    assert 401 == answer.status_code
    assert [] == provider_hosts.requests


async def test_both_signature_versions_of_amazon_are_accepted(anonymous):
    assert "received" == (await sns(SignatureVersion="2").to(anonymous)).json()["status"]


async def test_a_subscription_to_our_topic_is_confirmed(anonymous, provider_hosts):
    answer = await subscription().to(anonymous)

    assert (200, "nothing") == (answer.status_code, answer.json()["status"])
    url, _ = provider_hosts.requests[-1]
    assert "sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t" == url


async def test_a_token_of_mailgun_is_valid_for_one_mail(anonymous):
    await mailgun().to(anonymous)

    answer = await mailgun(subject="Another").to(anonymous)

    assert 401 == answer.status_code


async def test_used_tokens_of_mailgun_are_shared_between_processes(services):
    async with rest_client(services, None) as before:
        await mailgun().to(before)
    settings = services.settings
    async with open_app(settings) as again:
        await again.services.store.remove_expired_leases(NOW)
        other = replace(again, services=replace(again.services, clock=lambda: NOW))
        async with rest_client(other, None) as after:
            same = await mailgun().to(after)
            forged = await mailgun(subject="Another").to(after)

    assert "duplicate" == same.json()["status"]
    assert 401 == forged.status_code


@pytest.mark.parametrize("field", ["timestamp", "token", "signature"])
async def test_mailgun_without_its_signature_is_refused(anonymous, field):
    post = mailgun_mime()
    body = post.body.replace(f"{field}=".encode(), b"other=")

    assert 401 == (await replace(post, body=body).to(anonymous)).status_code


@pytest.mark.parametrize("login", ["", "Basic", "Basic x", "Bearer cG9zdG1hcms6eA==", "Basic Og=="])
async def test_postmark_with_another_password_is_refused(anonymous, login):
    post = postmark()

    answer = await replace(post, headers={**post.headers, "Authorization": login}).to(anonymous)

    assert 401 == answer.status_code


async def test_a_token_of_mailgun_identifies_the_mail_in_either_form(anonymous):
    first, again = mailgun(), mailgun()
    other = again.body.replace(b"xYzZY", b"another")
    kind = {"Content-Type": "multipart/form-data; boundary=another"}

    answers = [
        await post.to(anonymous) for post in (first, replace(again, body=other, headers=kind))
    ]

    assert ["received", "duplicate"] == [answer.json()["status"] for answer in answers]
