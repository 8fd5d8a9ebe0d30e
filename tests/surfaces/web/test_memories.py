"""Memories on the pages: lists, searches, versions, and isolation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from postroom.calls.authentication import authenticate
from postroom.calls.operation import call
from postroom.errors import NotFound
from postroom.model.memory import Memory
from postroom.operations.memories import memory_add, memory_get, memory_update
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

KEY = "ana/invoices & <more>"
PLACE = f"namespace=default&key={quote(KEY, safe='')}"


async def remember(installation: WebInstallation, **memory: Any) -> Memory:
    given = {"key": KEY, "text": "Ana wants invoices as PDF, before the 5th."}
    return await call(installation.owner, memory_add, {**given, **memory})


async def stored(installation: WebInstallation, key: str = KEY, **more: Any) -> Memory:
    return await call(installation.owner, memory_get, {"key": key, **more})


async def test_a_memory_is_added_read_and_deleted(
    installation: WebInstallation, owner: WebUser
) -> None:
    services = installation.app.services
    inbox = await new_inbox(services, "shop")
    message_id = (await deliver(services, inbox, mail("Invoice"))).message_id
    form = {
        "namespace": "shop",
        "key": KEY,
        "text": "PDF only.\n\nBefore the 5th.",
        "tags": "billing, ana",
        "links": f"from {message_id}\nabout ana@example.com\nsee other/key",
        "expires_at": "2027-01-31",
    }
    added = await owner.post("/memories/new", **form)
    page = await owner.read(added.headers["location"])
    said = words(page)
    again = await owner.post("/memories/new", **form)
    listed = words(await owner.read("/memories?namespace=shop&tag=billing"))
    asked = words(await owner.read(f"/memories/delete?namespace=shop&key={quote(KEY, safe='')}"))
    gone = await owner.post("/memories/delete", namespace="shop", key=KEY)

    assert "PDF only. Before the 5th." in said
    assert f'href="/mail/{message_id}"' in page
    assert 'href="/mail?mailbox=*&amp;from=ana%40example.com"' in page
    assert 'href="/memories/read?namespace=shop&amp;key=other%2Fkey"' in page
    assert "from mail" in said, "what is linked to mail is not confirmed by itself"
    assert "owner via web pages" in said
    assert "31 Jan 2027" in said
    assert 409 == again.status_code
    assert KEY in listed
    assert "Delete ana/invoices" in asked
    assert 303 == gone.status_code
    with pytest.raises(NotFound):
        await stored(installation, namespace="shop")


async def test_memories_are_found_by_meaning_and_by_words(
    installation: WebInstallation, owner: WebUser
) -> None:
    await remember(installation)
    await remember(installation, key="bo", text="Bo is on holiday in July.")

    by_words = words(await owner.read("/memories?q=pdf+invoices&how=words"))
    without = words(await owner.read("/memories?q=pdf+holiday&how=words"))
    by_meaning = words(await owner.read("/memories?q=how+to+bill+Ana"))
    bad = await owner.read("/memories?q=%22%22&how=words")

    assert (True, False) == (KEY in by_words, "holiday" in by_words)
    assert "No results" in without
    assert by_meaning.index(KEY) < by_meaning.find("Bo is on holiday") % len(by_meaning)
    assert "give at least one word" in words(bad)


async def test_an_edit_of_an_old_version_is_explained_and_can_be_saved_over(
    installation: WebInstallation, owner: WebUser
) -> None:
    await remember(installation, links=[{"type": "about", "to": "a@b.example", "weight": 0.5}])
    opened = await owner.read(f"/memories/edit?{PLACE}")
    await call(installation.owner, memory_update, {"key": KEY, "text": "Ana wants paper now."})
    form = {"namespace": "default", "key": KEY, "text": "Ana wants XML.", "tags": "",
            "summary": "", "links": "about a@b.example"}  # fmt: skip

    late = await owner.post("/memories/edit", version="1", **form)
    kept = await stored(installation)
    second = await owner.post("/memories/edit", version="2", **form)

    assert 'name="summary" maxlength="200" value=""' in opened
    assert 409 == late.status_code
    said = words(late.text)
    assert "it is at version 2, and you changed version 1" in said
    assert "Ana wants paper now." in said
    assert ">\nAna wants XML.</textarea>" in late.text
    assert 'name="version" value="2"' in late.text
    assert "Ana wants paper now." == kept.text
    assert 303 == second.status_code
    last = await stored(installation)
    assert ("Ana wants XML.", 3) == (last.text, last.version)
    assert 0.5 == last.links[0].weight
    assert "Ana wants XML." == last.summary


async def test_only_the_owner_can_confirm_a_memory(
    installation: WebInstallation, owner: WebUser
) -> None:
    key = await installation.key("read", "write")
    agent = replace(installation.owner, caller=await authenticate(installation.app.services, key))
    await call(agent, memory_add, {"key": "k", "text": "Learnt."})
    async with installation.new_user() as person:
        await person.sign_in(key=key)
        page = await person.read("/memories/read?key=k")
        refused = await person.post("/memories/confirm", key="k")

    confirmed = await owner.post("/memories/confirm", key="k")

    assert "by an agent" in words(page)
    assert "Confirm it is correct" not in page
    assert 403 == refused.status_code
    assert 303 == confirmed.status_code
    assert "user" == (await stored(installation, "k")).trust


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"text": ""}, "text"),
        ({"key": "search"}, "is reserved"),
        ({"key": ""}, "key"),
        ({"links": "ana@example.com"}, "write a kind and a target"),
        ({"links": "from msg_000000000000"}, "msg_000000000000"),
        ({"expires_at": "2001-01-01"}, "is in the past"),
        ({"tags": ",".join("abcdefghijklmnopqrstuvwxyz")}, "Tags: "),
        ({"text": "x" * 70_000}, "the limit is 65536"),
    ],
)
async def test_a_problem_with_a_memory_is_explained_and_the_input_kept(
    owner: WebUser, form: dict[str, str], reason: str
) -> None:
    usual = {"namespace": "default", "key": "k", "text": "t", "summary": "my line"}
    answer = await owner.post("/memories/new", **{**usual, **form})

    assert answer.status_code in (404, 413, 422)
    assert reason in words(answer.text)
    assert "my line" in answer.text


async def test_a_session_sees_the_namespaces_of_its_key_only(installation: WebInstallation) -> None:
    await remember(installation, namespace="shop")
    await remember(installation, namespace="hidden", text="A canary.")

    async def answers(person: WebUser) -> list[httpx2.Response]:
        place = f"namespace=hidden&key={quote(KEY, safe='')}"
        form = {"namespace": "hidden", "key": KEY, "text": "x", "version": "1"}
        return [
            *[await person.get(f"/memories/{page}?{place}") for page in ("read", "edit", "delete")],
            *[await person.post(f"/memories/{page}", **form) for page in ("edit", "delete", "new")],
        ]

    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", "write", namespaces=["shop"]))
        first = await person.read("/memories")
        hidden = await person.read("/memories?namespace=hidden")
        refused = await answers(person)

    assert "shop" in words(first)
    assert "canary" not in first + hidden
    assert "hidden" not in words(first.partition("<main")[2])
    assert {403, 404} >= {answer.status_code for answer in refused}
    assert not [answer for answer in refused if "canary" in answer.text]
    assert "A canary." == (await stored(installation, namespace="hidden")).text


async def test_a_reader_is_offered_no_change(installation: WebInstallation) -> None:
    await remember(installation)
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read"))
        page = await person.read(f"/memories/read?{PLACE}")
        added = await person.post("/memories/new", key="k", text="t")

    assert "Edit" not in words(page)
    assert "Written by" not in page
    assert 403 == added.status_code
