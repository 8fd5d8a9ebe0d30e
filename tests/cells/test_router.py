"""The router passes each request to the cell of its key, session or host name."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from functools import partial
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cells.conftest import TIMEOUT_S, bearer, router_client
from tests.mails import mail
from tests.servers.cells import Cell
from tests.servers.nginx import DOMAIN, Nginx
from tests.surfaces.cli.pseudo_terminal import on_a_terminal


async def test_a_request_is_routed_by_its_key_in_either_header(
    router: Nginx, two_cells: list[Cell]
) -> None:
    async with router_client(router) as client:
        for cell in two_cells:
            for headers in (bearer(cell.key), {"X-API-Key": cell.key}):
                answer = await client.get("/v1/inboxes", headers=headers)

                [inbox] = answer.json()["results"]
                assert f"bo@{cell.domain}" == inbox["address"]


async def test_a_request_is_routed_by_its_host_name(router: Nginx, two_cells: list[Cell]) -> None:
    for cell in two_cells:
        async with router_client(router, cell.host) as client:
            health = (await client.get("/healthz")).json()
            metadata = (await client.get("/.well-known/oauth-protected-resource/mcp")).json()

            assert {"status": "ok", "cell": cell.name} == health
            assert f"https://{cell.host}/mcp" == metadata["resource"]


async def test_a_request_that_names_no_cell_is_refused_by_the_router(router: Nginx) -> None:
    old, foreign = f"pk_{secrets.token_urlsafe(32)}", f"pk_zz_{secrets.token_urlsafe(32)}"
    for headers in ({}, bearer(old), bearer(foreign), {"Host": f"zz.{DOMAIN}"}):
        async with router_client(router) as client:
            answer = await client.get("/v1/inboxes", headers=headers)

            assert (401, "application/problem+json", "unauthenticated") == said(answer)
            assert 'Bearer realm="postroom"' == answer.headers["www-authenticate"]


def said(answer: httpx2.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.headers["content-type"], answer.json()["code"]


async def test_a_key_at_the_host_of_another_cell_is_refused_with_its_cell(
    router: Nginx, two_cells: list[Cell]
) -> None:
    first, second = two_cells
    async with router_client(router, second.host) as client:
        answer = await client.get("/v1/inboxes", headers=bearer(first.key))

    assert 401 == answer.status_code
    assert "belongs to cell a, and this is cell b" in answer.json()["detail"]


async def test_wrong_keys_of_one_client_do_not_delay_another(
    router: Nginx, two_cells: list[Cell]
) -> None:
    cell = two_cells[0]

    async def guess(client: httpx2.AsyncClient, number: int) -> int:
        return (await client.get("/v1/inboxes", headers=bearer(f"wrong {number}"))).status_code

    async with (
        router_client(router, cell.host, address="127.0.0.2") as guesser,
        router_client(router, cell.host, address="127.0.0.3") as other,
    ):
        guessed = await asyncio.gather(*(guess(guesser, number) for number in range(40)))
        answers = [await guess(other, number) for number in range(100, 105)]

    assert 429 in guessed
    assert [401] * 5 == answers


async def test_mcp_works_through_the_router(router: Nginx, two_cells: list[Cell]) -> None:
    for cell in two_cells:
        async with (
            router_client(router, **bearer(cell.key)) as http,
            Client(streamable_http_client(f"{router.url}/mcp", http_client=http)) as client,
        ):
            found = await client.call_tool("list_inboxes", {})

        assert f"bo@{cell.domain}" in json.dumps(found.structured_content)


async def test_an_event_arrives_through_the_router_while_the_stream_is_open(
    router: Nginx, two_cells: list[Cell]
) -> None:
    cell = two_cells[1]
    async with (
        router_client(router, **bearer(cell.key)) as client,
        client.stream("GET", "/v1/events/stream") as stream,
        asyncio.timeout(TIMEOUT_S),
    ):
        lines = stream.aiter_lines()
        await anext(lines)
        await deliver(client, cell, "As it happens")
        event = await until(lines, "message.received")

    assert "As it happens" == event["data"]["subject"]


async def deliver(client: httpx2.AsyncClient, cell: Cell, subject: str, **parts: Any) -> None:
    answer = await client.post(
        f"/v1/inbound?recipient=bo@{cell.domain}",
        content=mail(subject, **parts),
        headers={"Content-Type": "message/rfc822"},
    )
    assert 201 == answer.status_code, answer.text


async def until(lines: Any, kind: str) -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data:"):
            event: dict[str, Any] = json.loads(line.removeprefix("data:"))
            if event["type"] == kind:
                return event
    raise AssertionError("the stream ended")


async def test_a_large_mail_passes_the_router(router: Nginx, two_cells: list[Cell]) -> None:
    cell = two_cells[0]
    async with router_client(router, **bearer(cell.key)) as client:
        await deliver(client, cell, "Large", text="a line of the text\n" * 1_000_000)
        found = await client.get("/v1/search/messages?q=Large")

    assert 1 == found.json()["total"]


async def test_a_person_signs_in_under_the_name_of_the_cell(
    router: Nginx, two_cells: list[Cell]
) -> None:
    cell = two_cells[0]
    settings = {name: value for name, value in cell.env.items() if name.startswith("POSTROOM_")}
    shown = await asyncio.to_thread(partial(on_a_terminal, cell.data, "web", **settings))
    link = re.search(rf"https://{re.escape(cell.host)}/signin\?link=([\w.-]+)", shown)
    assert link is not None, shown
    async with router_client(router, cell.host, Origin=f"https://{cell.host}") as client:
        entered = await client.post("/signin", data={"link": link[1], "next": "/"})
        cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
        page = await client.get("/keys", headers=cookie)
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        left = await client.post("/signout", data={"csrf": token[1]}, headers=cookie)
        after = await client.get("/keys", headers=cookie)

    assert link[1].startswith(f"{cell.name}.")
    assert re.fullmatch(rf"__Host-postroom={cell.name}\.[\w-]{{43}}", cookie["Cookie"])
    assert (200, 303, 303) == (page.status_code, left.status_code, after.status_code)
    assert after.headers["location"].startswith("/signin")


async def test_a_cell_that_is_down_is_reported_and_the_other_works(
    router: Nginx, two_cells: list[Cell]
) -> None:
    first, second = two_cells
    second.kill()
    async with router_client(router) as client:
        down = await client.get("/v1/inboxes", headers=bearer(second.key))
        up = await client.get("/v1/inboxes", headers=bearer(first.key))
        second.start()
        back = await client.get("/v1/inboxes", headers=bearer(second.key))

    assert (503, "application/problem+json", "unavailable") == said(down)
    assert "2" == down.headers["retry-after"]
    assert (200, 200) == (up.status_code, back.status_code)
