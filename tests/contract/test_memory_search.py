"""Contract 003: memories are found by meaning and by keywords, over REST and MCP alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import InboxFixture
from tests.contract.requirements import requirement
from tests.contract.sample_memories import NOTES, keys
from tests.contract.surface_clients import (
    CallRefused,
    McpClient,
    RestClient,
    SurfaceClient,
    open_client,
)
from tests.servers.postroom import Running, running


@requirement("memory:search-tool")
async def test_a_question_finds_its_answers_best_first(
    client: SurfaceClient, namespace: str
) -> None:
    page = await client.call(
        "memory_search", query="When is the Portuguese office shut?", namespace=namespace
    )

    assert "lisbon" == keys(page)[0]
    first = page["results"][0]
    assert NOTES["lisbon"] == first["summary"] == first["excerpt"]
    relevances = [row["relevance"] for row in page["results"]]
    assert relevances == sorted(relevances, reverse=True)
    assert all(0 < row["relevance"] <= 1 for row in page["results"])
    assert all(row["score"] == row["relevance"] for row in page["results"])


@requirement("memory:search-tool")
async def test_limit_and_offset_choose_the_page(client: SurfaceClient, namespace: str) -> None:
    for number in range(5):
        await client.call(
            "memory_add", key=f"n{number}", text=f"Note {number}", namespace=namespace
        )

    whole = await client.call("memory_search", query="note", namespace=namespace)
    part = await client.call("memory_search", query="note", namespace=namespace, limit=2, offset=1)
    beyond = await client.call("memory_search", query="note", namespace=namespace, offset=500)

    assert keys(whole)[1:3] == keys(part)
    assert (2, 1, whole["total"], True) == (
        part["count"],
        part["offset"],
        part["total"],
        part["has_more"],
    )
    assert (0, whole["total"], False) == (beyond["count"], beyond["total"], beyond["has_more"])


@requirement("memory:fulltext-tool")
async def test_keywords_are_combined_and_highlighted(client: SurfaceClient, namespace: str) -> None:
    async def find(**arguments: Any) -> dict[str, Any]:
        return await client.call("memory_fulltext_search", namespace=namespace, **arguments)

    assert {"brightwell", "jonas"} == set(keys(await find(keywords="invoice, peanuts")))
    assert {"brightwell", "jonas"} == set(
        keys(await find(keywords="invoice,peanut", operator="OR"))
    )
    assert [] == keys(await find(keywords="invoice,peanuts", operator="AND"))
    assert ["brightwell"] == keys(await find(keywords="orders,purchase", operator="AND"))
    assert ["brightwell"] == keys(await find(keywords='"purchase order"'))
    assert [] == keys(await find(keywords='"order purchase"'))
    [hit] = (await find(keywords="invoice"))["results"]
    assert hit["excerpt"].startswith("<mark>Invoices</mark> from Brightwell")


@requirement("memory:fulltext-tool")
async def test_text_beside_keywords_is_escaped(client: SurfaceClient, namespace: str) -> None:
    text = "<script>alert(1)</script> & <mark>pay</mark> me"
    await client.call("memory_add", key="html", text=text, namespace=namespace)

    page = await client.call("memory_fulltext_search", keywords="pay", namespace=namespace)

    assert [
        "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;mark&gt;<mark>pay</mark>&lt;/mark&gt; me"
    ] == [row["excerpt"] for row in page["results"]]


@pytest.mark.parametrize(
    ("keyword", "key"),
    [("天气", "天气"), ("会議", "会議"), ("京", None), ("phones", "marta/calls")],
)
async def test_chinese_japanese_and_stemmed_english_are_found(
    client: SurfaceClient, namespace: str, keyword: str, key: str | None
) -> None:
    page = await client.call("memory_fulltext_search", keywords=keyword, namespace=namespace)
    asked = await client.call("memory_search", query=keyword, namespace=namespace)

    assert ({"天气", "会議"} if key is None else {key}) == set(keys(page))
    assert key is None or key == keys(asked)[0]


@requirement("memory:validation")
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("memory_search", {}, "query: is required"),
        ("memory_search", {"query": ""}, "query: "),
        ("memory_search", {"query": "  "}, "only white space"),
        ("memory_search", {"query": "x", "limit": 0}, "limit: "),
        ("memory_search", {"query": "x", "limit": 101}, "limit: "),
        ("memory_search", {"query": "x", "offset": -1}, "offset: "),
        ("memory_search", {"query": "x", "limt": 3}, "did you mean limit?"),
        ("memory_search", {"query": "x" * 1001}, "query: "),
        ("memory_fulltext_search", {}, "keywords: is required"),
        ("memory_fulltext_search", {"keywords": ""}, "keywords: "),
        ("memory_fulltext_search", {"keywords": " , "}, "at least one word"),
        ("memory_fulltext_search", {"keywords": "x", "operator": "XOR"}, "'OR' or 'AND'"),
        ("memory_add", {"key": "k"}, "text: is required"),
        ("memory_add", {"key": "search", "text": "x"}, "search is reserved"),
        ("memory_add", {"key": "..", "text": "x"}, ".. is reserved"),
        ("memory_add", {"key": "k" * 257, "text": "x"}, "key: "),
        ("memory_add", {"key": "a\nb", "text": "x"}, "key: "),
        ("memory_add", {"key": "k", "text": "x", "namespace": ""}, "namespace: "),
        ("memory_update", {"key": "k"}, "give something to change"),
    ],
)
async def test_wrong_parameters_are_explained(
    client: SurfaceClient, tool: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(CallRefused) as refused:
        await client.call(tool, **arguments)

    assert "invalid_input" == refused.value.kind
    assert words in str(refused.value)


@requirement("memory:output")
async def test_results_are_pages_like_every_list(client: SurfaceClient, namespace: str) -> None:
    listed = await client.call("memory_list", namespace=namespace)
    searched = await client.call("memory_search", query="invoice", namespace=namespace)
    found = await client.call("memory_fulltext_search", keywords="invoice", namespace=namespace)

    names = ["results", "count", "total", "total_count", "limit", "offset", "has_more"]
    assert names == list(listed) == list(searched) == list(found)
    shared = {"namespace", "key", "summary", "tags", "trust", "updated_at"}
    assert all(shared <= set(page["results"][0]) for page in (listed, searched, found))


@requirement("memory:registration")
@requirement("memory:schema")
async def test_both_tools_are_listed_with_all_parameters_explained(mcp_client: McpClient) -> None:
    listed = {tool.name: tool for tool in (await mcp_client.client.list_tools()).tools}

    for name in ("memory_search", "memory_fulltext_search"):
        schema = listed[name].input_schema
        assert "object" == schema["type"]
        assert all(p["description"] and p["examples"] for p in schema["properties"].values())
    assert ["query"] == listed["memory_search"].input_schema["required"]
    fulltext = listed["memory_fulltext_search"].input_schema["properties"]
    assert ("string", ["OR", "AND"]) == (fulltext["keywords"]["type"], fulltext["operator"]["enum"])


@requirement("memory:compatibility")
async def test_a_tool_returns_what_its_endpoint_returns(
    rest: RestClient, mcp_client: SurfaceClient, namespace: str
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_search", {"query": "who must not eat nuts?"}),
        ("memory_search", {"query": "天气", "limit": 1}),
        ("memory_fulltext_search", {"keywords": "lunch, 会議"}),
        ("memory_fulltext_search", {"keywords": "must,show", "operator": "AND"}),
        ("memory_list", {"limit": 2}),
        ("memory_get", {"key": "marta/calls"}),
    ]

    for tool, arguments in calls:
        named = {**arguments, "namespace": namespace}
        assert await rest.call(tool, **named) == await mcp_client.call(tool, **named)


async def test_keywords_may_be_a_list(
    mcp_client: SurfaceClient, rest: RestClient, namespace: str
) -> None:
    for some in (mcp_client, rest):
        page = await some.call(
            "memory_fulltext_search", keywords=["purchase order", "peanuts"], namespace=namespace
        )
        assert {"brightwell", "jonas"} == set(keys(page))


@pytest.mark.parametrize("keywords", ["", [], [""], "-"])
async def test_no_keywords_are_refused_in_plain_words(
    mcp_client: SurfaceClient, namespace: str, keywords: Any
) -> None:
    with pytest.raises(
        CallRefused, match='keywords: give at least one word, such as invoice or "net'
    ):
        await mcp_client.call("memory_fulltext_search", keywords=keywords, namespace=namespace)


async def test_too_many_keywords_are_refused(client: SurfaceClient, namespace: str) -> None:
    """To pass over some would make AND a lie."""
    common = ",".join(["order", "purchase"] * 50)
    page = await client.call(
        "memory_fulltext_search", keywords=common, operator="AND", namespace=namespace
    )
    assert ["brightwell"] == keys(page)

    many = ",".join(f"w{number}" for number in range(65))
    with pytest.raises(CallRefused, match="keywords: there are 65; the limit is 64") as refused:
        await client.call("memory_fulltext_search", keywords=many, namespace=namespace)
    assert "invalid_input" == refused.value.kind


@pytest.mark.parametrize("keywords", ["天气，peanuts", "天气、peanuts", "天气، peanuts"])
async def test_the_commas_of_other_scripts_are_commas(
    client: SurfaceClient, namespace: str, keywords: str
) -> None:
    page = await client.call("memory_fulltext_search", keywords=keywords, namespace=namespace)

    assert {"天气", "jonas"} == set(keys(page))


async def test_a_weight_may_be_written_as_text(
    mcp_client: SurfaceClient, rest: RestClient, namespace: str
) -> None:
    for some in (mcp_client, rest):
        links = [{"type": "about", "to": "ana@example.com", "weight": "0.5"}]
        await some.call("memory_add", key="weight", text="X.", links=links, namespace=namespace)
        read = await some.call("memory_get", key="weight", namespace=namespace)
        assert [0.5] == [link["weight"] for link in read["links"]]
        for wrong in ("1.5", "half", "1e999", True):
            links[0]["weight"] = wrong
            with pytest.raises(CallRefused, match="weight"):
                await some.call("memory_add", key="w", text="X.", links=links, namespace=namespace)


async def test_mail_is_searched_by_meaning_when_asked(
    client: SurfaceClient, inbox: InboxFixture
) -> None:
    right = await inbox.receive("Travel", "The branch in Lisbon closes on the 24th of December.")
    await inbox.receive("Lunch", "Shall we have soup or salad?")
    question = "When is the Portuguese office shut?"

    exact = await client.call("search_messages", q=question, inbox_id=inbox.id)
    page = await client.call("search_messages", q=question, inbox_id=inbox.id, mode="hybrid")

    assert 0 == exact["total"]
    assert right["message_id"] == page["results"][0]["id"]
    assert 0 < page["results"][0]["relevance"] <= 1
    assert page["results"][0]["excerpt"].startswith("The branch in Lisbon")
    with pytest.raises(CallRefused, match="mode hybrid needs q"):
        await client.call("search_messages", inbox_id=inbox.id, mode="hybrid")


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data: Path = tmp_path_factory.mktemp("silent") / "data"
    with running(data, POSTROOM_MEMORY_SEARCH="false") as started:
        yield started


async def test_disabled_search_has_no_tools_and_its_endpoints_say_why(
    silent: Running,
) -> None:
    async with open_client("mcp-http", silent) as mcp_client, open_client("rest", silent) as rest:
        assert isinstance(mcp_client, McpClient)
        names = {tool.name for tool in (await mcp_client.client.list_tools()).tools}
        await mcp_client.call("memory_add", key="k", text="Still kept.")
        refusals = []
        for tool, asked in (
            ("memory_search", {"query": "x"}),
            ("memory_fulltext_search", {"keywords": "x"}),
        ):
            with pytest.raises(CallRefused) as refused:
                await rest.call(tool, **asked)
            refusals.append((refused.value.kind, "POSTROOM_MEMORY_SEARCH" in str(refused.value)))

    assert {"memory_search", "memory_fulltext_search"}.isdisjoint(names)
    assert {"memory_add", "memory_list"} <= names
    assert [("feature_disabled", True)] * 2 == refusals
