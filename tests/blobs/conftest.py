"""Buckets on servers that speak S3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from obstore.store import S3Store

from postroom.blobs.objects import ObjectBlobs
from tests.servers.s3 import Faults, environment, running


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Store]:
    """A bucket on a server that speaks S3."""
    with running() as store:
        yield store


@pytest.fixture
def reached(bucket: S3Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """The bucket's URL, with the environment that reaches its server, which has no TLS."""
    for name, value in environment(bucket).items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket.config['bucket']}/some/prefix"


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ObjectBlobs, Faults]]:
    """A bucket on a server that can be told to fail."""
    faults = Faults()
    with running(faults=faults) as store:
        for name, value in environment(store).items():
            monkeypatch.setenv(name, value)
        faults.requests.clear()
        yield ObjectBlobs.at("s3://postroom-test"), faults
