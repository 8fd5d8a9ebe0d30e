"""HTTP APIs of providers: rate limits, bounded responses, and secret tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from postroom.errors import ProviderAuthFailed, ProviderError, RateLimited
from postroom.model.account import RateLimits
from postroom.providers.web.api import Api, ApiRefused, FixedHeader, RateLimiter, require_https
from tests.servers.web import HttpRequest, HttpResponse, WebServer


@contextmanager
def serving(answer: Callable[[HttpRequest], HttpResponse]) -> Iterator[tuple[Api, WebServer]]:
    with WebServer(answer) as server:
        rates = RateLimits(requests_per_second=1000, burst=100)
        yield (
            Api(
                "work",
                server.url,
                FixedHeader("Bearer canary-token"),
                RateLimiter(rates),
                max_wait_s=2,
            ),
            server,
        )


async def test_a_short_retry_after_is_waited_for() -> None:
    answers = [HttpResponse(429, {}, {"Retry-After": "1"}), HttpResponse(body={"good": True})]
    moments = []

    def answer(_: HttpRequest) -> HttpResponse:
        moments.append(time.monotonic())
        return answers.pop(0)

    with serving(answer) as (api, _):
        assert {"good": True} == await api.json("GET", "/x")
        await api.close()

    first, second = moments
    assert second - first >= 1


async def test_a_long_retry_after_is_an_error_for_the_caller() -> None:
    def busy(_: HttpRequest) -> HttpResponse:
        return HttpResponse(
            403, {"error": {"errors": [{"reason": "rateLimitExceeded"}]}}, {"Retry-After": "900"}
        )

    with serving(busy) as (api, server):
        with pytest.raises(RateLimited) as limited:
            await api.json("GET", "/x")
        assert (900, 1) == (limited.value.retry_after, len(server.requests))
        await api.close()


async def test_refused_logins_and_requests_are_distinguished() -> None:
    with serving(lambda request: HttpResponse(401 if request.path == "/a" else 400, {})) as (
        api,
        _,
    ):
        with pytest.raises(ProviderAuthFailed) as auth:
            await api.json("GET", "/a")
        with pytest.raises(ApiRefused) as refused:
            await api.json("GET", "/b")
        assert "canary" not in str(auth.value) + str(refused.value)
        await api.close()


async def test_invalid_responses_are_errors() -> None:
    deep = b"[" * 50_000 + b"]" * 50_000
    bodies = {"/long": b"[" + b"1," * 60_000 + b"1]", "/deep": deep[:99_000], "/text": b"<html>"}
    with serving(lambda request: HttpResponse(body=bodies[request.path])) as (api, _):
        api.max_bytes = 100_000
        for path in bodies:
            with pytest.raises(ProviderError):
                await api.json("GET", path)
        await api.close()


@pytest.mark.parametrize(
    "url", ["http://example.com/", "ftp://127.0.0.1/", "http://127.0.0.1.evil.example/"]
)
def test_a_token_is_not_sent_without_tls(url: str) -> None:
    with pytest.raises(ProviderError):
        require_https(url)
