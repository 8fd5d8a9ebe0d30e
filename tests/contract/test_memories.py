"""Memories are stored, versioned, read in parts and named by any key, on every surface."""

from __future__ import annotations

import pytest

from tests.contract.sample_memories import NOTES, keys
from tests.contract.surface_clients import CallRefused, SurfaceClient


async def test_adding_a_key_again_makes_a_version_and_keeps_the_index_whole(
    client: SurfaceClient, namespace: str
) -> None:
    async def found(word: str) -> list[str]:
        page = await client.call("memory_fulltext_search", keywords=word, namespace=namespace)
        return keys(page)

    first = await client.call("memory_add", key="k", text="Zebra crossing", namespace=namespace)
    second = await client.call(
        "memory_add", key="k", text="Giraffe house", tags=["zoo"], namespace=namespace
    )
    third = await client.call("memory_add", key="k", text="Giraffe house", namespace=namespace)

    assert [(True, 1), (False, 2), (False, 2)] == [
        (memory["created"], memory["version"]) for memory in (first, second, third)
    ]
    assert ["zoo"] == third["tags"]
    assert ([], ["k"], ["k"]) == (await found("zebra"), await found("giraffe"), await found("zoo"))
    await client.call("memory_delete", key="k", namespace=namespace)
    assert [] == await found("giraffe")
    with pytest.raises(CallRefused, match="no memory k"):
        await client.call("memory_get", key="k", namespace=namespace)


async def test_a_near_duplicate_is_reported(client: SurfaceClient, namespace: str) -> None:
    added = await client.call(
        "memory_add",
        key="again",
        text="Jonas carries an injection pen: he is allergic to peanuts!",
        namespace=namespace,
    )

    assert ["jonas"] == [similar["key"] for similar in added["similar"]]


async def test_a_memory_is_read_in_parts_with_its_history(
    client: SurfaceClient, namespace: str
) -> None:
    await client.call("memory_add", key="long", text="a" * 30_000, namespace=namespace)
    await client.call("memory_update", key="long", text="b" * 20_000, namespace=namespace)

    first = await client.call("memory_get", key="long", namespace=namespace, include_history=True)
    rest = await client.call(
        "memory_get", key="long", namespace=namespace, text_offset=first["next_offset"]
    )

    assert "b" * 20_000 == first["text"] + rest["text"]
    assert (True, 20_000) == (first["truncated"], first["total_chars"])
    assert [1] == [old["version"] for old in first["history"]]


@pytest.mark.parametrize("size", [65_536, 65_537])
async def test_a_text_may_have_64_kb(client: SurfaceClient, namespace: str, size: int) -> None:
    text = "ü" * (size // 2) + "x" * (size % 2)
    if size > 65_536:
        with pytest.raises(CallRefused, match="the limit is 65536") as refused:
            await client.call("memory_add", key="big", text=text, namespace=namespace)
        assert "too_large" == refused.value.kind
    else:
        added = await client.call("memory_add", key="big", text=text, namespace=namespace)
        assert added["created"]


@pytest.mark.parametrize("key", ["a/b c", "ä%2F?#&", "...", "x" * 256, "北京"])
async def test_any_key_can_be_named_in_a_path(
    client: SurfaceClient, namespace: str, key: str
) -> None:
    await client.call("memory_add", key=key, text="Something.", namespace=namespace)

    read = await client.call("memory_get", key=key, namespace=namespace)
    changed = await client.call("memory_update", key=key, text="Else.", namespace=namespace)
    gone = await client.call("memory_delete", key=key, namespace=namespace)

    assert [key] * 3 == [answer["key"] for answer in (read, changed, gone)]


@pytest.mark.parametrize("past", ["2001-01-31", "2026-01-31T09:30:00+01:00"])
async def test_an_expiry_in_the_past_is_refused(
    client: SurfaceClient, namespace: str, past: str
) -> None:
    for tool, key in (("memory_add", "new"), ("memory_add", "jonas"), ("memory_update", "jonas")):
        with pytest.raises(
            CallRefused, match="expires_at: is in the past; give a future time"
        ) as no:
            await client.call(tool, key=key, text="T.", expires_at=past, namespace=namespace)
        assert "invalid" in no.value.kind

    kept = await client.call("memory_get", key="jonas", namespace=namespace)
    assert NOTES["jonas"] == kept["text"]
    with pytest.raises(CallRefused):
        await client.call("memory_get", key="new", namespace=namespace)
