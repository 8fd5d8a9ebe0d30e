"""Cells: installations with their own database, SMTP listener and keys, behind one router."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.server_under_test import ServerUnderTest
from tests.servers.nginx import DOMAIN, Nginx, nginx

UNLIMITED = {
    "POSTROOM_LIMIT_REQUESTS_PER_SECOND": "50000",
    "POSTROOM_LIMIT_SENDS_PER_HOUR": "100000",
    "POSTROOM_LIMIT_DOMAIN_SENDS_PER_HOUR": "100000",
}


class Cell(ServerUnderTest):
    """A named Postroom that can be killed and started again."""

    def __init__(
        self, folder: Path, name: str, database_url: str, defect: str = "none", **extra: str
    ) -> None:
        settings = {
            "POSTROOM_DATABASE_URL": database_url,
            "POSTROOM_DATABASE_PATIENCE_S": "2",
            "POSTROOM_CELL": name,
            "POSTROOM_DOMAIN": f"{name}.example",
            "POSTROOM_PUBLIC_URL": f"https://{name}.{DOMAIN}",
            "POSTROOM_TRUSTED_PROXIES": "127.0.0.1",
            **UNLIMITED,
        }
        super().__init__(folder / name, defect, **{**settings, **extra})
        self.name, self.host, self.domain = name, f"{name}.{DOMAIN}", f"{name}.example"
        self.key = f"pk_{name}_{secrets.token_urlsafe(32)}"
        self.set("POSTROOM_API_KEY", self.key)

    def use_database(self, url: str) -> None:
        """Use another database from the next start on."""
        self._database = url
        self.set("POSTROOM_DATABASE_URL", url)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def introduce(cells: Sequence[Cell]) -> None:
    """Configure the addresses of the other cells; effective from the next start."""
    for cell in cells:
        others = (other for other in cells if other is not cell)
        relays = ",".join(f"{other.domain}=smtp://127.0.0.1:{other.smtp}" for other in others)
        cell.set("POSTROOM_CELL_RELAYS", relays)


@contextmanager
def cells(
    folder: Path, databases: Mapping[str, str], defect: str = "none", **extra: str
) -> Iterator[list[Cell]]:
    """Start a cell on each database with an inbox `bo`; each knows the others."""
    opened = [Cell(folder, name, url, defect, **extra) for name, url in databases.items()]
    introduce(opened)
    with ExitStack() as closing:
        for cell in opened:
            closing.callback(cell.close)
            cell.start()
            cell.ask("POST", "/v1/inboxes", {"username": "bo"})
        yield opened


@contextmanager
def routed(folder: Path, opened: Sequence[Cell]) -> Iterator[Nginx]:
    """Run a router in front of these cells."""
    addresses = {cell.name: cell.address for cell in opened}
    with nginx(folder, addresses) as router:
        yield router
