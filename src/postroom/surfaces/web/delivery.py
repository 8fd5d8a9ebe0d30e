"""How pages and assets reach the browser: assets kept there, and both compressed."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from starlette.responses import Response

_SCRIPT = "text/javascript; charset=utf-8"
ASSETS = {
    "postroom.css": "text/css; charset=utf-8",
    "htmx.js": _SCRIPT,
    "postroom.js": _SCRIPT,
}
_KEPT = "public, max-age=31536000, immutable"
_SMALL_BYTES = 1_000
_PAGE_LEVEL, _ASSET_LEVEL = 4, 9


@cache
def asset(name: str) -> bytes:
    """The content of a file of the pages."""
    return files("postroom.surfaces.web").joinpath("assets", name).read_bytes()


@cache
def compressed_asset(name: str) -> bytes:
    """The same, compressed once for all requests."""
    return gzip.compress(asset(name), _ASSET_LEVEL, mtime=0)


@cache
def asset_url(name: str) -> str:
    """Its path, which changes with its content: a browser may keep it."""
    return f"/assets/{name}?{hashlib.sha256(asset(name)).hexdigest()[:12]}"


def asset_response(name: str, headers: Mapping[str, str], accepted: str) -> Response:
    """A file of the pages; `accepted` is the header Accept-Encoding."""
    kept = {**headers, "Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    if not accepts_gzip(accepted):
        return Response(asset(name), headers=kept, media_type=ASSETS[name])
    kept["Content-Encoding"] = "gzip"
    return Response(compressed_asset(name), headers=kept, media_type=ASSETS[name])


def accepts_gzip(accepted: str) -> bool:
    """Whether a header Accept-Encoding permits gzip (RFC 9110 §12.5.3)."""
    weights = {}
    for part in accepted.lower().split(","):
        coding, _, parameters = part.partition(";")
        weights[coding.strip()] = parameters.replace(" ", "")
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and not _is_zero(weight)


def _is_zero(weight: str) -> bool:
    try:
        return weight.startswith("q=") and float(weight[2:]) == 0
    except ValueError:
        return True


def compress(response: Response, accepted: str) -> Response:
    """Compress a page, unless it is short or the browser does not accept it.

    Tokens of forms are masked, so the length of a page says nothing about them: `cookies`.
    """
    response.headers["Vary"] = "Accept-Encoding"
    if len(response.body) < _SMALL_BYTES or not accepts_gzip(accepted):
        return response
    response.body = gzip.compress(response.body, _PAGE_LEVEL, mtime=0)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    return response
