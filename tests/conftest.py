"""Fixtures that all tests share: an installation in a temporary folder, and our options."""

from __future__ import annotations

import gc
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from postroom.app import App, open_app
from postroom.calls.context import RequestContext
from postroom.config import read_settings
from postroom.model.key import OWNER
from tests.servers.postgres import Postgres
from tests.servers.postgres import running as running_postgres

ROOT = Path(__file__).parents[1]

pytest_plugins = [
    "tests.plugins.long_cases",
    "tests.plugins.skips",
    "tests.plugins.temporary_folders",
    "tests.plugins.tls_contexts",
]

# No deadline: on a busy machine an example may be slow, and nothing here measures time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("brief", settings.get_profile("patient"), max_examples=20)
settings.load_profile("patient")


# `nohup make test &` ignores SIGINT, and so would each process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# 15,000 tests are collected and kept until the end, so there is nothing to find in them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; review the diff"
    )


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Session-scoped, so that fixtures that several tests share may be asynchronous."""
    return "asyncio"


@pytest.fixture(scope="session")
def built_guide() -> Path:
    """The folder of the documentation site, built if something in docs/ has changed."""
    subprocess.run([ROOT / "scripts" / "docs"], check=True)
    return ROOT / "src/postroom/surfaces/web/site"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for all tests of this process, started when the first asks for it."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def database_url(postgres_server: Postgres) -> Iterator[str]:
    """A database for this test, with empty tables."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop(url)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """An open, empty Postroom."""
    settings = read_settings({"POSTROOM_DATA_DIR": str(tmp_path / "data")}).settings
    async with open_app(settings) as opened:
        yield opened


@pytest.fixture
def ctx(app: App) -> RequestContext:
    """The request context of the owner."""
    return app.context(OWNER)
