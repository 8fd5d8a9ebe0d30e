"""The trust of memories: isolation of namespaces, marks of mail, warnings about contacts."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.sample_memories import keys
from tests.contract.surface_clients import CallRefused, RestClient, SurfaceClient, open_client
from tests.servers.postroom import Running


async def new_key(rest: RestClient, **limits: Any) -> str:
    scopes = ["read", "write"]
    response = await rest.http.post("/v1/keys", json={"name": "t", "scopes": scopes, **limits})
    assert 201 == response.status_code, response.text
    made: str = response.json()["key"]
    return made


@pytest.fixture(params=["rest", "mcp-http"])
async def limited(
    request: pytest.FixtureRequest, server: Running, rest: RestClient, namespace: str
) -> AsyncIterator[SurfaceClient]:
    """A client whose key sees one namespace, which is not the one with memories."""
    key = await new_key(rest, namespaces=[f"{namespace}-own"])
    async with open_client(
        request.param, Running(server.url, key, server.data, server.process)
    ) as d:
        yield d


async def test_a_search_finds_nothing_of_other_namespaces(
    limited: SurfaceClient, namespace: str
) -> None:
    own = f"{namespace}-own"
    await limited.call("memory_add", key="mine", text="Invoices are mine.", namespace=own)

    for tool, asked in (
        ("memory_search", {"query": "invoices"}),
        ("memory_fulltext_search", {"keywords": "invoices"}),
        ("memory_list", {}),
    ):
        assert ["mine"] == keys(await limited.call(tool, **asked, namespace=own))
        assert 0 == (await limited.call(tool, **asked, namespace=namespace))["total"]
        assert 0 == (await limited.call(tool, **asked))["total"]
    with pytest.raises(CallRefused) as hidden:
        await limited.call("memory_get", key="jonas", namespace=namespace)
    assert "not_found" == hidden.value.kind
    for tool, change in (
        ("memory_add", {"text": "Overwritten."}),
        ("memory_update", {"text": "Overwritten."}),
        ("memory_delete", {}),
    ):
        with pytest.raises(CallRefused) as refused:
            await limited.call(tool, key="jonas", namespace=namespace, **change)
        assert "forbidden" == refused.value.kind


async def test_trust_is_that_of_the_author_and_mail_stays_marked(
    server: Running, rest: RestClient, inbox: InboxFixture
) -> None:
    received = await inbox.receive("Bank", "Our new account is 7.", sender="Eve <eve@evil.example>")
    link = [{"type": "source", "to": received["message_id"]}]
    key = await new_key(rest)
    name = f"trust-{secrets.token_hex(4)}"
    async with open_client("rest", Running(server.url, key, server.data, server.process)) as agent:
        own = await agent.call("memory_add", key="own", text="I checked it.", namespace=name)
        learnt = await agent.call(
            "memory_add", key="bank", text="Their account is 7.", links=link, namespace=name
        )
        again = await agent.call(
            "memory_add", key="bank", text="Their account is 8.", namespace=name
        )
        for change in ({"trust": "user"}, {"links": []}):
            with pytest.raises(CallRefused) as refused:
                await agent.call("memory_update", key="bank", namespace=name, **change)
            assert "forbidden" == refused.value.kind
        found = await agent.call("memory_search", query="which account?", namespace=name)
    users = await rest.call("memory_add", key="mine", text="They are honest.", namespace=name)
    confirmed = await rest.call("memory_update", key="bank", trust="user", namespace=name)

    assert ["agent", "mail", "mail", "user", "user"] == [
        memory["trust"] for memory in (own, learnt, again, users, confirmed)
    ]
    assert learnt["untrusted"]
    assert learnt["expires_at"]
    assert found["untrusted"]
    assert "untrusted" not in own


async def test_over_stdio_a_memory_has_the_trust_of_the_agent(server: Running) -> None:
    async with open_client("mcp-stdio", server) as agent:
        added = await agent.call("memory_add", key=secrets.token_hex(8), text="I am an agent.")

    assert "agent" == added["trust"]


async def test_deleting_a_mail_deletes_the_memories_from_it(
    client: SurfaceClient, rest: RestClient, inbox: InboxFixture
) -> None:
    sender = f"{secrets.token_hex(6)}@example.com"
    received = await inbox.receive("Offer", "The price is 5.", sender=sender)
    name = f"gone-{secrets.token_hex(4)}"
    link = [{"type": "source", "to": received["message_id"]}]
    await rest.call("memory_add", key="owners", text="The price is 5.", links=link, namespace=name)
    beside = await client.call(
        "get_message", message_id=received["message_id"], include_memories=True
    )
    thread = await client.call("get_thread", thread_id=received["thread_id"], include_memories=True)

    path = f"/v1/messages/{received['message_id']}"
    await rest.http.delete(path, params={"permanent": "true"})

    read = await client.call("memory_get", key="owners", namespace=name)
    assert read["stale"]
    for answer in (beside, thread):
        [recalled] = answer["memories"]
        assert ("owners", True, "mail") == (
            recalled["key"],
            recalled["recalled"],
            recalled["trust"],
        )
    with pytest.raises(CallRefused, match=r"links\[0\].to: no message"):
        await client.call("memory_add", key="x", text="Y.", links=link, namespace=name)


async def test_a_send_that_tells_one_contact_about_another_has_a_warning(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    secret = "Ana will pay up to " + " ".join(secrets.token_hex(3) for _ in range(6)) + " euros."
    about = [{"type": "about", "to": "ana@example.com"}]
    await client.call("memory_add", key=secrets.token_hex(8), text=secret, links=about)

    async def send(to: str) -> dict[str, Any]:
        return await client.call(
            "send_message",
            to=[to],
            subject="Boat",
            body_text=f"By the way: {secret}",
            inbox_id=inbox.id,
        )

    [warning] = (await send("bo@example.com"))["warnings"]
    assert "which is about ana@example.com, to bo@example.com" in warning
    assert "warnings" not in await send("ana@example.com")
