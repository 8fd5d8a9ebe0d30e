"""The Python client, synchronous and asynchronous, against a running server."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.client import AsyncPostroom, Page, Postroom
from tests.servers.postroom import Running, running


@dataclass(frozen=True)
class AnyClient:
    """A client of either kind behind one asynchronous interface."""

    client: Any

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._call(name, *args, **kwargs)

    async def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        found = getattr(self.client, name)(*args, **kwargs)
        return await found if inspect.isawaitable(found) else found

    async def all_items(self, page: Any) -> list[Any]:
        """All items of a page when it is iterated over."""
        return list(page) if isinstance(page, Page) else [row async for row in page]


KINDS = {"Postroom": Postroom, "AsyncPostroom": AsyncPostroom}


async def make_client(kind: str, *args: Any, **kwargs: Any) -> AsyncIterator[AnyClient]:
    caller = AnyClient(KINDS[kind](*args, **kwargs))
    yield caller
    await caller.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("client")
    with running(folder / "data", POSTROOM_WEBHOOK_ALLOW="127.0.0.0/8") as started:
        yield started


@pytest.fixture(params=KINDS)
async def postroom(request: pytest.FixtureRequest, server: Running) -> AsyncIterator[AnyClient]:
    """The owner's client."""
    async for caller in make_client(request.param, server.url, server.key):
        yield caller


@pytest.fixture
async def inbox(postroom: AnyClient) -> Any:
    return await postroom.create_inbox(name="Bo")
