"""A server still running on an installation that has moved accepts no more mail."""

from __future__ import annotations

import smtplib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.servers.ports import free_port
from tests.servers.postroom import Running, running


@pytest.fixture(params=["folder", "PostgreSQL"])
def served(request, tmp_path: Path) -> Iterator[tuple[Running, str, int]]:
    """A server on each kind of place, that place, and its SMTP port."""
    smtp, data = free_port(), tmp_path / "served"
    extra = {"POSTROOM_SMTP_LISTEN": f"127.0.0.1:{smtp}"}
    place = str(data)
    if request.param == "PostgreSQL":
        place = extra["POSTROOM_DATABASE_URL"] = request.getfixturevalue("database_url")
    with running(data, **extra) as server:
        yield server, place, smtp


def post(smtp: int) -> None:
    with smtplib.SMTP("127.0.0.1", smtp, timeout=60) as client:
        client.sendmail("ana@example.com", ["bo@postroom.localhost"], b"Subject: late\r\n\r\nx\r\n")


def move(forked, server: Running, place: str, target: Path) -> None:
    """Move an installation, and retry if the server wrote to it meanwhile."""
    deadline = time.monotonic() + 120
    while moved := forked("--data", server.data, "migrate", "--from", place, "--to", target):
        if moved.code == 0:
            return
        assert "written to" in moved.err, moved.err
        assert time.monotonic() < deadline, moved.err


def test_a_server_left_running_acknowledges_nothing(served, forked, tmp_path: Path) -> None:
    server, place, smtp = served
    login = {"Authorization": f"Bearer {server.key}"}
    with httpx2.Client(base_url=server.url, headers=login, timeout=60) as rest:
        assert 201 == rest.post("/v1/inboxes", json={"username": "bo"}).status_code
        post(smtp)
        unused = rest.post("/v1/keys", json={"name": "unused"}).json()["key"]
        move(forked, server, place, tmp_path / "new")

        with pytest.raises(smtplib.SMTPDataError) as refused:
            post(smtp)
        late = rest.post("/v1/inboxes", json={"username": "late"})
        # Recording the first use of a key may fail; reading does not depend on it.
        listed = rest.get("/v1/inboxes", headers={"Authorization": f"Bearer {unused}"})
        ready = rest.get("/readyz")

    assert 451 == refused.value.smtp_code
    assert (409, "conflict") == (late.status_code, late.json()["code"])
    assert "was migrated to another folder" in late.json()["detail"]
    assert 1 == listed.json()["total"]
    assert 503 == ready.status_code
    kept = forked("--data", tmp_path / "new", "search", "late", "-o", "json").json
    assert 1 == kept["total"]
