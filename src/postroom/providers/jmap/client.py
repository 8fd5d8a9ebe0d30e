"""JMAP (RFC 8620, RFC 8621): the session, method calls, blobs, and its events. It knows nothing
of us."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from postroom.errors import MailError, ProviderError, RateLimited
from postroom.providers.web.api import Api, ApiRefused

CORE = "urn:ietf:params:jmap:core"
MAIL = "urn:ietf:params:jmap:mail"
SUBMISSION = "urn:ietf:params:jmap:submission"
PING_S = 60
SILENCE_S = 240.0
"""A connection that says nothing for so long is dead: it was asked to ping every minute."""

FIRST_WORD_S = 10.0
"""How long a server may take to begin with its events."""

BUSY_S = 30
"""How long we leave a server alone that has no time for us; it does not say how long."""

_REDIRECTS = (301, 302, 303, 307, 308)
_BUSY = ("rateLimit", "serverUnavailable")
_BROKEN = ("serverFail", "serverPartialFail")
_MAKES = ("create", "emails")
"""What a method is told to make: asked again, it would make it again."""


class MethodRefused(ProviderError):
    """A method answered with an error; `type` is its name (RFC 8620 §3.6.2)."""

    retryable = False

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message, provider_said=kind)
        self.type = kind


class MethodFailed(MethodRefused):
    """A method broke on the server's side; what it has done is not certain."""

    retryable = True


@dataclass(eq=False)
class JmapClient:
    """One account at a JMAP server."""

    api: Api
    well_known: str = "/.well-known/jmap"
    _session: dict[str, Any] = field(default_factory=dict)
    _from: str = ""

    async def session(self) -> dict[str, Any]:
        """The session, asked once; it tells where everything else is."""
        if not self._session:
            self._session, self._from = await self._ask_session()
        return self._session

    async def _ask_session(self) -> tuple[dict[str, Any], str]:
        url = self.api.base + self.well_known
        for _ in range(4):
            said = await self.api.authorizer.header()
            async with self.api.stream("GET", url, said=said) as response:
                status, location = response.status_code, response.headers.get("Location")
            if status not in _REDIRECTS or not location:
                break
            other = urljoin(url, location)
            if urlsplit(other).hostname != urlsplit(url).hostname:
                raise ProviderError("the JMAP server sends us to another host; name that one")
            url = other
        body = await self.api.json("GET", url)
        if not isinstance(body, dict) or "apiUrl" not in body:
            raise ProviderError("the server does not answer with a JMAP session")
        return body, url

    async def account_id(self, capability: str = MAIL) -> str:
        session = await self.session()
        found = session.get("primaryAccounts", {}).get(capability)
        if not found:
            raise ProviderError(f"this login has no account for {capability.rpartition(':')[2]}")
        return str(found)

    async def can(self, capability: str) -> bool:
        return capability in (await self.session()).get("primaryAccounts", {})

    def limit(self, name: str, default: int) -> int:
        """What the server allows, but no more than *default*."""
        return _limit(self._session, ("capabilities", CORE, name), default)

    def mail_limit(self, name: str, default: int) -> int:
        """The same for mail of the account (RFC 8621 §1.3.1)."""
        primary = self._session.get("primaryAccounts")
        account_id = primary.get(MAIL) if isinstance(primary, dict) else None
        path = ("accounts", str(account_id), "accountCapabilities", MAIL, name)
        return _limit(self._session, path, default)

    async def call(self, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Call methods in one request; their answers in order. Raises what `refusal` makes."""
        session = await self.session()
        account_id = await self.account_id()
        named = [
            [name, {"accountId": account_id, **arguments}, str(number)]
            for number, (name, arguments) in enumerate(calls)
        ]
        uses_submission = any(n.startswith(("EmailSubmission", "Identity")) for n, _ in calls)
        using = [CORE, MAIL, *([SUBMISSION] if uses_submission else [])]
        makes = any(word in arguments for _, arguments in calls for word in _MAKES)
        body = await self.api.json(
            "POST",
            self._url(session["apiUrl"]),
            body={"using": using, "methodCalls": named},
            once=makes,
        )
        return _answers([name for name, _ in calls], body.get("methodResponses", []))

    def _url(self, text: str) -> str:
        return urljoin(self._from or self.api.base, text)

    async def download(self, blob_id: str) -> bytes:
        session = await self.session()
        url = _filled(
            session["downloadUrl"],
            accountId=await self.account_id(),
            blobId=blob_id,
            name="message.eml",
            type="application/octet-stream",
        )
        return await self.api.ask("GET", self._url(url))

    async def upload(self, content: bytes) -> str:
        session = await self.session()
        url = _filled(session["uploadUrl"], accountId=await self.account_id())
        answer = await self.api.json(
            "POST", self._url(url), content=content, headers={"Content-Type": "message/rfc822"}
        )
        return str(answer["blobId"])

    async def has_events(self) -> bool:
        """Whether the server tells of changes: some name a place for it and have nothing there."""
        if not (await self.session()).get("eventSourceUrl"):
            return False
        with suppress(ProviderError):
            async with self._events(closeafter="state", read_s=FIRST_WORD_S) as response:
                return response.status_code == 200
        return False

    async def states(self) -> AsyncIterator[str]:
        """The state of the account's mail, each time that it changes (RFC 8620 §7.3)."""
        account_id = await self.account_id()
        async with self._events(closeafter="no", read_s=SILENCE_S) as response:
            if response.status_code != 200:
                raise ApiRefused("the server has no events", status=response.status_code)
            async for line in response.aiter_lines():
                if line.startswith("data:") and (state := _state(line[5:], account_id)):
                    yield state

    @asynccontextmanager
    async def _events(self, *, closeafter: str, read_s: float) -> AsyncIterator[httpx2.Response]:
        template = (await self.session())["eventSourceUrl"]
        url = self._url(_filled(template, types="Email", closeafter=closeafter, ping=str(PING_S)))
        headers = {"Accept": "text/event-stream"}
        async with self.api.stream("GET", url, headers=headers, read_s=read_s) as response:
            yield response


def _answers(names: list[str], responses: Any) -> list[dict[str, Any]]:
    """The answer to each call; what else a method has done of itself follows its own answer."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, arguments, number in responses:
        found.setdefault(number, (name, arguments))
    answers = []
    for number, wanted in enumerate(names):
        name, arguments = found.get(str(number), ("", {}))
        if name == "error":
            raise refusal(wanted, arguments)
        if name != wanted:
            raise ProviderError(f"{wanted}: the server does not say what became of it")
        answers.append(arguments)
    return answers


def refusal(what: str, refused: Mapping[str, Any]) -> MailError:
    """The error for what a method says, of itself or of one thing (RFC 8620 §3.6.2, §5.3).

    A server that has no time has done nothing; one that broke says so too, but who knows.
    """
    kind, message = str(refused.get("type", "error")), f"{what}: {said_of(refused)}"
    if kind in _BUSY:
        return RateLimited(message, retry_after=BUSY_S)
    return (MethodFailed if kind in _BROKEN else MethodRefused)(message, kind)


def said_of(refused: Mapping[str, Any]) -> str:
    """What a server says of the one thing that it did not do (RFC 8620 §5.3)."""
    said = f"{refused.get('type', 'no')} {refused.get('description') or ''}"
    return said.strip()[:300]


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


def _filled(template: str, **values: str) -> str:
    for name, value in values.items():
        template = template.replace("{" + name + "}", quote(value, safe=""))
    return template
