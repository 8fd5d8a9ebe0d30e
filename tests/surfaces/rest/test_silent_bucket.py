"""A bucket that accepts connections and does not respond blocks only requests that need it."""

from __future__ import annotations

import asyncio
import dataclasses
from threading import Event

import pytest

from postroom.blobs import object_requests, objects
from postroom.blobs.objects import ObjectBlobs
from tests.mails import mail, new_inbox
from tests.servers import s3
from tests.surfaces.rest.conftest import rest_client


@pytest.fixture
def answers():
    """An event that the bucket waits for before it answers writes."""
    is_well = Event()
    is_well.set()
    yield is_well
    is_well.set()


@pytest.fixture
def silent_app(app, answers, monkeypatch):
    monkeypatch.setattr(object_requests, "_STALLED_S", 600)
    monkeypatch.setattr(object_requests, "_LONG_QUEUE_STALLED_S", 0)
    monkeypatch.setattr(objects, "_WRITE_S", 600)

    def wait(request):
        if request["REQUEST_METHOD"] == "PUT":
            answers.wait(timeout=60)

    faults = s3.Faults()
    with s3.running(faults=faults) as bucket:
        faults.instead = wait
        services = dataclasses.replace(app.services, blobs=ObjectBlobs(bucket))
        yield dataclasses.replace(app, services=services)


async def test_searches_go_on_while_deliveries_wait_for_a_silent_bucket(silent_app, key, answers):
    inbox = await new_inbox(silent_app.services)
    door = f"/v1/inbound?recipient={inbox.address}"
    stands = objects._CONCURRENT_WRITES + object_requests._LONG_QUEUE
    answers.clear()
    async with rest_client(silent_app, key) as rest:
        told = [
            asyncio.create_task(rest.send("POST", door, content=mail(f"Number {number}")))
            for number in range(150)
        ]
        left = set(told)
        while len(left) > stands:
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)

        found = await rest.get("/v1/search/messages", q="Number")
        answers.set()
        statuses = [response.status_code for response in await asyncio.gather(*told)]
        kept = await rest.get("/v1/search/messages", q="Number")

    assert 0 == found["total"]
    assert {201: stands, 503: 150 - stands} == {
        status: statuses.count(status) for status in sorted(set(statuses))
    }
    assert stands == kept["total"]
