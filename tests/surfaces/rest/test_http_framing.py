"""Ambiguous message framing (RFC 9112) is refused."""

from __future__ import annotations

import pytest

from tests.servers.postroom import running
from tests.surfaces.rest.test_connections import connected, rest_of

SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = b"0\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("framing") / "data", options=["--no-auth"]) as server:
        yield server


async def said(server, request: bytes) -> bytes:
    """Everything that the server sends until it closes the connection."""
    port = int(server.url.rpartition(":")[2])
    async with connected(port, request) as (reader, _):
        return await rest_of(reader)


def post(*lines: bytes, version: bytes = b"1.1") -> bytes:
    head = b"POST /v1/inboxes HTTP/" + version + b"\r\nHost: localhost\r\n"
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


BAD = {
    "length, then chunked": (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "chunked, then length": (b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "length 0 and chunked": (b"Content-Length: 0", b"Transfer-Encoding: chunked"),
    "other case": (b"content-LENGTH: 5", b"TRANSFER-encoding: Chunked"),
    "two lengths": (b"Content-Length: 5", b"Content-Length: 6"),
    "a list of lengths": (b"Content-Length: 5, 6",),
    "a signed length": (b"Content-Length: +5",),
    "a negative length": (b"Content-Length: -5",),
    "a length in hex": (b"Content-Length: 0x5",),
    "a length with a space": (b"Content-Length: 5 5",),
    "an empty length": (b"Content-Length: ",),
    "identity": (b"Transfer-Encoding: identity",),
    "identity and a length": (b"Transfer-Encoding: identity", b"Content-Length: 5"),
    "gzip": (b"Transfer-Encoding: gzip, chunked",),
    "chunked twice": (b"Transfer-Encoding: chunked, chunked",),
    "chunked, then identity": (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
    "almost chunked": (b"Transfer-Encoding: xchunked",),
    "chunked with a parameter": (b"Transfer-Encoding: chunked;a=b",),
    "chunked in quotes": (b'Transfer-Encoding: "chunked"',),
    "chunked after a control": (b"Transfer-Encoding: \x0bchunked",),
    "a space before the colon": (b"Transfer-Encoding : chunked",),
    "a tab before the colon": (b"Content-Length\t: 5",),
    "a space before the name": (b"X: y", b" Transfer-Encoding: chunked", b"Content-Length : 5"),
    "a name that is none": (b"Content Length: 5",),
    "NUL": (b"X: a\x00b", b"Content-Length: 0"),
    "a bare return": (b"X: a\rTransfer-Encoding: chunked", b"Content-Length: 0"),
}


@pytest.mark.parametrize("lines", BAD.values(), ids=BAD)
async def test_an_ambiguous_length_is_refused_and_the_connection_closed(server, lines):
    answered = await said(server, post(*lines) + CHUNKED + SMUGGLED)

    assert answered.startswith(b"HTTP/1.1 400 ")
    assert 1 == answered.count(b"HTTP/1.1 ")
    assert b"connection: close" in answered.lower()
    assert b"smuggled" not in answered


async def test_chunked_in_http_1_0_is_refused(server):
    request = post(b"Connection: keep-alive", b"Transfer-Encoding: chunked", version=b"1.0")
    answered = await said(server, request + CHUNKED + SMUGGLED)

    assert answered.startswith(b"HTTP/1.1 400 ")
    assert 1 == answered.count(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    "chunks",
    [
        b"5\r\nabc",
        b"-1\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}XX0\r\n\r\n",
        b"G\r\n",
        b"9" * 30 + b"\r\n",
        b"2 \x00\r\n{}\r\n",
        b"2\r\n{}\r\n0\r\nX : y\r\n\r\n",
    ],
)
async def test_invalid_chunks_end_the_connection(server, chunks):
    kind = b"Content-Type: application/json"
    answered = await said(server, post(kind, b"Transfer-Encoding: chunked") + chunks + SMUGGLED)

    assert b" 201 " not in answered
    assert b"smuggled" not in answered
    assert answered.count(b"HTTP/1.1 ") <= 1


@pytest.mark.parametrize(
    "chunks",
    [
        b"2\r\n{}\r\n0\r\n\r\n",
        b"2;a=b\r\n{}\r\n0;c\r\n\r\n",
        b"1\r\n{\r\n1\r\n}\r\n0\r\nA: b\r\n\r\n",
    ],
    ids=["plain", "extensions", "trailers"],
)
async def test_valid_chunks_are_read_and_the_connection_is_kept(server, chunks):
    kind = b"Content-Type: application/json"
    request = post(kind, b"Transfer-Encoding: chunked") + chunks
    answered = await said(server, request + SMUGGLED)

    assert answered.startswith(b"HTTP/1.1 201 ")
    assert 2 == answered.count(b"HTTP/1.1 ")
    assert b" 404 " in answered


async def test_an_invalid_second_request_of_a_connection_is_explained(server):
    good = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    bad = post(b"Content-Length: 5", b"Transfer-Encoding: chunked")
    answered = await said(server, good + bad + CHUNKED + SMUGGLED)

    assert [b"200", b"400"] == [part[:3] for part in answered.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET /" + b"y" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["no host", "two hosts", "a long header", "many headers", "a long target"],
)
async def test_headers_over_the_limit_are_refused(server, head):
    answered = await said(server, head)

    assert answered.startswith(b"HTTP/1.1 400 ") or not answered
    assert b" 200 " not in answered


@pytest.mark.parametrize(
    "given", [b"a" * 65, b"<script>", b"a b", b"\xe9", b"a\tb", b"x" * 60_000, b"${jndi}", b""]
)
async def test_a_request_id_of_the_client_is_used_only_if_valid(server, given):
    request = b"GET /v1/<b>nowhere</b> HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    answered = await said(server, request + b"X-Request-Id: " + given + b"\r\n\r\n")

    assert len(answered) < 3_000
    assert b"x-request-id: req_" in answered.lower()
    assert not given or b"x-request-id: " + given.lower() not in answered.lower()
    assert b"<b>" not in answered
