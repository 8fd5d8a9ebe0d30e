"""Buckets that do not respond, or report that they are misconfigured or full."""

from __future__ import annotations

import socket
from threading import Event
from typing import Any

import pytest

from postroom.blobs import object_requests, objects
from postroom.blobs.objects import ObjectBlobs
from postroom.errors import StorageFull, Unavailable
from tests.servers.s3 import Faults, answering

_ELSEWHERE = "AWS_REGION or AWS_ENDPOINT_URL"


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ("301 Moved Permanently", "PermanentRedirect", _ELSEWHERE),
        ("400 Bad Request", "AuthorizationHeaderMalformed", _ELSEWHERE),
        ("400 Bad Request", "ExpiredToken", "AWS_SESSION_TOKEN"),
        ("400 Bad Request", "SomethingElse", "AWS_REGION, AWS_ENDPOINT_URL and the token"),
        ("403 Forbidden", "RequestTimeTooSkewed", "clock"),
        ("403 Forbidden", "SignatureDoesNotMatch", "key and its policy"),
        ("200 OK", "Html", "AWS_ENDPOINT_URL"),
    ],
)
async def test_a_misconfigured_bucket_is_reported_with_a_remedy(
    faulty: tuple[ObjectBlobs, Faults],
    caplog: pytest.LogCaptureFixture,
    status: str,
    code: str,
    words: str,
) -> None:
    blobs, faults = faulty
    faults.instead = lambda request: status
    faults.words = f"<Error><Code>{code}</Code></Error>"

    for attempt in (blobs.put([b"a"]), blobs.check()):
        with pytest.raises(Unavailable, match=words):
            await attempt

    if status.startswith("4"):
        assert any(code in vars(record).get("error", "") for record in caplog.records)


@pytest.mark.parametrize("code", ["QuotaExceeded", "XMinioAdminBucketQuotaExceeded"])
async def test_a_bucket_over_its_quota_is_reported_as_full(
    faulty: tuple[ObjectBlobs, Faults], code: str
) -> None:
    blobs, faults = faulty
    faults.instead = answering("403 Forbidden", "PUT")
    faults.words = f"<Error><Code>{code}</Code></Error>"

    for attempt in (blobs.put([b"a"]), blobs.check()):
        with pytest.raises(StorageFull, match="quota"):
            await attempt


async def test_an_object_store_without_space_is_reported_as_full(
    faulty: tuple[ObjectBlobs, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, faults = faulty
    faults.instead = answering("507 Insufficient Storage", "PUT")
    quick = {**objects._TIMEOUTS, "retry_config": {"max_retries": 0}}
    monkeypatch.setattr(objects, "_TIMEOUTS", quick)

    with pytest.raises(StorageFull, match="free some space"):
        await ObjectBlobs.at("s3://postroom-test").put([b"a"])


async def test_reads_from_a_hanging_bucket_time_out(
    reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"read_timeout": "50ms", "retry_config": {"max_retries": 0}}
    monkeypatch.setattr(objects, "_READ_TIMEOUTS", {**objects._READ_TIMEOUTS, **quick})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        blobs = ObjectBlobs.at(reached)

        for attempt in (blobs.read("0" * 64), blobs.missing(["0" * 64]), blobs.put([b"a"])):
            with pytest.raises(Unavailable, match="does not respond"):
                await attempt


async def test_a_bucket_without_responses_is_retried_after_a_pause(
    faulty: tuple[ObjectBlobs, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_WRITE_S", 0.2)
    blobs, faults = faulty
    is_well = Event()

    def wait(request: dict[str, Any]) -> None:
        if request["REQUEST_METHOD"] == "PUT":
            is_well.wait(timeout=60)

    faults.instead = wait
    try:
        with pytest.raises(Unavailable, match="does not respond"):
            await blobs.put([b"a"])
        faults.requests.clear()
        for attempt in (blobs.put([b"b"]), blobs.check()):
            with pytest.raises(Unavailable, match="does not respond"):
                await attempt
        asked = list(faults.requests)
    finally:
        is_well.set()
    clock = object_requests.monotonic
    monkeypatch.setattr(
        object_requests, "monotonic", lambda: clock() + object_requests._CIRCUIT_OPEN_S
    )
    monkeypatch.setattr(objects, "_WRITE_S", 60)

    keys = await blobs.put([b"a", b"b", b"c"])

    assert [] == asked
    assert frozenset() == await blobs.missing(keys)


async def test_a_large_batch_does_not_count_as_a_stalled_queue(
    faulty: tuple[ObjectBlobs, Faults], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although only eight blobs are written at a time, the queue progresses."""
    monkeypatch.setattr(object_requests, "_STALLED_S", 0)
    monkeypatch.setattr(object_requests, "_LONG_QUEUE_STALLED_S", 0)
    blobs, _ = faulty

    keys = await blobs.put([b"%d" % number for number in range(100)])

    assert frozenset() == await blobs.missing(keys)


async def test_a_readiness_check_of_a_hanging_bucket_times_out(
    reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_PROBE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")

        with pytest.raises(Unavailable, match="does not respond"):
            await ObjectBlobs.at(reached).check()


async def test_a_server_without_tls_is_reported_with_a_remedy(
    reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")

    with pytest.raises(Unavailable, match="AWS_ALLOW_HTTP"):
        await ObjectBlobs.at(reached).put([b"a"])
