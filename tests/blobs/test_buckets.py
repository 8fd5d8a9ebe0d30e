"""Behaviour that only buckets have: links, faults of the server, and its address."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from threading import Barrier
from typing import Any

import httpx2
import obstore
import pytest
from obstore.store import S3Store

from postroom.blobs import objects
from postroom.blobs.objects import ObjectBlobs
from postroom.errors import Unavailable
from tests.blobs.test_blobs import all_used, nothing_used
from tests.servers.s3 import Faults, answering


async def test_an_object_uploaded_in_parts_is_complete(bucket: S3Store) -> None:
    blobs = ObjectBlobs(bucket)
    content = os.urandom(17 * 1024 * 1024)

    (key,) = await blobs.put([content])

    assert await blobs.find_damage(key, len(content)) is None
    assert content[-5:] == await blobs.read(key, offset=len(content) - 5, size=100)


async def test_an_object_set_aside_by_a_killed_removal_is_read_and_comes_back(
    bucket: S3Store,
) -> None:
    blobs = ObjectBlobs(bucket)
    (key,) = await blobs.put([b"needed after all"])
    path = f"{key[:2]}/{key[2:]}"
    await obstore.rename_async(bucket, path, f"gone/{path}")

    assert b"needed after all" == await blobs.read(key)
    await blobs.sweep(all_used, older_than=timedelta(hours=1))

    assert frozenset() == await blobs.missing([key])


async def test_a_link_gives_the_content_without_a_login(bucket: S3Store) -> None:
    blobs = ObjectBlobs(bucket)
    (key,) = await blobs.put([b"for a while"])

    link = await blobs.link(key, lifetime=timedelta(minutes=5))

    async with httpx2.AsyncClient(timeout=60) as http:
        assert b"for a while" == (await http.get(link)).content


async def test_the_environment_configures_access_to_a_bucket(reached: str) -> None:
    blobs = ObjectBlobs.at(reached)

    (key,) = await blobs.put([b"over plain HTTP"])

    assert b"over plain HTTP" == await blobs.read(key)


async def test_links_use_the_public_address_of_the_bucket(
    bucket: S3Store, reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = bucket.config["endpoint"].replace("127.0.0.1", "localhost")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.config["endpoint"])
    blobs = ObjectBlobs.at(reached, outside)
    (key,) = await blobs.put([b"for those outside"])

    link = await blobs.link(key, lifetime=timedelta(minutes=5))

    assert link.startswith(f"{outside}/")
    async with httpx2.AsyncClient(timeout=60) as http:
        assert b"for those outside" == (await http.get(link)).content


async def test_a_missing_bucket_is_reported_with_a_remedy(
    reached: str, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = ObjectBlobs.at("s3://nobody-made-this")

    swept = blobs.sweep(all_used, older_than=timedelta())
    for attempt in (blobs.check(), blobs.put([b"a"]), swept):
        with pytest.raises(Unavailable, match="POSTROOM_BLOBS_URL") as refused:
            await attempt
        assert "Debug" not in str(refused.value)

    reasons = [
        vars(r)["error"] for r in caplog.records if r.name == "postroom.blobs.object_requests"
    ]
    assert 3 == len(reasons)
    assert all("NoSuchBucket" in reason and "Debug" not in reason for reason in reasons)


async def test_readiness_tests_a_write_unless_one_just_succeeded(
    faulty: tuple[ObjectBlobs, Faults],
) -> None:
    blobs, faults = faulty

    await blobs.check()
    await blobs.check()

    assert ["HEAD", "PUT", "POST"] == [method for method, _ in faults.requests]
    assert "POST /postroom-test?delete" == " ".join(faults.requests[-1])


@pytest.mark.parametrize("method", ["HEAD", "PUT"])
async def test_a_bucket_that_refuses_any_step_of_a_write_is_not_ready(
    faulty: tuple[ObjectBlobs, Faults], method: str
) -> None:
    blobs, faults = faulty
    await blobs.put([b"before"])
    faults.instead = answering("403 Forbidden", method)

    for attempt in (blobs.put([b"after"]), blobs.check()):
        with pytest.raises(Unavailable, match="key and its policy"):
            await attempt


async def test_a_bucket_that_refuses_deletions_is_ready(
    faulty: tuple[ObjectBlobs, Faults],
) -> None:
    blobs, faults = faulty
    faults.instead = answering("403 Forbidden", "POST")

    assert await blobs.check() is None


async def test_a_server_without_conditional_writes_stores_blobs(
    faulty: tuple[ObjectBlobs, Faults],
) -> None:
    blobs, faults = faulty
    faults.instead = lambda request: (
        "501 Not Implemented" if "HTTP_IF_NONE_MATCH" in request else None
    )

    (key,) = await blobs.put([b"unconditional"])

    assert b"unconditional" == await blobs.read(key)


async def test_objects_are_removed_concurrently_in_few_requests(
    faulty: tuple[ObjectBlobs, Faults],
) -> None:
    blobs, faults = faulty
    keys = await blobs.put([b"%d" % number for number in range(40)])
    together = Barrier(8)

    def meet(request: dict[str, Any]) -> None:
        if request["REQUEST_METHOD"] == "PUT":
            together.wait(timeout=60)

    faults.requests.clear()
    faults.instead = meet
    await blobs.discard(keys, nothing_used)

    asked = Counter(method for method, _ in faults.requests)
    assert {"PUT": 40, "POST": 2} == asked
    assert frozenset(keys) == await blobs.missing(keys)


async def test_concurrent_requests_to_a_server_are_limited(
    reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits for a slot of the server would look like a server that does
    not respond.
    """
    in_flight, most = 0, 0
    ask = obstore.head_async

    async def counted(store: S3Store, path: str) -> obstore.ObjectMeta:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        try:
            return await ask(store, path)
        finally:
            in_flight -= 1

    monkeypatch.setattr(obstore, "head_async", counted)
    await ObjectBlobs.at(reached).missing([f"{number:064}" for number in range(80)])

    assert objects._CONCURRENT_REQUESTS == most


async def test_a_missing_bucket_is_not_reported_as_a_missing_blob(reached: str) -> None:
    blobs, key = ObjectBlobs.at("s3://nobody-made-this"), "0" * 64

    for attempt in (
        blobs.read(key),
        blobs.missing([key]),
        blobs.find_damage(key, 4),
        blobs.link(key, lifetime=timedelta(minutes=1)),
        blobs.discard([key], nothing_used),
    ):
        with pytest.raises(Unavailable, match="does not exist"):
            await attempt


async def test_a_bucket_that_does_not_answer_is_unavailable() -> None:
    nobody = S3Store(
        "nobody",
        endpoint="http://127.0.0.1:9",
        access_key_id="a",
        secret_access_key="b",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )

    with pytest.raises(Unavailable):
        await ObjectBlobs(nobody).read("0" * 64)
