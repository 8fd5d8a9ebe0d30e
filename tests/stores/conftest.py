"""Every store passes the same tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.blobs.files import FileBlobs
from postroom.model.inbox import Inbox
from postroom.pipeline.services import Services
from postroom.store import postgres, sqlite
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.store import Store
from tests.bare_services import NO_PROVIDERS
from tests.mails import new_inbox

OpenAgain = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAgain:
    """Opens the store of this test again, as another process would."""
    if request.param == "sqlite":
        return lambda: sqlite.open_store(tmp_path / "postroom.db")
    url = request.getfixturevalue("database_url")
    return lambda: postgres.open_store(url, tmp_path)


@pytest.fixture
async def store(open_again: OpenAgain) -> AsyncIterator[Store]:
    opened = await open_again()
    yield opened
    await opened.close()


def clock_from(start: datetime) -> Iterator[datetime]:
    """A clock that advances by a second at each call."""
    while True:
        yield start
        start += timedelta(seconds=1)


@pytest.fixture
def services(store: Store, tmp_path: Path) -> Services:
    times = clock_from(datetime(2026, 5, 1, tzinfo=UTC))
    return Services(
        **NO_PROVIDERS, store=store, blobs=FileBlobs(tmp_path / "blobs"), clock=lambda: next(times)
    )


@pytest.fixture
async def inbox(services: Services) -> Inbox:
    return await new_inbox(services)


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[PostgresEngine]:
    opened = PostgresEngine.open(database_url)
    yield opened
    await opened.close()
