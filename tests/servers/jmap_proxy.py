"""Stands before a JMAP server, and answers some of its methods itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlencode

from tests.servers.web import Answer, Asked, WebServer

Twist = Callable[[str, dict[str, Any]], Any]
"""Told the name of a method and its arguments: what is answered in its place, or None."""

_PASSED_ON = ("authorization", "content-type", "accept")
_PASSED_BACK = ("Location", "Content-Type")


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class JmapProxy:
    """Passes everything on, until it is told otherwise.

    `instead` is answered in place of the server; `after` once the server has done what was asked.
    Either gives an `Answer`, or a list of method responses.
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

    def _answer(self, asked: Asked) -> Answer:
        calls = _calls(asked)
        if self.instead and calls and (twisted := self.instead(*calls[0][:2])) is not None:
            return _answered(twisted)
        answer = self._pass_on(asked)
        if self.after and calls and (twisted := self.after(*calls[0][:2])) is not None:
            return _answered(twisted)
        return answer

    def _pass_on(self, asked: Asked) -> Answer:
        query = f"?{urlencode(asked.query)}" if asked.query else ""
        request = urllib.request.Request(
            self.server + asked.path + query,
            data=asked.body if asked.method == "POST" else None,
            method=asked.method,
            headers={name: value for name, value in asked.headers.items() if name in _PASSED_ON},
        )
        try:
            response = urllib.request.build_opener(_Stays).open(request, timeout=120)
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
        return Answer(status, body, back)


def _calls(asked: Asked) -> list[Any]:
    if asked.method != "POST" or not asked.body.startswith(b'{"using"'):
        return []
    return list(json.loads(asked.body)["methodCalls"])


def _answered(twisted: Any) -> Answer:
    return twisted if isinstance(twisted, Answer) else Answer(body={"methodResponses": twisted})
