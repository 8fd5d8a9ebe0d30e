"""A JMAP client (RFC 8620, RFC 8621): session, method calls, blobs, events.

It knows nothing of our model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urljoin

import httpx2

from postroom.errors import MailError, ProviderError, RateLimited
from postroom.model.account import RateLimits
from postroom.providers.web.api import Api, ApiRefused

RATES = RateLimits(requests_per_second=10, burst=50)
CORE = "urn:ietf:params:jmap:core"
MAIL = "urn:ietf:params:jmap:mail"
SUBMISSION = "urn:ietf:params:jmap:submission"
PING_S = 60
READ_TIMEOUT_S = 240.0
"""The event stream has failed after so long a silence: the server should ping every minute."""

CONNECT_EVENTS_S = 10.0
"""How long a server may take to open the event stream."""

BUSY_S = 30
"""How long we wait for a busy server; JMAP has no Retry-After."""

_NOT_FOUND = 404
_REDIRECTS = (301, 302, 303, 307, 308)
_BUSY = ("rateLimit", "serverUnavailable")
_SERVER_FAILURES = ("serverFail", "serverPartialFail")
_CREATES = ("create", "emails")
"""Arguments that create something: a retry could create it twice."""


class MethodRefused(ProviderError):
    """A method returned an error; `type` is its name (RFC 8620 §3.6.2)."""

    retryable = False

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message, provider_said=kind)
        self.type = kind


class MethodFailed(MethodRefused):
    """A method failed in the server; it may have had an effect."""

    retryable = True


@dataclass(eq=False)
class JmapClient:
    """One account at a JMAP server."""

    api: Api
    _session: dict[str, Any] = field(default_factory=dict)
    _session_url: str = ""

    async def session(self) -> dict[str, Any]:
        """The session object, requested once; it has the URLs of everything else."""
        if self._session:
            return self._session
        url = f"{self.api.base}/.well-known/jmap"
        for _ in range(4):
            async with self.api.stream("GET", url) as response:
                status, location = response.status_code, response.headers.get("Location")
            if status not in _REDIRECTS or not location:
                break
            url = urljoin(url, location)
        body = await self.api.json("GET", url)
        if not isinstance(body, dict) or "apiUrl" not in body:
            raise ProviderError("unexpected response from the JMAP server: no session object")
        self._session, self._session_url = body, url
        return body

    async def account_id(self) -> str:
        session = await self.session()
        account_id = session.get("primaryAccounts", {}).get(MAIL)
        if not account_id:
            raise ProviderError("this login has no account for mail")
        return str(account_id)

    async def can(self, capability: str) -> bool:
        return capability in (await self.session()).get("primaryAccounts", {})

    def limit(self, name: str, default: int) -> int:
        """A limit of the server, or *default* if that is lower."""
        return _limit(self._session, ("capabilities", CORE, name), default)

    def mail_limit(self, name: str, default: int) -> int:
        """A limit of the account for mail (RFC 8621 §1.3.1), or *default* if that is lower."""
        primary = self._session.get("primaryAccounts")
        account_id = primary.get(MAIL) if isinstance(primary, dict) else None
        path = ("accounts", str(account_id), "accountCapabilities", MAIL, name)
        return _limit(self._session, path, default)

    async def call(self, method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method and return its response. Raises the errors of `method_error`."""
        session = await self.session()
        call = [method, {"accountId": await self.account_id(), **arguments}, "0"]
        uses_submission = method.startswith(("EmailSubmission", "Identity"))
        using = [CORE, MAIL, *([SUBMISSION] if uses_submission else [])]
        once = any(name in arguments for name in _CREATES)
        request, url = {"using": using, "methodCalls": [call]}, self._url(session["apiUrl"])
        body = await self.api.json("POST", url, body=request, once=once)
        # A method may trigger others; their responses follow its own.
        name, response = next(
            ((n, r) for n, r, number in body.get("methodResponses", []) if number == "0"), ("", {})
        )
        if name == "error":
            raise method_error(method, response)
        if name != method:
            raise ProviderError(f"{method}: the response of the server is missing")
        return dict(response)

    def _url(self, text: str) -> str:
        return urljoin(self._session_url or self.api.base, text)

    async def download(self, blob_id: str) -> bytes:
        session = await self.session()
        values = {"blobId": blob_id, "name": "message.eml", "type": "application/octet-stream"}
        url = _expand(session["downloadUrl"], accountId=await self.account_id(), **values)
        return await self.api.request("GET", self._url(url))

    async def upload(self, content: bytes) -> str:
        session = await self.session()
        url = _expand(session["uploadUrl"], accountId=await self.account_id())
        headers = {"Content-Type": "message/rfc822"}
        try:
            response = await self.api.json("POST", self._url(url), content=content, headers=headers)
        except ApiRefused as error:
            if error.status != _NOT_FOUND:
                raise
            # The session named this URL: the server failed, or it has moved since.
            self._session = {}
            raise ProviderError(str(error)) from error
        return str(response["blobId"])

    async def has_events(self) -> bool:
        """Whether the event stream works: some servers name a URL that does not exist."""
        if not (await self.session()).get("eventSourceUrl"):
            return False
        with suppress(ProviderError):
            async with self._events(closeafter="state", read_s=CONNECT_EVENTS_S) as response:
                return response.status_code == 200
        return False

    async def states(self) -> AsyncIterator[str]:
        """The state of the account's mail after each change (RFC 8620 §7.3)."""
        account_id = await self.account_id()
        async with self._events(closeafter="no", read_s=READ_TIMEOUT_S) as response:
            if response.status_code != 200:
                raise ApiRefused("the server has no event stream", status=response.status_code)
            async for line in response.aiter_lines():
                if line.startswith("data:") and (state := _state(line[5:], account_id)):
                    yield state

    @asynccontextmanager
    async def _events(self, *, closeafter: str, read_s: float) -> AsyncIterator[httpx2.Response]:
        template = (await self.session())["eventSourceUrl"]
        url = self._url(_expand(template, types="Email", closeafter=closeafter, ping=str(PING_S)))
        headers = {"Accept": "text/event-stream"}
        async with self.api.stream("GET", url, headers=headers, read_s=read_s) as response:
            yield response


def method_error(method: str, refused: Mapping[str, Any]) -> MailError:
    """The error for a failed method, or for one object of it (RFC 8620 §3.6.2, §5.3).

    A busy server has not executed the method; a broken one may have.
    """
    kind, message = str(refused.get("type", "error")), f"{method}: {error_text(refused)}"
    if kind in _BUSY:
        return RateLimited(message, retry_after=BUSY_S)
    return (MethodFailed if kind in _SERVER_FAILURES else MethodRefused)(message, kind)


def error_text(refused: Mapping[str, Any]) -> str:
    """The type and description of a SetError (RFC 8620 §5.3)."""
    return f"{refused.get('type', 'no')} {refused.get('description') or ''}".strip()[:300]


def _limit(session: dict[str, Any], path: tuple[str, ...], default: int) -> int:
    value: Any = session
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return min(value, default) if isinstance(value, int) and value > 0 else default


def _state(text: str, account_id: str) -> str | None:
    try:
        changed = json.loads(text).get("changed", {})
    except (ValueError, AttributeError, RecursionError):
        return None
    state = changed.get(account_id, {}).get("Email") if isinstance(changed, dict) else None
    return state if isinstance(state, str) else None


def _expand(template: str, **values: str) -> str:
    for name, value in values.items():
        template = template.replace("{" + name + "}", quote(value, safe=""))
    return template
