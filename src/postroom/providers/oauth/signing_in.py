"""Signing in with OAuth 2: in a browser that comes back to us (RFC 8252, with PKCE), by a code
for another device (RFC 8628), or by pasting where the browser ended."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from postroom.errors import InvalidInput, ProviderAuthFailed, ProviderError
from postroom.ports.vault import Secret
from postroom.providers.web.api import refuse_clear_text
from postroom.providers.web.sense import asking

_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_WAIT_S = 600.0
NOWHERE = "http://127.0.0.1:1/"
"""Where a browser is sent whose last address is pasted: nobody listens there."""

_HEADER_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Client:
    """Who we are for a provider, where one signs in, and what for."""

    authorize_url: str
    token_url: str
    client_id: str
    scopes: tuple[str, ...]
    client_secret: str | None = field(default=None, repr=False)
    device_url: str | None = None
    extras: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Visit:
    """A sign-in under way: where to send the person, and what only we know of it."""

    url: str
    redirect: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)


def begin(client: Client, redirect: str) -> Visit:
    """Begin a sign-in in a browser."""
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(24)
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect,
        "scope": " ".join(client.scopes),
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        **client.extras,
    }
    return Visit(f"{client.authorize_url}?{urlencode(query)}", redirect, state, verifier)


def code_in(visit: Visit, pasted: str) -> str:
    """The code in the address where a browser ended, or the code itself.

    Raises:
        InvalidInput: it belongs to another sign-in, or there is none.
        ProviderAuthFailed: the person or the provider said no.
    """
    text = pasted.strip()
    if "?" not in text and "=" not in text and text:
        return text
    query = parse_qs(urlsplit(text).query or text)
    if "error" in query:
        raise ProviderAuthFailed(f"the provider said {query['error'][0][:200]}; sign in again")
    if not secrets.compare_digest(query.get("state", [""])[0], visit.state):
        raise InvalidInput("this belongs to another sign-in; begin again")
    if not query.get("code"):
        raise InvalidInput("there is no code in it; paste the whole address of the last page")
    return query["code"][0]


@asking
async def exchange(client: Client, visit: Visit, code: str) -> Secret:
    """Tokens for a code. Raises ProviderAuthFailed."""
    return await _tokens(
        client,
        {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": visit.redirect,
            "code_verifier": visit.verifier,
        },
    )


@asking
async def refresh(client: Client, token: str) -> Secret:
    """New tokens for a refresh token, which may be replaced. Raises ProviderAuthFailed."""
    return await _tokens(client, {"grant_type": "refresh_token", "refresh_token": token})


async def _tokens(client: Client, form: Mapping[str, str]) -> Secret:
    status, body = await _post(client.token_url, {**form, **_identity(client)})
    if status >= 500:
        raise ProviderError(f"the sign-in of the provider answers {status}; try again later")
    if status >= 400 or "access_token" not in body:
        said = body.get("error", status)
        raise ProviderAuthFailed(f"the sign-in is not valid any more ({str(said)[:100]})")
    return _secret(body)


def _identity(client: Client) -> dict[str, str]:
    given = {"client_id": client.client_id}
    return given | ({"client_secret": client.client_secret} if client.client_secret else {})


def _secret(body: Mapping[str, Any]) -> Secret:
    found = {"access_token": str(body["access_token"])}
    if body.get("refresh_token"):
        found["refresh_token"] = str(body["refresh_token"])
    if isinstance(body.get("expires_in"), (int, float, str)):
        found["expires_at"] = str(int(time.time()) + int(body["expires_in"]))
    return found


async def _post(url: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    refuse_clear_text(url)
    try:
        async with httpx2.AsyncClient(timeout=30, follow_redirects=False) as http:
            response = await http.post(url, data=dict(form))
            body = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise ProviderError(f"no answer from the sign-in: {type(error).__name__}") from error
    return response.status_code, body if isinstance(body, dict) else {}


@dataclass(frozen=True, slots=True)
class DeviceVisit:
    """A sign-in on another device: what to type where."""

    user_code: str
    url: str
    device_code: str = field(repr=False)
    interval_s: int = 5
    expires_s: int = 900


@asking
async def begin_device(client: Client) -> DeviceVisit:
    """Begin a sign-in on another device."""
    if client.device_url is None:
        raise InvalidInput("this provider has no sign-in by device code")
    form = {"client_id": client.client_id, "scope": " ".join(client.scopes)}
    status, body = await _post(client.device_url, form)
    if status >= 400 or "device_code" not in body:
        raise ProviderAuthFailed(f"the provider said {str(body.get('error', status))[:100]}")
    url = body.get("verification_uri") or body.get("verification_url") or ""
    return DeviceVisit(
        str(body["user_code"]),
        str(url),
        str(body["device_code"]),
        int(body.get("interval", 5)),
        int(body.get("expires_in", 900)),
    )


@asking
async def finish_device(client: Client, visit: DeviceVisit) -> Secret:
    """Wait until the person has signed in. Raises ProviderAuthFailed."""
    interval = max(visit.interval_s, 1)
    end = time.monotonic() + visit.expires_s
    while time.monotonic() < end:
        form = {"grant_type": _DEVICE, "device_code": visit.device_code, **_identity(client)}
        status, body = await _post(client.token_url, form)
        if status < 400 and "access_token" in body:
            return _secret(body)
        said = body.get("error")
        if said == "slow_down":
            interval += 5
        elif said != "authorization_pending":
            raise ProviderAuthFailed(f"the provider said {str(said or status)[:100]}")
        await asyncio.sleep(interval)
    raise ProviderAuthFailed("the code was not used in time; begin again")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """A place on this machine for a browser to come back to, and what it brings."""
    brought: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await asyncio.wait_for(reader.readline(), 10))[:_HEADER_BYTES]
            target = line.split(b" ")[1].decode("ascii", "replace") if b" " in line else "/"
            is_ours = "state=" in target
            said = "You are signed in. You may close this page." if is_ours else "Not here."
            page = f"<!doctype html><title>Postroom</title><p>{html.escape(said)}</p>".encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}"
            writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + page)
            await writer.drain()
            if is_ours and not brought.done():
                brought.set_result(target)
        except (TimeoutError, OSError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=_HEADER_BYTES)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/", brought
    finally:
        server.close()
        if not brought.done():
            brought.cancel()


async def sign_in_here(client: Client, show: Any) -> Secret:
    """Sign in with a browser on this machine; *show* is told the address to open."""
    async with listening() as (redirect, brought):
        visit = begin(client, redirect)
        show(visit.url)
        try:
            target = await asyncio.wait_for(brought, _WAIT_S)
        except TimeoutError:
            raise ProviderAuthFailed("nobody signed in within ten minutes; begin again") from None
    return await exchange(client, visit, code_in(visit, target))
