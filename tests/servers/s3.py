"""A server that speaks S3 (moto) on a random loopback port, with one empty bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from moto.server import ThreadedMotoServer
from obstore.store import S3Store


@contextmanager
def running(bucket: str = "postroom-test") -> Iterator[S3Store]:
    """Start the server, make the bucket, and stop in the end."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        httpx2.put(f"{url}/{bucket}", timeout=60).raise_for_status()
        yield S3Store(
            bucket,
            endpoint=url,
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
            client_options={"allow_http": True},
        )
    finally:
        server.stop()


def environment(store: S3Store) -> dict[str, str]:
    """What a user sets to reach the same server; the bucket is named elsewhere."""
    return {
        "AWS_ENDPOINT_URL": store.config["endpoint"],
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
