"""A proxy in front of a JMAP server that answers some methods itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlencode

from tests.servers.web import HttpRequest, HttpResponse, WebServer

Twist = Callable[[str, dict[str, Any]], Any]
"""Gets the name of a method and its arguments; returns a replacement, or None."""

_PASSED_ON = ("authorization", "content-type", "accept")
_PASSED_BACK = ("Location", "Content-Type")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class JmapProxy:
    """Forwards every request unless a replacement is set.

    `instead` answers in place of the server; `after` once the server has handled the request.
    Either returns an `HttpResponse`, or a list of method responses.
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.instead: Twist | None = None
        self.after: Twist | None = None
        self.web = WebServer(self._answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.web.__exit__()

    @property
    def url(self) -> str:
        return self.web.url

    def _answer(self, request: HttpRequest) -> HttpResponse:
        calls = _calls(request)
        if self.instead and calls and (replacement := self.instead(*calls[0][:2])) is not None:
            return _answered(replacement)
        answer = self._pass_on(request)
        if self.after and calls and (replacement := self.after(*calls[0][:2])) is not None:
            return _answered(replacement)
        return answer

    def _pass_on(self, request: HttpRequest) -> HttpResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        forwarded = urllib.request.Request(
            self.server + request.path + query,
            data=request.body if request.method == "POST" else None,
            method=request.method,
            headers={name: value for name, value in request.headers.items() if name in _PASSED_ON},
        )
        try:
            response = urllib.request.build_opener(_NoRedirects).open(forwarded, timeout=120)
            with response:
                status, body, headers = response.status, response.read(), response.headers
        except urllib.error.HTTPError as error:
            status, body, headers = error.code, error.read(), error.headers
        back = {
            name: value.replace(self.server, self.url)
            for name, value in headers.items()
            if name in _PASSED_BACK
        }
        if b'"apiUrl"' in body:
            body = body.replace(self.server.encode(), self.url.encode())
        return HttpResponse(status, body, back)


def _calls(request: HttpRequest) -> list[Any]:
    if request.method != "POST" or not request.body.startswith(b'{"using"'):
        return []
    return list(json.loads(request.body)["methodCalls"])


def _answered(replacement: Any) -> HttpResponse:
    return (
        replacement
        if isinstance(replacement, HttpResponse)
        else HttpResponse(body={"methodResponses": replacement})
    )
