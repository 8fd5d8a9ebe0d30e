"""Two cells on two databases of one PostgreSQL, and a router in front of them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx2
import pytest

from tests.servers.cells import Cell, cells, routed
from tests.servers.nginx import DOMAIN, Nginx
from tests.servers.postgres import Postgres

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def two_cells(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: Postgres
) -> Iterator[list[Cell]]:
    databases = {name: postgres_server.new_database() for name in ("a", "b")}
    with cells(tmp_path_factory.mktemp("cells"), databases) as opened:
        yield opened


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory, two_cells: list[Cell]) -> Iterator[Nginx]:
    with routed(tmp_path_factory.mktemp("router"), two_cells) as running:
        yield running


def trust(router: Nginx) -> ssl.SSLContext:
    """A TLS context that trusts the router's certificate; its names resolve to this machine."""
    return ssl.create_default_context(cafile=str(router.tls.cert))


def router_client(
    router: Nginx, host: str = DOMAIN, *, address: str = "127.0.0.1", **headers: str
) -> httpx2.AsyncClient:
    """A client of the router under one of its names, with its own client address."""
    return httpx2.AsyncClient(
        base_url=router.url,
        headers={"Host": host, **headers},
        timeout=TIMEOUT_S,
        transport=httpx2.AsyncHTTPTransport(verify=trust(router), local_address=address),
    )


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
