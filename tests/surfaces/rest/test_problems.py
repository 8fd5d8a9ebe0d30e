"""Errors: one table, one format, no internal details."""

from __future__ import annotations

import asyncio
import logging

import pytest

from postroom import errors
from postroom.calls.operation import Operation
from postroom.operations import inboxes
from postroom.pipeline.counters import SharedCounters
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.http_messages import KINDS
from postroom.surfaces.rest.metrics import Metrics
from postroom.surfaces.rest.routes import Route
from postroom.surfaces.rest.surface import Surface
from tests.surfaces.rest.conftest import rest_client

STATUSES = {
    errors.MailError: 500,
    errors.Unstorable: 500,
    errors.TooNew: 500,
    errors.TooOld: 500,
    errors.InvalidInput: 422,
    errors.Malformed: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.WriteDisabled: 403,
    errors.NotFound: 404,
    errors.FeatureDisabled: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.RateLimited: 429,
    errors.ProviderError: 502,
    errors.ProviderAuthFailed: 502,
    errors.ProviderTimeout: 504,
    errors.Unavailable: 503,
    errors.StorageFull: 507,
}
"""The documented statuses, as an independent table."""


def every_kind(root=errors.MailError):
    kinds = [kind for kind in root.__subclasses__() if kind.__module__ == errors.__name__]
    return [root, *(deeper for kind in kinds for deeper in every_kind(kind))]


def failing(app, error):
    """The REST surface with an operation that fails."""

    async def run(_ctx, request: inboxes.ListInboxes) -> None:
        raise error

    route = Route("GET", "/v1/fails", Operation(run, inboxes.list_inboxes.scope))
    return Surface(
        app, AccessControl.of(app, no_auth=False), [route], {}, {}, Metrics(SharedCounters())
    )


def test_every_kind_of_error_has_a_status():
    assert set(every_kind()) == set(STATUSES)
    assert {kind.code for kind in STATUSES} <= set(KINDS)


@pytest.mark.parametrize(("kind", "status"), STATUSES.items(), ids=str)
async def test_an_error_is_a_problem_document(app, key, kind, status):
    more = {"retry_after": 7} if kind in (errors.RateLimited, errors.Unavailable) else {}
    async with rest_client(app, key, asgi=failing(app, kind("it broke; mend it", **more))) as rest:
        problem = await rest.problem("GET", "/v1/fails")

    assert status == problem["status"]
    assert kind.code == problem["code"]
    assert "it broke; mend it" == problem["detail"]
    assert "/v1/fails" == problem["instance"]
    assert f"/docs#{kind.code}" == problem["type"]


@pytest.mark.parametrize("kind", [errors.RateLimited, errors.Unavailable])
async def test_a_rate_limit_error_has_retry_after(app, key, kind):
    error = kind("not now", retry_after=7)
    async with rest_client(app, key, asgi=failing(app, error)) as rest:
        response = await rest.send("GET", "/v1/fails")

    assert "7" == response.headers["retry-after"]
    assert 7 == response.json()["retry_after"]


async def test_requests_over_the_concurrency_limit_are_refused(app, key):
    app.concurrency_limit.limit = 2
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def run(_ctx, request: inboxes.ListInboxes) -> None:
        begun.release()
        await go_on.wait()
        raise errors.NotFound("done")

    route = Route("GET", "/v1/waits", Operation(run, inboxes.list_inboxes.scope))
    slow = Surface(
        app, AccessControl.of(app, no_auth=False), [route], {}, {}, Metrics(SharedCounters())
    )
    async with rest_client(app, key, asgi=slow) as rest:
        asked = [asyncio.create_task(rest.send("GET", "/v1/waits")) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        refused = await rest.send("GET", "/v1/waits")
        go_on.set()
        answers = [await one for one in asked]
        again = await rest.send("GET", "/v1/waits")

    assert (503, "1") == (refused.status_code, refused.headers["retry-after"])
    assert [404, 404, 404] == [answer.status_code for answer in (*answers, again)]


async def test_a_bug_is_logged_with_the_request_and_not_shown(app, key, caplog):
    error = RuntimeError("SELECT secret FROM inside")
    async with rest_client(app, key, asgi=failing(app, error)) as rest:
        with caplog.at_level(logging.ERROR):
            problem = await rest.problem("GET", "/v1/fails")

    assert (500, "internal") == (problem["status"], problem["code"])
    assert "SELECT" not in str(problem)
    [record] = [r for r in caplog.records if r.getMessage() == "request.failed"]
    assert problem["request_id"] == record.request_id
    assert record.exc_info is not None


async def test_server_errors_are_logged_with_the_request_id(app, key, caplog):
    error = errors.StorageFull("no space left; free some")
    async with rest_client(app, key, asgi=failing(app, error)) as rest:
        problem = await rest.problem("GET", "/v1/fails")

    [record] = [r for r in caplog.records if r.getMessage() == "request.failed"]
    assert problem["request_id"] == record.request_id
    assert ("GET /v1/fails", "no space left; free some") == (record.route, record.error)


async def test_an_unknown_path_is_a_problem(rest):
    problem = await rest.problem("GET", "/v1/nothing/here%20at%20all")

    assert (404, "not_found") == (problem["status"], problem["code"])
    assert "/v1/nothing/here%20at%20all" == problem["instance"]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/messages/", "//v1/messages", "/v2/x"])
async def test_paths_match_exactly(rest, path):
    assert 404 == (await rest.problem("GET", path))["status"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/inboxes", "GET, HEAD, POST"),
        ("GET", "/v1/messages/labels", "POST"),
        ("OPTIONS", "/v1/messages/msg_1", "DELETE, GET, HEAD, PATCH"),
        ("TRACE", "/v1/inbound", "POST"),
        ("PROPFIND", "/healthz", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_refused_with_the_allowed_ones(rest, method, path, allowed):
    response = await rest.send(method, path)

    assert (405, "method_not_allowed") == (response.status_code, response.json()["code"])
    assert allowed == response.headers["allow"]


@pytest.mark.parametrize(
    ("given", "kept"), [("my-id.1", True), ("", False), ("a b", False), ("x" * 65, False)]
)
async def test_a_valid_request_id_is_kept(rest, given, kept):
    response = await rest.send("GET", "/healthz", headers={"X-Request-Id": given})

    assert kept == (given == response.headers["x-request-id"])
    assert response.headers["x-request-id"]


async def test_an_action_on_a_message_that_is_not_there_is_not_found(rest):
    for method, path, body in [
        ("PATCH", "/v1/messages/msg_none", {"flags": []}),
        ("POST", "/v1/messages/msg_none/move", {"destination": "Archive"}),
        ("DELETE", "/v1/messages/msg_none", None),
        ("DELETE", "/v1/messages/msg_none?permanent=true", None),
    ]:
        problem = await rest.problem(method, path, **({"json": body} if body else {}))

        assert (404, errors.no_such("message", "msg_none")) == (
            problem["status"],
            problem["detail"],
        )


async def test_an_action_on_several_messages_says_which_failed(rest, message_id):
    body = {"message_ids": [message_id, "msg_none"], "label": "Work"}

    result = await rest.post("/v1/messages/labels", **body)

    assert "partial" == result["status"]
    assert [message_id] == result["succeeded"]
    assert ["not_found"] == [failure["code"] for failure in result["failed"]]


@pytest.mark.parametrize("path", ["/v1/inboxes", "/v1/nothing", "/healthz", "/docs", "/metrics"])
async def test_every_response_has_security_headers(rest, path):
    headers = (await rest.send("GET", path)).headers

    assert "nosniff" == headers["x-content-type-options"]
    assert "no-referrer" == headers["referrer-policy"]
    assert "no-store" == headers["cache-control"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
