"""Tests of a cluster. `make test-cluster` runs them; without its variable there are none."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from postroom.blobs.files import FileBlobs
from postroom.pipeline.services import Services
from postroom.store import postgres
from postroom.store.store import Store
from tests.servers import citus

collect_ignore_glob = [] if citus.PROGRAMS in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[citus.Cluster]:
    """A cluster whose nodes may be killed: what they have acknowledged is on disk."""
    with citus.running(is_durable=True) as running:
        yield running


@pytest.fixture
def cluster_url(cluster: citus.Cluster) -> Iterator[str]:
    url = cluster.new_database()
    yield url
    cluster.drop(url)


@pytest.fixture
async def store(cluster_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await postgres.open_store(cluster_url, tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def services(store: Store, tmp_path: Path) -> Services:
    return Services(store=store, blobs=FileBlobs(tmp_path / "blobs"))
