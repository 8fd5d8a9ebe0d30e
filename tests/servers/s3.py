"""A server that speaks S3 (moto) on a free loopback port, with one empty bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import httpx2
import obstore
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from obstore.store import S3Store
from werkzeug.serving import make_server


@dataclass
class Faults:
    """The requests to the server, and injected faults.

    `instead` gets the WSGI environment of a request, and returns a status or None; `words` is the
    body of the response, except to a HEAD.
    """

    instead: Callable[[dict[str, Any]], str | None] = lambda _request: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    words: str = ""

    def before(self, server: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """The server with these faults."""

        def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            path += f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
            self.requests.append((method, path))
            status = self.instead(environ)
            if status is None:
                return server(environ, start)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            said = b"" if method == "HEAD" else self.words.encode()
            start(status, [("Content-Length", str(len(said)))])
            return [said]

        return answer


def answering(status: str, method: str) -> Callable[[dict[str, Any]], str | None]:
    """A fault: the status to return for one method."""
    return lambda request: status if request["REQUEST_METHOD"] == method else None


@contextmanager
def running(bucket: str = "postroom-test", faults: Faults | None = None) -> Iterator[S3Store]:
    """Run the server and create the bucket."""
    app = (faults or Faults()).before(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        httpx2.put(f"{url}/{bucket}", timeout=60).raise_for_status()
        store = S3Store(
            bucket,
            endpoint=url,
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
            client_options={"allow_http": True},
        )
        empty(store)
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def empty(store: S3Store) -> None:
    """Delete all objects: the servers of one process share their buckets."""
    for part in obstore.list(store):
        obstore.delete(store, [entry["path"] for entry in part])


def environment(store: S3Store) -> dict[str, str]:
    """The settings with which a user reaches the same server; the bucket is named elsewhere."""
    return {
        "AWS_ENDPOINT_URL": store.config["endpoint"],
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
