"""Requests that cannot be stored are refused, and no mail is dropped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from postroom.app import App
from postroom.errors import NotFound, StorageFull
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from tests.mails import new_inbox
from tests.surfaces.rest.inbound.provider_requests import (
    NOW,
    RAW,
    WHOLE,
    ProviderRequest,
    inbox_of,
    mailgun,
    postmark,
    resend,
    sendgrid_raw,
    signed_sendgrid,
    sns,
    stored,
)


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
async def test_unreadable_requests_are_refused(anonymous, post, status):
    answer = await post().to(anonymous)

    assert status == answer.status_code, answer.text


def for_nobody(post: ProviderRequest) -> ProviderRequest:
    return replace(post, body=post.body.replace(b"bo@postroom", b"no@postroom"))


FOR_NOBODY = {
    "mailgun": (406, lambda: for_nobody(mailgun())),
    "postmark": (403, lambda: for_nobody(postmark())),
    "resend": (200, lambda: resend(to="no@postroom.localhost")),
    "sendgrid": (404, lambda: signed_sendgrid(for_nobody(sendgrid_raw()), NOW)),
    "ses": (404, lambda: sns(to="no@postroom.localhost")),
}


@pytest.mark.parametrize("provider", FOR_NOBODY)
async def test_mail_for_unknown_recipients_gets_the_status_that_ends_retries(anonymous, provider):
    status, post = FOR_NOBODY[provider]

    answer = await post().to(anonymous)

    assert (status, status) == (answer.status_code, answer.json()["status"])
    assert "no recipient of this mail has an inbox" in answer.json()["detail"]


def for_two() -> ProviderRequest:
    both = [{"Email": f"{name}@postroom.localhost"} for name in ("bo", "cy")]
    return postmark(RawEmail=RAW.decode(), ToFull=both)


def remove_while_bytes_are_written(services: App, monkeypatch, *gone: str) -> None:
    put, store = services.services.blobs.put, services.services.store

    async def meanwhile(contents):
        for inbox_id in gone:
            with suppress(NotFound):
                await store.remove_inbox(inbox_id, EVERYTHING, force=True)
        return await put(contents)

    monkeypatch.setattr(services.services.blobs, "put", meanwhile)


async def test_a_removed_inbox_does_not_affect_other_copies(services, anonymous, monkeypatch):
    cy = await new_inbox(services.context(OWNER), "cy")
    remove_while_bytes_are_written(services, monkeypatch, cy.id)

    answer = await for_two().to(anonymous)

    message = await stored(services, answer)
    assert ("received", "bo") == (
        answer.json()["status"],
        (await inbox_of(services, message)).address.split("@")[0],
    )


async def test_mail_for_removed_inboxes_only_has_unknown_recipients(
    services, anonymous, monkeypatch
):
    cy = await new_inbox(services.context(OWNER), "cy")
    bo = await inbox_of(services, await stored(services, await postmark().to(anonymous)))
    remove_while_bytes_are_written(services, monkeypatch, bo.id, cy.id)

    assert 403 == (await for_two().to(anonymous)).status_code


async def test_a_copy_that_can_still_be_stored_is_retried(services, anonymous, monkeypatch):
    """One inbox is removed, and there is no space for the other copy: the error is temporary."""
    bo = await inbox_of(services, await stored(services, await postmark().to(anonymous)))
    cy = await new_inbox(services.context(OWNER), "cy")
    remove_while_bytes_are_written(services, monkeypatch, bo.id)
    add = services.services.store.add_messages

    async def full(messages):
        if [cy.id] == [message.inbox_id for message in messages]:
            raise StorageFull("the disk is full")
        return await add(messages)

    with monkeypatch.context() as patched:
        patched.setattr(services.services.store, "add_messages", full)
        refused = await for_two().to(anonymous)
    again = await for_two().to(anonymous)

    assert (507, "storage_full") == (refused.status_code, refused.json()["code"])
    assert cy.id == (await stored(services, again)).inbox_id


@pytest.mark.parametrize("provider", WHOLE)
async def test_overload_has_a_status_that_every_provider_retries(services, anonymous, provider):
    services.rates.per_second, services.rates.burst = 1e9, 1
    services.rates.take("inbound")
    services.rates.per_second = 0.5

    answer = await WHOLE[provider]().to(anonymous)

    assert (503, "rate_limited") == (answer.status_code, answer.json()["code"])
