"""An endpoint with OpenAI's embeddings API, implemented by a local server."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from postroom.errors import ProviderAuthFailed, ProviderError
from postroom.providers.embeddings import EndpointEmbedder, RecentEmbedder
from tests.servers.web import HttpRequest, HttpResponse, WebServer


@contextmanager
def endpoint(status: int = 200, body: Any = None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that returns the length of each text, and its requests."""
    requests: list[dict[str, Any]] = []

    def answer(request: HttpRequest) -> HttpResponse:
        given = request.json()
        requests.append(
            {**given, "path": request.path, "key": request.headers.get("authorization")}
        )
        rows = [
            {"index": n, "embedding": [len(text), 1.0]} for n, text in enumerate(given["input"])
        ]
        return HttpResponse(status, body if body is not None else {"data": rows[::-1]})

    with WebServer(answer) as server:
        yield f"{server.url}/v1", requests


async def test_texts_are_sent_and_vectors_come_back_in_order():
    with endpoint() as (url, requests):
        embedder = EndpointEmbedder(url, "some-model", "secret-key")
        vectors = await embedder.embed(["a", "bcd"])

    assert [(1.0, 1.0), (3.0, 1.0)] == [struct.unpack("<2f", vector) for vector in vectors]
    assert [
        {
            "model": "some-model",
            "input": ["a", "bcd"],
            "path": "/v1/embeddings",
            "key": "Bearer secret-key",
        }
    ] == requests


async def test_the_vector_of_a_repeated_query_is_cached():
    with endpoint() as (url, requests):
        embedder = RecentEmbedder(EndpointEmbedder(url, "some-model", None))
        first = await embedder.embed(["who?"])
        second = await embedder.embed(["who?"])

    assert first == second
    assert 1 == len(requests)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {}, ProviderAuthFailed, "refused the key"),
        (500, {}, ProviderError, "answered 500"),
        (200, {"data": []}, ProviderError, "returned 0 vectors for 1 texts"),
        (200, {"nothing": 1}, ProviderError, "unexpected response"),
        (200, {"data": [{"index": 0, "embedding": "x"}]}, ProviderError, "unexpected response"),
        (200, {"data": [{"index": 0, "embedding": []}]}, ProviderError, "unexpected response"),
        (
            200,
            {"data": [{"index": 0, "embedding": [float("nan")]}]},
            ProviderError,
            "unexpected response",
        ),
        (200, {"data": [{"index": 0, "embedding": [1e300]}]}, ProviderError, "unexpected response"),
    ],
)
async def test_failures_are_reported_in_our_own_words(status, body, kind, words):
    with endpoint(status, body) as (url, _), pytest.raises(kind, match=words):
        await EndpointEmbedder(url, "some-model", None).embed(["a"])


async def test_an_unreachable_endpoint_is_a_provider_error():
    with endpoint() as (url, _):
        pass

    with pytest.raises(ProviderError, match="cannot be reached"):
        await EndpointEmbedder(url, "some-model", None).embed(["a"])
