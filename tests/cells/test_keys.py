"""A key gives access to its own cell only.

Wrong keys delay the requests after them, so these cells are used for nothing else.
"""

from __future__ import annotations

import asyncio
import itertools

import httpx2

from tests.cells.conftest import TIMEOUT_S, bearer, trust
from tests.servers.cells import Cell
from tests.servers.nginx import DOMAIN, Nginx

PREFIXES = ("pk_a_", "pk_b_", "pk_c_", "po_a_", "pk_", "", "pk_A_", "pk_a_b_", "a.")
AT_ONCE = 16
"""Responses to wrong keys are delayed, so several are tried concurrently."""


async def test_the_key_of_one_cell_is_refused_by_another(
    router: Nginx, two_cells: list[Cell]
) -> None:
    """Every combination of prefix, random part, path and header."""
    parts = [cell.key.removeprefix(f"pk_{cell.name}_") for cell in two_cells]
    secret = [p + part for p, part in itertools.product(PREFIXES, (*parts, parts[0][::-1]))]
    ways = [(router.url, DOMAIN, True), (router.url, DOMAIN, False)]
    ways += [(f"http://{cell.address}", cell.host, True) for cell in two_cells]
    limit = asyncio.Semaphore(AT_ONCE)
    async with httpx2.AsyncClient(timeout=TIMEOUT_S, verify=trust(router)) as client:

        async def opened(key: str, way: tuple[str, str, bool]) -> tuple[str, str] | None:
            url, host, is_bearer = way
            header = bearer(key) if is_bearer else {"X-API-Key": key}
            async with limit:
                answer = await client.get(f"{url}/v1/inboxes", headers={"Host": host, **header})
            if answer.status_code != 200:
                assert answer.status_code in (401, 429), answer.text
                return None
            [inbox] = answer.json()["results"]
            return key, inbox["address"]

        found = await asyncio.gather(*(opened(*mix) for mix in itertools.product(secret, ways)))

    assert {(cell.key, f"bo@{cell.domain}") for cell in two_cells} == {*found} - {None}
