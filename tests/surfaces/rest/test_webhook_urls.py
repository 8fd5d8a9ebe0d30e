"""The URL pattern of webhooks in the OpenAPI document matches what the server accepts.

A generator of random strings never produces a URL with a port or an address, so these are composed
of parts.
"""

from __future__ import annotations

from itertools import product

import pytest
from jsonschema import Draft202012Validator

from postroom.surfaces.rest.openapi import document

SCHEMES = ("https://", "http://", "HTTPS://", "ftp://", "https:/", "")
HOSTS = (
    "example.com", "EXAMPLE.COM", "a", "a-b.example", "xn--bcher-kva.example", "example.x1",
    "_dmarc.example.com", "8.8.8.8", "[2606:4700:4700::1111]", "exa mple.com", "ex\u00e4mple.com",
    "-a.example", "a..example", ".example", "user@example.com", "user:pw@example.com", "",
)  # fmt: skip
PORTS = ("", ":1", ":8443", ":65535", ":0", ":65536", ":99999", ":", ":x", ":080")
PATHS = ("", "/", "/hook?x=1&y=%20#z", "?x=1", "#z", "/a b", "/a\\b", "/\u00e4", "x" * 2)
URLS = sorted(
    {s + h + p + "/" for s, h, p in product(SCHEMES[:2], HOSTS, PORTS)}
    | {f"{s}example.com{p}" for s, p in product(SCHEMES, PATHS)}
    | {f"https://example.com/{'x' * count}" for count in (1980, 1981)}
)


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/webhooks", "post"), ("/v1/webhooks/{webhook_id}", "patch")]
)
async def test_the_server_accepts_what_the_document_allows(rest, path, method):
    operation = document(["postroom.localhost"])["paths"][path][method]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    validator = Draft202012Validator(schema["properties"]["url"])
    webhook = await rest.post("/v1/webhooks", url="https://example.com/")
    place = path.replace("{webhook_id}", webhook["id"])

    differing = []
    for url in URLS:
        response = await rest.send(method.upper(), place, json={"url": url})
        is_taken = response.status_code in (200, 201)
        assert is_taken or 422 == response.status_code
        if is_taken != validator.is_valid(url):
            differing.append((url, is_taken))

    assert [] == differing
