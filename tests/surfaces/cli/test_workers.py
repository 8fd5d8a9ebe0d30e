"""Several processes serve one port; a killed worker is replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.servers import postgres, s3
from tests.servers.postroom import (
    Running,
    command,
    create_store,
    environment,
    forked_command,
    running,
)
from tests.surfaces.cli.test_serve import curl_in, fetch, serving

PATIENCE_S = 120


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(process: int) -> set[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return {int(word) for word in text.split()}


def ask(server: Running, path: str, body: object = None) -> dict[str, object]:
    request = urllib.request.Request(
        server.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)


def fetch_bytes(said: str, url: str) -> bytes:
    """The response of the printed curl command from another address."""
    headers = dict(word.split(": ", 1) for word in curl_in(said) if "Authorization" in word)
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


def test_a_supervisor_prints_its_banner_once_and_stops_on_a_signal(data: Path) -> None:
    with serving(data, "--workers", "2") as said:
        assert 1 == said.count("is listening on")
        assert 0 == fetch(curl_in(said))["total"]


def test_several_workers_serve_a_demo_in_a_bucket(data: Path) -> None:
    with (
        s3.running() as bucket,
        serving(
            data,
            *("--workers", "2", "--demo"),
            **{**s3.environment(bucket), "POSTROOM_BLOBS_URL": "s3://postroom-test/demo"},
        ) as said,
    ):
        url = curl_in(said)[-1].partition("/v1/")[0]
        message = fetch(curl_in(said))["results"][0]
        raw = fetch_bytes(said, f"{url}/v1/messages/{message['id']}/raw")
        with urllib.request.urlopen(f"{url}/readyz", timeout=PATIENCE_S) as answer:
            assert 200 == answer.status

    assert b"Subject:" in raw


def test_a_supervisor_whose_demo_cannot_be_stored_exits(data: Path) -> None:
    extra = {"POSTROOM_BLOBS_URL": "s3://postroom-test/demo", "AWS_ENDPOINT_URL": "http://[::1]:9"}
    login = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ALLOW_HTTP": "true"}

    done = subprocess.run(
        command("serve", "--port", "0", "--workers", "2", "--demo"),
        env=environment(data, {**extra, **login}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert 7 == done.returncode
    assert "error: the object store does not respond" in done.stderr
    assert "" == done.stdout


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_killed_worker_is_replaced_and_the_others_continue(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    extra = {}
    if database == "postgres":
        extra["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    with running(tmp_path / "data", workers=2, **extra) as server:
        wait_until(lambda: len(children(server.process.pid)) == 2)
        inbox = ask(server, "/v1/inboxes", {"username": "bo"})
        first = children(server.process.pid)
        os.kill(min(first), signal.SIGKILL)
        found = [ask(server, f"/v1/inboxes/{inbox['id']}")["address"] for _ in range(20)]
        wait_until(lambda: len(children(server.process.pid) - {min(first)}) == 2)

    assert ["bo@postroom.localhost"] * 20 == found


def test_metrics_cover_all_workers_and_survive_restarts(tmp_path: Path) -> None:
    with running(tmp_path / "data", workers=3) as server:
        wait_until(lambda: len(children(server.process.pid)) == 3)
        ask_often(server, 12)
        wait_until(lambda: asked(server) == (12, 12))
        before = [asked(server) for _ in range(12)]
        tell(children(server.process.pid), signal.SIGKILL)
        after = [asked(server) for _ in range(6)]
        ask_often(server, 3)
        wait_until(lambda: asked(server) == (15, 15))

    assert {(12, 12)} == {*before, *after}


def ask_often(server: Running, times: int) -> None:
    for _ in range(times):
        ask(server, "/v1/inboxes")


def asked(server: Running) -> tuple[int, int]:
    """How often the list was requested, by the counter and by the histogram."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    counted = (
        'postroom_http_requests_total{method="GET",route="/v1/inboxes",status="200"} ',
        'postroom_http_request_seconds_bucket{route="/v1/inboxes",le="+Inf"} ',
    )
    first, second = (
        sum(int(line.removeprefix(start)) for line in lines if line.startswith(start))
        for start in counted
    )
    return first, second


def test_a_supervisor_too_old_for_its_database_exits(tmp_path: Path) -> None:
    """A newer version has upgraded it: a restart may start that version."""
    with running(tmp_path / "data", workers=2) as server:
        wait_until(lambda: len(children(server.process.pid)) == 2)
        with closing(sqlite3.connect(server.data / "postroom.db")) as database:
            database.execute("PRAGMA user_version = 100000")
        tell(children(server.process.pid), signal.SIGKILL)
        code = server.process.wait(PATIENCE_S)

    said = (tmp_path / "data.log").read_text()
    assert 1 == code
    assert "error: this database has schema 100000" in said
    assert "Traceback" not in said


def test_a_worker_runs_background_jobs_of_other_processes(
    tmp_path: Path, database_url: str
) -> None:
    """Scheduled mail is sent by a process without a server."""
    env = environment(tmp_path / "data", {"POSTROOM_DATABASE_URL": database_url})

    def run(*words: str) -> dict[str, object]:
        done = subprocess.run(
            forked_command("-o", "json", *words), env=env, capture_output=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        return json.loads(done.stdout)

    for name in ("ana", "bo"):
        run("inbox", "create", f"{name}@postroom.localhost")
    before = time.monotonic()
    ana, bo = run("inbox", "list")["results"]
    # Two commands come before it is due; on a busy machine each takes its time.
    due = time.time() + 2 + 5 * (time.monotonic() - before)
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due))
    draft = run("draft", "create", "--inbox-id", ana["id"], "--to", "bo@postroom.localhost",
                "--subject", "Later", "--body-text", "x", "--send-at", soon)  # fmt: skip
    run("draft", "send", draft["id"])

    with running_worker(env) as worker:
        wait_until(lambda: run("message", "list", bo["id"])["total"] == 1)
        worker.terminate()
        assert 0 == worker.wait(PATIENCE_S)


@contextmanager
def running_worker(env: dict[str, str], *options: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that has started."""
    worker = subprocess.Popen(
        command("worker", *options), env=env, stdout=subprocess.PIPE, text=True
    )
    patience = threading.Timer(PATIENCE_S, worker.kill)
    patience.start()
    try:
        assert "runs background jobs" in worker.stdout.readline()
        yield worker
    finally:
        patience.cancel()
        worker.kill()
        worker.wait()
        worker.stdout.close()


def test_a_worker_has_health_and_metrics_pages(tmp_path: Path) -> None:
    create_store(tmp_path / "data")
    with running_worker(environment(tmp_path / "data"), "--port", "0") as worker:
        port = re.search(r"port (\d+)", worker.stdout.readline())[1]
        url = f"http://127.0.0.1:{port}"
        said = {path: status_of(url + path) for path in ("/readyz", "/metrics", "/v1/inboxes")}
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/v1/inboxes", timeout=PATIENCE_S)
        worker.terminate()
        assert 0 == worker.wait(PATIENCE_S)

    with refused.value as problem:
        detail = json.load(problem)["detail"]
    assert detail.endswith("the paths are: /healthz, /metrics, /readyz")
    assert {"/readyz": 200, "/metrics": 200, "/v1/inboxes": 404} == said
    assert "\npostroom_outbox_sent_total 0\n" in text


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_a_worker_reports_a_port_in_use(tmp_path: Path) -> None:
    create_store(tmp_path / "data")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = subprocess.run(
            command("worker", "--port", port),
            env=environment(tmp_path / "data"),
            capture_output=True,
            text=True,
            check=False,
        )

    assert 5 == done.returncode
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr


@pytest.mark.parametrize(
    "words", [("serve", "--workers", "2"), ("serve",), ("worker",), ("worker", "--port", "0")]
)
def test_a_server_stops_although_the_database_hangs(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Every process of the database is frozen until the server has exited."""
    with postgres.running() as server:
        given = {"POSTROOM_DATABASE_URL": server.new_database(), "POSTROOM_PORT": "0"}
        process = subprocess.Popen(
            command(*words),
            env=environment(tmp_path / "data", given),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout.readline()
            wait_until(lambda: is_alive(server, given["POSTROOM_DATABASE_URL"]))
            with frozen(server):
                process.terminate()
                assert 0 == process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def is_alive(server: postgres.Postgres, url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as admin:
        return admin.execute("SELECT 1 FROM leases").fetchone() is not None


@contextmanager
def frozen(server: postgres.Postgres) -> Iterator[None]:
    parent = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    every = (parent, *children(parent))
    tell(every, signal.SIGSTOP)
    try:
        yield
    finally:
        tell(every, signal.SIGCONT)


def tell(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it may have exited
            os.kill(process, number)
