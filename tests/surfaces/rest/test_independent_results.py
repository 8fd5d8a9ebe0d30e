"""Mail of others does not change any answer: identical mail gives identical bytes."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from postroom.app import open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.operations.inboxes import delete_inbox
from postroom.operations.mail.message_changes import delete_message
from postroom.operations.mail.messages import search_messages
from postroom.pipeline.maintenance import embed_pending
from postroom.store.ranking import index, scoring, searchers, vectors
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.rest.conftest import rest_client

WORDS = ["ana", "tea", "coffee", "invoice", "budget", "oslo", "paid", "contract", "zebra"]
START = datetime(2026, 3, 1, tzinfo=UTC)
OWN = 10


PARTS = 64


class WordVectors:
    """An embedder with one dimension per word; a text is the sum of its words."""

    model = "directions"

    async def embed(self, texts):
        return [struct.pack(f"<{PARTS}f", *summed(text.split())) for text in texts]

    async def close(self):
        pass


def summed(words):
    directions = [random.Random(word) for word in words]
    return [sum(direction.gauss(0, 1) for direction in directions) for _ in range(PARTS)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Lower limits, so that compaction, displacement and sketches happen with little mail."""
    monkeypatch.setattr(index, "BUFFERED_DOCUMENTS", 4)
    monkeypatch.setattr(index, "MAX_TOMBSTONES", 6)
    monkeypatch.setattr(vectors, "_EXHAUSTIVE", 15)
    monkeypatch.setattr(vectors, "_COMPARED", 8)
    monkeypatch.setattr(scoring, "_BEST_BY_TERMS", 6)
    for module in (index, searchers):
        monkeypatch.setattr(module, "MAX_MAIL", OWN + 2)
    monkeypatch.setattr(index, "CHECK_EVERY", 1)


def a_mail(chance, number):
    subject, *text = (" ".join(chance.choices(WORDS, k=chance.randint(1, 5))) for _ in range(3))
    sender = f"{chance.choice(WORDS)} <{chance.choice(WORDS)}@example.com>"
    if number % 3 == 0:
        subject, text, sender = "tea invoice", ["oslo"], "ana@example.com"
    file = (f"{chance.choice(WORDS)}.pdf", "application/pdf", b"x" * chance.randint(1, 50))
    return mail(
        subject,
        "\n".join(text),
        sender=sender,
        message_id=f"<own{number}@example.com>",
        date=START + timedelta(minutes=chance.randint(0, 5)),
        attachments=[file] if chance.random() < 0.3 else (),
    )


async def nothing(ctx, other, turn):
    """No other tenant."""


async def same_words(ctx, other, turn):
    """Others have much more mail with the same words."""
    for number in range(4):
        text = " ".join([WORDS[turn % len(WORDS)]] * (1 + 60 * (number % 2)))
        await deliver(ctx, other, mail(f"invoice {WORDS[number]}", text, sender="ana@example.com"))


async def flood(ctx, other, turn):
    """Others have more mail than is ranked, newer and older than ours."""
    for number in range(12 if turn in (0, 5) else 3):
        when = START + timedelta(days=(-1) ** number * turn)
        await deliver(ctx, other, mail("tea", "zebra " * number, date=when))


async def removals(ctx, other, turn):
    """Others remove mail, and their searches rebuild the collection."""
    added = [await deliver(ctx, other, mail("paid budget", "oslo tea")) for _ in range(8)]
    await call(ctx, search_messages, {"q": "tea", "mode": "hybrid", "inbox_id": other.id})
    while await embed_pending(ctx):
        pass
    for one in added[turn % 2 :]:
        gone = {"message_id": one.message_id, "permanent": True}
        await call(ctx, delete_message, gone)


OTHERS: list[Callable] = [same_words, flood, removals]

HYBRID = [
    {"q": text, "mode": "hybrid", **more}
    for text, more in [
        ("invoice", {}),
        ("zebra tea", {}),
        ("ana paid the coffee budget", {"limit": 2}),
        ("oslo contract", {"limit": 1}),
        ("invoice zebra zebra zebra", {"limit": 3}),
        ("tea", {"has_attachment": True}),
        ("tea", {"inbox_id": "INBOX", "limit": 4}),
    ]
]
QUESTIONS = [
    ("/v1/inboxes", {}),
    ("/v1/messages", {"inbox_id": "INBOX", "limit": 3}),
    ("/v1/search/messages", {"q": "tea", "limit": 2}),
    ("/v1/search/messages", {"q": "a t", "limit": 2}),
    ("/v1/search/messages", {"from": "ana@", "limit": 2}),
    ("/v1/search/messages", {"from": "@example.com", "mailbox": "*"}),
    *(("/v1/search/messages", query) for query in HYBRID),
    ("/v1/threads", {"inbox_id": "INBOX", "limit": 2}),
    ("/v1/attachments", {"inbox_id": "INBOX", "limit": 1}),
    ("/v1/labels", {}),
    ("/v1/events", {"limit": 4}),
    ("/v1/identities", {}),
    ("/v1/rules", {}),
    ("/v1/audit", {}),
    ("/v1/memories", {"namespace": "mine", "limit": 2}),
    ("/v1/memories/search", {"namespace": "mine", "query": "zebra invoice of ana", "limit": 2}),
    ("/v1/memories/search", {"namespace": "mine", "query": "tea", "limit": 2}),
    ("/v1/memories/fulltext", {"namespace": "mine", "keywords": "tea, oslo", "limit": 2}),
    ("/v1/memories/fulltext", {"namespace": "mine", "keywords": '"paid tea"', "limit": 2}),
]


@asynccontextmanager
async def services(folder, database):
    given = {"POSTROOM_DATA_DIR": str(folder), **database}
    async with open_app(read_settings(given).settings) as app:
        yield replace(app, services=replace(app.services, embedder=WordVectors()))


async def answers(folder, database, seed, others):
    """All answers for a limited key, with its own mail and that of others."""
    async with services(folder, database) as app:
        ctx = app.context(OWNER)
        chance = random.Random(seed)
        other, inbox = await new_inbox(ctx, "other"), await new_inbox(ctx)
        async with rest_client(app, await app.owner_key() or "") as owner:
            limits = {"inboxes": [inbox.id], "namespaces": ["mine"]}
            made = await owner.post("/v1/keys", name="k", scopes=["read", "admin"], **limits)
            for turn in range(OWN):
                await others(ctx, other, turn)
                await deliver(ctx, inbox, a_mail(chance, turn))
                text = " ".join(chance.choices(WORDS, k=4))
                await owner.post("/v1/memories", namespace="mine", key=f"m{turn}", text=text)
                if others is not nothing:
                    theirs = {"namespace": "theirs", "key": f"t{turn}", "text": "tea zebra oslo"}
                    await owner.post("/v1/memories", **theirs)
            if others is not nothing:
                query = {"q": "tea zebra", "mode": "hybrid", "inbox_id": other.id}
                await owner.get("/v1/search/messages", **query)
            await others(ctx, other, OWN)
        async with rest_client(app, made["key"]) as limited:
            told = {
                (path, json.dumps(query)): await walked(limited, path, query, inbox.id)
                for path, query in QUESTIONS
            }
            return {**told, ("each message", ""): await each_message(limited, inbox.id)}


async def each_message(rest, inbox_id):
    names, told = {}, []
    page = await rest.get("/v1/messages", inbox_id=inbox_id, mailbox="*")
    for row in page["results"]:
        response = await rest.send("GET", f"/v1/messages/{row['id']}")
        told.append(without_chance(response.text, names))
    return told


async def walked(rest, path, query, inbox_id):
    """Every page of an answer, without random ids and times."""
    given = {name: inbox_id if value == "INBOX" else value for name, value in query.items()}
    names, pages, cursor = {}, [], {}
    while True:
        response = await rest.send("GET", path, params={**given, **cursor})
        assert 200 == response.status_code, response.text
        pages.append(without_chance(response.text, names))
        following = response.json().get("next_cursor")
        if not following:
            return pages
        cursor = {"cursor": following}


def without_chance(text, names):
    text = re.sub(
        r"\b[a-z]{3}_[0-9a-z]{12,26}\b", lambda m: names.setdefault(m[0], f"id{len(names)}"), text
    )
    text = re.sub(r'"next_cursor":"([^"]*)"', lambda m: f'"next_cursor":{len(m[1])}', text)
    text = re.sub(r'"(\w+_at|at)":"[^"]*"', r'"\1":""', text)
    return re.sub(r'"hash":"[^"]*"', "", text)


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
async def test_mail_of_others_changes_no_answer(tmp_path, seed, others):
    alone = await answers(tmp_path / "alone", {}, seed, nothing)
    among_others = await answers(tmp_path / "among", {}, seed, others)

    for question, pages in alone.items():
        assert pages == among_others[question], question
    hybrid = alone["/v1/search/messages", json.dumps(HYBRID[3])]
    assert len(hybrid) > 2
    assert all('"relevance":' in page for page in hybrid)


@pytest.mark.long_cases("same_words", "flood")
@pytest.mark.parametrize("others", OTHERS)
async def test_mail_of_others_changes_no_answer_on_postgresql(tmp_path, postgres_server, others):
    urls = [postgres_server.new_database() for _ in range(2)]
    alone, among_others = [
        await answers(tmp_path / name, {"POSTROOM_DATABASE_URL": url}, 7, who)
        for name, url, who in (("alone", urls[0], nothing), ("among", urls[1], others))
    ]
    for url in urls:
        postgres_server.drop(url)

    for question, pages in alone.items():
        assert pages == among_others[question], question


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_removals_by_others_between_two_pages_change_nothing(tmp_path, request, engine):
    """Enough removals to rebuild the index, with mail stored between ours."""
    database = {}
    if engine == "postgresql":
        server = request.getfixturevalue("postgres_server")
        database = {"POSTROOM_DATABASE_URL": server.new_database()}
    async with services(tmp_path, database) as app:
        ctx, chance = app.context(OWNER), random.Random(5)
        other, inbox = await new_inbox(ctx, "other"), await new_inbox(ctx)
        async with rest_client(app, await app.owner_key() or "") as owner:
            made = await owner.post("/v1/keys", name="k", scopes=["read"], inboxes=[inbox.id])
            for turn in range(OWN):
                await same_words(ctx, other, turn)
                await deliver(ctx, inbox, a_mail(chance, turn))
                await owner.get("/v1/search/messages", q="tea", mode="hybrid")
        async with rest_client(app, made["key"]) as limited:
            before = [await first_page(limited, query, inbox.id) for query in HYBRID]
            rests = [await pages_after(limited, *page) for page in before]
            await call(ctx, delete_inbox, {"inbox_id": other.id, "force": True})
            assert before == [await first_page(limited, query, inbox.id) for query in HYBRID]
            assert rests == [await pages_after(limited, *page) for page in before]
    assert 3 < len([rest for rest in rests if rest])
    if database:
        server.drop(database["POSTROOM_DATABASE_URL"])


async def first_page(rest, query, inbox_id):
    given = {name: inbox_id if value == "INBOX" else value for name, value in query.items()}
    response = await rest.send("GET", "/v1/search/messages", params=given)
    assert 200 == response.status_code, response.text
    return given, response.text


async def pages_after(rest, given, page):
    pages, cursor = [], json.loads(page).get("next_cursor")
    while cursor:
        found = await rest.send("GET", "/v1/search/messages", params={**given, "cursor": cursor})
        assert 200 == found.status_code, found.text
        pages.append(found.text)
        cursor = found.json().get("next_cursor")
    return pages
