"""Pages outside of the API: health, metrics and documentation."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from postroom.errors import StorageFull
from postroom.pipeline.counters import ALL_COUNTERS, SharedCounters
from postroom.surfaces.rest.http_messages import KINDS
from postroom.surfaces.rest.metrics import Metrics
from postroom.surfaces.rest.pages import ASSETS
from postroom.surfaces.rest.routes import ROUTES
from postroom.surfaces.rest.server import build
from tests.surfaces.rest.conftest import rest_client


class UnreachableStore:
    """A store that cannot be reached."""

    def __init__(self, error):
        self.error = error

    async def ping(self):
        raise self.error


def with_store(app, store):
    return replace(app, services=replace(app.services, store=store))


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
async def test_a_page_needs_no_key(app, path):
    async with rest_client(app, None) as rest:
        assert 200 == (await rest.send("GET", path)).status_code


async def test_without_its_store_the_process_is_alive_but_not_ready(app, key):
    broken = with_store(app, UnreachableStore(StorageFull("no space left on the disk; free some")))

    async with rest_client(broken, key) as rest:
        health = await rest.send("GET", "/healthz")
        problem = await rest.problem("GET", "/readyz")

    assert 200 == health.status_code
    assert (503, "unavailable") == (problem["status"], problem["code"])
    assert "no space left on the disk; free some" == problem["detail"]
    assert 2 == problem["retry_after"]


async def test_a_full_disk_is_not_ready_even_if_the_database_has_room(app, key, monkeypatch):
    async def full(_contents):
        raise StorageFull("the disk is full; free some space and try again")

    async with rest_client(app, key) as rest:
        before = await rest.send("GET", "/readyz")
    monkeypatch.setattr(app.services.blobs, "put", full)
    async with rest_client(app, key) as rest:
        problem = await rest.problem("GET", "/readyz")
        again = await rest.problem("GET", "/readyz")

    assert 200 == before.status_code
    assert (503, 503) == (problem["status"], again["status"])
    assert "disk is full" in problem["detail"]


async def test_a_readiness_check_leaves_nothing_behind(app, key, tmp_path):
    async with rest_client(app, key) as rest:
        assert 200 == (await rest.send("GET", "/readyz")).status_code

    assert [] == list((tmp_path / "data" / "blobs").glob("??/*"))


async def test_metrics_count_background_work(app, key):
    app.services.counts.add("smtp_accepted", 3)
    async with rest_client(app, key) as rest:
        text = (await rest.send("GET", "/metrics")).text

    assert "\npostroom_smtp_accepted_total 3\n" in text
    assert all(f"\npostroom_{name}_total " in text for name in ALL_COUNTERS)


_PUBLIC = {
    *("smtp_connections", "smtp_accepted", "smtp_refused", "smtp_recipients_refused"),
    *("smtp_failed", "smtp_smuggled", "smtp_looping", "smtp_limited", "parsing_failed"),
    *("outbox_sent", "outbox_deferred", "outbox_failed", "outbox_unknown", "outbox_bounced"),
    *("outbox_errors", "outbox_claims_lost", "outbox_unsettled"),
    *("sync_skipped", "sync_failed", "pushes_refused"),
    *("webhooks_delivered", "webhooks_failed", "webhooks_dead", "readiness_failed", "tools_failed"),
}
"""The names of counters, which dashboards and alerts use."""


def test_the_names_of_metrics_stay():
    assert _PUBLIC <= set(ALL_COUNTERS)


async def test_internal_errors_are_logged_and_not_shown(app, key, caplog):
    broken = with_store(app, UnreachableStore(OSError("/secret/path/postroom.db")))

    async with rest_client(broken, key) as rest:
        with caplog.at_level(logging.ERROR):
            problem = await rest.problem("GET", "/readyz")

    assert 503 == problem["status"]
    assert "secret" not in problem["detail"]
    assert problem["request_id"] == caplog.records[-1].request_id


async def test_metrics_count_requests_by_route_only(rest, message_id):
    await rest.get(f"/v1/messages/{message_id}")
    await rest.problem("GET", "/v1/messages/msg_none")
    await rest.problem("GET", "/v1/nothing/at/all")
    await rest.problem("BREW", "/healthz")

    text = (await rest.send("GET", "/metrics")).text

    route = 'route="/v1/messages/{message_id}"'
    assert f'postroom_http_requests_total{{method="GET",{route},status="200"}} 1' in text
    assert f'postroom_http_requests_total{{method="GET",{route},status="404"}} 1' in text
    assert 'postroom_http_requests_total{method="GET",route="none",status="404"} 1' in text
    assert 'method="OTHER"' in text
    assert 'postroom_http_errors_total{code="not_found"} 2' in text
    assert "msg_" not in text


async def test_metrics_have_the_prometheus_format(rest):
    await rest.get("/v1/inboxes")

    response = await rest.send("GET", "/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    sample = r'[a-z_]+(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? [0-9.e+-]+'
    for line in response.text.splitlines():
        assert line.startswith("# ") or re.fullmatch(sample, line), line
    counts = [
        int(line.rpartition(" ")[2])
        for line in response.text.splitlines()
        if line.startswith('postroom_http_request_seconds_bucket{route="/v1/inboxes"')
    ]
    assert sorted(counts) == counts
    assert 1 == counts[-1]


def test_there_are_counters_for_twice_as_many_names():
    counters = SharedCounters()
    metrics = Metrics(counters)
    statuses = {200, 201, 204, 304, 499, *(kind.status for kind in KINDS.values())}
    wrong = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "OTHER")
    rows = {(row.method, row.path, status) for row in ROUTES for status in statuses}
    rows |= {(method, row.path, 405) for row in ROUTES for method in wrong}
    for method, path, status in rows:
        for twice in ("", "/"):
            metrics.record(method, path + twice, status, 0.1)

    counted = [name for name in counters.totals() if name[0] == "requests"]
    assert 2 * len(rows) == len(counted)


class Links(HTMLParser):
    """Collects what a page would load or run."""

    def __init__(self):
        super().__init__()
        self.loaded, self.inline = [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.loaded += [given[name] for name in ("src", "href") if name in given]
        if (tag == "script" and "src" not in given) or tag == "style" or "style" in given:
            self.inline.append(tag)
        self.inline += [name for name in given if name.startswith("on")]


async def test_the_page_loads_only_packaged_assets(rest):
    page = Links()
    page.feed((await rest.send("GET", "/docs")).text)

    loaded = {link for link in page.loaded if not link.startswith("#")}

    assert loaded <= {*ASSETS, "/openapi.json"}
    assert [] == page.inline


@pytest.mark.parametrize("path", sorted(ASSETS))
async def test_an_asset_is_served_under_a_strict_policy(rest, path):
    response = await rest.send("GET", path)

    policy = response.headers["content-security-policy"]
    assert ASSETS[path][1] == response.headers["content-type"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org)", response.text)


@pytest.mark.may_skip("not every machine has a browser")
async def test_a_browser_shows_every_endpoint(app, serving, tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium here")
    async with serving(build(app)) as port:
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"
        )
        command = [browser, *flags.split(), f"--user-data-dir={tmp_path}", "--dump-dom"]
        page = ["--virtual-time-budget=10000", f"http://127.0.0.1:{port}/docs"]
        shown = await output_of([*command, *page])

    assert {row.operation.name for row in ROUTES if row.when is None} <= set(
        re.findall(r'<details class="endpoint" id="(\w+)"', shown)
    )


async def output_of(command):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return out.decode()
