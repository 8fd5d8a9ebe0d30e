"""Keys are shown once, stored as a hash, and written nowhere else."""

from __future__ import annotations

import logging

from postroom.surfaces.rest.routes import ROUTES
from tests.surfaces.rest.conftest import rest_client

WRONG = "pk_canary_of_a_wrong_key"


async def test_no_key_is_shown_again_or_logged(app, key, rest, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    made = await rest.post("/v1/keys", name="canary", scopes=["read", "write", "send", "admin"])
    answers = []
    async with rest_client(app, made["key"]) as mine, rest_client(app, WRONG) as stranger:
        for route in ROUTES:
            if route.operation.name in ("create_key", "stream_events"):
                continue
            path = route.path.format(**dict.fromkeys(route.path_arguments, "unknown"))
            body = {} if route.method in ("GET", "DELETE") else {"json": {"key": made["key"]}}
            answers += [await who.send(route.method, path, **body) for who in (mine, stranger)]
        answers += [await mine.send("GET", path) for path in ("/metrics", "/v1/keys", "/readyz")]
        answers.append(await stranger.send("GET", f"/v1/inboxes?key={WRONG}"))

    told = "\n".join(answer.text + str(answer.headers) for answer in answers)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    logged = "\n".join(r.getMessage() + str(vars(r)) for r in caplog.records if is_ours(r))
    for secret in (key, made["key"], WRONG):
        assert secret not in told
        assert secret not in logged
        assert secret.encode() not in written


def is_ours(record):
    """The client of this test logs too."""
    return not record.name.startswith("httpx2")


async def test_an_internal_error_does_not_log_the_key(app, key, caplog, monkeypatch):
    async def broken(*_args):
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(app.services.store), "inboxes", broken)
    caplog.set_level(logging.DEBUG)
    async with rest_client(app, key) as rest:
        await rest.problem("GET", "/v1/inboxes")

    assert "a bug" in caplog.text
    assert key not in caplog.text
