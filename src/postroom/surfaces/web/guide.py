"""The documentation site at /guide: files that `scripts/docs` has built, from the package."""

from __future__ import annotations

import gzip
import hashlib
from difflib import get_close_matches
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from postroom.errors import NotFound
from postroom.surfaces.http import segments_of
from postroom.surfaces.web.rendering import accepts_gzip

PREFIX, INDEX = "/guide", "llms.txt"
MISSING = "this installation was built without its guide; in a checkout, run `make docs`"
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class Guide:
    """An ASGI application over the files of the site. They are public: they hold no mail."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = _respond(request)
        except NotFound as error:
            if "text/html" not in request.headers.get("accept", ""):
                raise
            response = _not_found(request.url.path, str(error))
        await response(scope, receive, send)


def _respond(request: Request) -> Response:
    if request.method not in ("GET", "HEAD"):
        return Response(status_code=405, headers={"Allow": "GET, HEAD"})
    match segments_of(request.scope):
        case ["guide"]:
            return _moved(f"{PREFIX}/")
        case ["llms.txt"]:
            return _moved(f"{PREFIX}/{INDEX}")
        case ["guide", *segments]:
            return _file("/".join(segments) or "index.html", request)
    raise NotFound("there is nothing at this path")


def _moved(to: str) -> Response:
    return Response(status_code=308, headers={**_HEADERS, "Location": to})


def _file(name: str, request: Request) -> Response:
    """A file of the site. Only a name that the site has reaches the file system."""
    names = file_names()
    if name not in names:
        raise NotFound(f"the guide has no page {name}; {PREFIX}/{INDEX} lists them")
    content, tag = _content(name)
    headers = {**_HEADERS, "ETag": tag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = _TYPES[PurePosixPath(name).suffix]
    if kind != "image/png" and accepts_gzip(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
        content = _compressed(name)
    return Response(content, headers=headers, media_type=kind)


NOT_FOUND = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>No such page – Postroom guide</title>
<link rel="icon" href="/guide/assets/icon.svg">
<link rel="stylesheet" href="/guide/assets/guide.css">
</head>
<body>
<header class="top"><a class="brand" href="/guide/">Postroom <span>guide</span></a></header>
<div class="columns"><main id="main">
<h1>There is no such page</h1>
<p>{why}</p>
<ul>{links}</ul>
</main></div>
</body>
</html>
"""
_STARTS = {
    f"{PREFIX}/": "Overview of the guide",
    f"{PREFIX}/tutorials/quickstart.html": "Five-minute quickstart",
    f"{PREFIX}/reference/api/index.html": "All operations",
    f"{PREFIX}/{INDEX}": "All pages, as text",
}


def _not_found(path: str, why: str) -> Response:
    """A page for people, with links to those that they may have meant."""
    links = {"/": "Your mail"}
    if why != MISSING:
        why = f"There is no page at {path}. These pages are similar:"
        links = {f"{PREFIX}/{name}": name for name in _similar(path)} | _STARTS | links
    items = (f'<li><a href="{escape(to)}">{escape(text)}</a></li>' for to, text in links.items())
    page = NOT_FOUND.format(why=escape(why), links="".join(items))
    return Response(page, 404, _HEADERS, "text/html; charset=utf-8")


def _similar(path: str) -> list[str]:
    """The pages whose names are most like an address."""
    wanted = path.removeprefix(f"{PREFIX}/").rstrip("/")
    pages = sorted(name for name in file_names() if name.endswith(".html"))
    return get_close_matches(wanted, pages, n=3, cutoff=0.7)


@cache
def file_names() -> frozenset[str]:
    """The files of the site by their paths. Raises NotFound if it was not built."""
    root = _root()
    if not root.joinpath(INDEX).is_file():
        raise NotFound(MISSING)
    return frozenset(_names(root, ""))


def _names(folder: Traversable, path: str) -> list[str]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _names(entry, f"{path}{entry.name}/")
        elif PurePosixPath(entry.name).suffix in _TYPES:
            found.append(path + entry.name)
    return found


def _root() -> Traversable:
    return files("postroom.surfaces.web").joinpath("site")


@cache
def _content(name: str) -> tuple[bytes, str]:
    content = _root().joinpath(name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_content(name)[0], mtime=0)
