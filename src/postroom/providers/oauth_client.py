"""OAuth 2: clients, sign-in and access tokens.

A person signs in with a browser on this machine (RFC 8252, with PKCE), with a device code
(RFC 8628), or by pasting the address that the browser was redirected to.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, ProviderAuthFailed, ProviderError
from postroom.model.account import SLOW_DOWN_S, DeviceAnswer, DeviceSignIn, SignIn
from postroom.ports.provider import Secret, Vault
from postroom.providers.web.api import checks_response, require_https

_checked_response = checks_response("the sign-in server")
_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_DEVICE_REFUSALS = {
    "expired_token": "the code expired",
    "code_expired": "the code expired",
    "access_denied": "the sign-in was refused at the provider",
    "authorization_declined": "the sign-in was refused at the provider",
}
_SIGN_IN_S = 600.0
_HEADER_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Client:
    """A registered OAuth client, with the URLs and scopes for its sign-ins."""

    authorize_url: str
    token_url: str
    client_id: str
    scopes: tuple[str, ...]
    client_secret: str | None = field(default=None, repr=False)
    device_url: str | None = None
    extras: Mapping[str, str] = field(default_factory=dict)


def _random_state(_verifier: str) -> str:
    return secrets.token_urlsafe(24)


def start_sign_in(
    client: Client, redirect: str, state_of: Callable[[str], str] = _random_state
) -> SignIn:
    """Start a sign-in in a browser; *state_of* makes its state from the code verifier."""
    verifier = secrets.token_urlsafe(64)
    state = state_of(verifier)
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
    return SignIn(f"{client.authorize_url}?{urlencode(query)}", redirect, state, verifier)


def code_of(sign_in: SignIn, pasted: str) -> str:
    """The code in the pasted redirect URL, or the pasted code itself.

    Raises:
        InvalidInput: the URL belongs to another sign-in, or has no code.
        ProviderAuthFailed: the person or the provider refused.
    """
    text = pasted.strip()
    if "?" not in text and "=" not in text and text:
        return text
    query = parse_qs(urlsplit(text).query or text)
    if "error" in query:
        raise ProviderAuthFailed(f"the provider answered {query['error'][0][:200]}; sign in again")
    if not secrets.compare_digest(query.get("state", [""])[0], sign_in.state):
        raise InvalidInput("this URL belongs to another sign-in; start again")
    if not query.get("code"):
        raise InvalidInput("the URL has no code; paste the whole address of the last page")
    return query["code"][0]


@_checked_response
async def exchange(client: Client, sign_in: SignIn, code: str) -> Secret:
    """Exchange a code for tokens. Raises ProviderAuthFailed."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": sign_in.redirect}
    return await _tokens(client, {**form, "code_verifier": sign_in.verifier})


@_checked_response
async def refresh(client: Client, token: str) -> Secret:
    """Exchange a refresh token for new tokens. Raises ProviderAuthFailed."""
    return await _tokens(client, {"grant_type": "refresh_token", "refresh_token": token})


async def _tokens(client: Client, form: Mapping[str, str]) -> Secret:
    status, body = await _post(client.token_url, {**form, **_client_parameters(client)})
    if status >= 500:
        where = "the sign-in server of the provider"
        raise ProviderError(f"{where} answered {status}; try again later")
    if status >= 400 or "access_token" not in body:
        reason = str(body.get("error", status))[:100]
        raise ProviderAuthFailed(f"the sign-in is no longer valid ({reason})")
    return _secret(body)


def _client_parameters(client: Client) -> dict[str, str]:
    secret = {"client_secret": client.client_secret} if client.client_secret else {}
    return {"client_id": client.client_id, **secret}


def _secret(body: Mapping[str, Any]) -> Secret:
    found = {"access_token": str(body["access_token"])}
    if body.get("refresh_token"):
        found["refresh_token"] = str(body["refresh_token"])
    if isinstance(body.get("expires_in"), (int, float, str)):
        found["expires_at"] = str(int(time.time()) + int(body["expires_in"]))
    return found


async def _post(url: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    require_https(url)
    try:
        async with httpx2.AsyncClient(timeout=30, follow_redirects=False) as http:
            response = await http.post(url, data=dict(form))
            body = response.json()
    except (httpx2.HTTPError, ValueError, RecursionError) as error:
        kind = type(error).__name__
        raise ProviderError(f"no response from the sign-in server: {kind}") from error
    return response.status_code, body if isinstance(body, dict) else {}


@_checked_response
async def start_device_sign_in(client: Client) -> DeviceSignIn:
    """Start a sign-in on another device."""
    if client.device_url is None:
        raise InvalidInput("this provider has no sign-in by device code")
    form = {"client_id": client.client_id, "scope": " ".join(client.scopes)}
    status, body = await _post(client.device_url, form)
    if status >= 400 or "device_code" not in body:
        raise ProviderAuthFailed(f"the provider answered {str(body.get('error', status))[:100]}")
    url = body.get("verification_uri") or body.get("verification_url") or ""
    return DeviceSignIn(
        str(body["user_code"]),
        str(url),
        str(body["device_code"]),
        int(body.get("interval", 5)),
        int(body.get("expires_in", 900)),
    )


@_checked_response
async def finish_device_sign_in(client: Client, sign_in: DeviceSignIn) -> Secret:
    """Wait until the person has signed in. Raises ProviderAuthFailed."""
    interval = max(sign_in.interval_s, 1)
    end = time.monotonic() + sign_in.expires_s
    while time.monotonic() < end:
        found = await poll_device_sign_in(client, sign_in.device_code)
        if not isinstance(found, str):
            return found
        interval += SLOW_DOWN_S if found == "slow_down" else 0
        await asyncio.sleep(interval)
    raise ProviderAuthFailed("the code expired; start again")


@_checked_response
async def poll_device_sign_in(client: Client, device_code: str) -> Secret | DeviceAnswer:
    """Ask once whether the person has signed in. Raises ProviderAuthFailed."""
    form = {"grant_type": _DEVICE, "device_code": device_code, **_client_parameters(client)}
    status, body = await _post(client.token_url, form)
    if status < 400 and "access_token" in body:
        return _secret(body)
    reason = body.get("error")
    if reason in ("authorization_pending", "slow_down"):
        answer: DeviceAnswer = reason
        return answer
    words = _DEVICE_REFUSALS.get(
        str(reason), f"the provider answered {str(reason or status)[:100]}"
    )
    raise ProviderAuthFailed(f"{words}; start again")


@asynccontextmanager
async def redirect_server() -> AsyncIterator[tuple[str, asyncio.Future[str]]]:
    """Serve a redirect URL on this machine; the future gets the path that the browser requests."""
    redirected: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await asyncio.wait_for(reader.readline(), 10))[:_HEADER_BYTES]
            target = line.split(b" ")[1].decode("ascii", "replace") if b" " in line else "/"
            is_ours = "state=" in target
            text = "You are signed in. You may close this page." if is_ours else "Not found."
            page = f"<!doctype html><title>Postroom</title><p>{text}</p>".encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}"
            writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + page)
            await writer.drain()
            if is_ours and not redirected.done():
                redirected.set_result(target)
        except (TimeoutError, OSError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=_HEADER_BYTES)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/", redirected
    finally:
        server.close()
        if not redirected.done():
            redirected.cancel()


async def sign_in_with_browser(client: Client, show: Any) -> Secret:
    """Sign in with a browser on this machine; *show* gets the URL to open."""
    async with redirect_server() as (redirect, redirected):
        sign_in = start_sign_in(client, redirect)
        show(sign_in.url)
        try:
            target = await asyncio.wait_for(redirected, _SIGN_IN_S)
        except TimeoutError:
            raise ProviderAuthFailed("no sign-in within ten minutes; start again") from None
    return await exchange(client, sign_in, code_of(sign_in, target))


GOOGLE = {
    "read": "https://www.googleapis.com/auth/gmail.modify",
    "send": "https://www.googleapis.com/auth/gmail.send",
}
"""`gmail.modify` is the smallest scope that can change labels."""

MICROSOFT = {"read": "Mail.ReadWrite", "send": "Mail.Send"}


def google_client(
    login_url: str,
    token_url: str,
    client_id: str | None,
    client_secret: str | None,
    scopes: Iterable[str],
) -> Client:
    """The client for Google's sign-in; the extras make it return a refresh token."""
    if not client_id:
        raise InvalidInput(
            "set POSTROOM_GMAIL_CLIENT_ID and POSTROOM_GMAIL_CLIENT_SECRET to your client; "
            "docs/how-to/providers.md explains how to create one"
        )
    return Client(
        authorize_url=f"{login_url}/o/oauth2/v2/auth",
        token_url=f"{token_url}/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=_provider_scopes(GOOGLE, scopes),
        extras={"access_type": "offline", "prompt": "consent"},
    )


def microsoft_client(login_url: str, client_id: str | None, scopes: Iterable[str]) -> Client:
    """The client for Microsoft's sign-in."""
    if not client_id:
        raise InvalidInput(
            "set POSTROOM_OUTLOOK_CLIENT_ID to your client; docs/how-to/providers.md explains "
            "how to create one"
        )
    return Client(
        authorize_url=f"{login_url}/oauth2/v2.0/authorize",
        token_url=f"{login_url}/oauth2/v2.0/token",
        device_url=f"{login_url}/oauth2/v2.0/devicecode",
        client_id=client_id,
        scopes=("offline_access", "User.Read", *_provider_scopes(MICROSOFT, scopes)),
    )


def _provider_scopes(names: dict[str, str], scopes: Iterable[str]) -> tuple[str, ...]:
    """The provider's names of scopes; `read` is always included."""
    return tuple(name for scope, name in names.items() if scope in {"read", *scopes})


RENEW_BEFORE_S = 300
"""How long before its expiry a token is renewed: requests take time, and clocks differ."""

Refresh = Callable[[str], Awaitable[Secret]]
"""Exchanges a refresh token for a new secret. Raises ProviderAuthFailed."""


@dataclass(eq=False)
class Tokens:
    """The tokens of one account, renewed in the vault before they expire."""

    vault: Vault
    account_id: str
    refresh: Refresh
    now: Callable[[], float] = time.time
    _secret: Secret = field(default_factory=dict, repr=False)

    async def header(self) -> str:
        if not self._secret:
            self._secret = self._stored()
        if self._expires_at(self._secret) - RENEW_BEFORE_S <= self.now():
            await self.renew(self._header_of(self._secret))
        return self._header_of(self._secret)

    async def renew(self, refused: str) -> bool:
        async with self._locked():
            stored = self._stored()
            is_other = self._header_of(stored) != refused
            if is_other and self._expires_at(stored) - RENEW_BEFORE_S > self.now():
                self._secret = stored
                return True
            token = stored.get("refresh_token")
            if not token:
                if self._expires_at(stored) > self.now() and is_other:
                    return False
                raise ProviderAuthFailed(
                    f"{self.account_id}: the token expired, and there is no refresh token"
                )
            self._secret = {**stored, **await self.refresh(token)}
            await in_thread(self.vault.write, self.account_id, self._secret)
        return True

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """One renewal at a time: concurrent ones would invalidate each other's refresh token."""
        lock = self.vault.renewal_lock(self.account_id)
        await in_thread(lock.__enter__)
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def _stored(self) -> Secret:
        secret = self.vault.read(self.account_id)
        if secret is None or "access_token" not in secret:
            raise ProviderAuthFailed(f"{self.account_id}: no token is stored here")
        return secret

    @staticmethod
    def _header_of(secret: Secret) -> str:
        return f"Bearer {secret['access_token']}"

    @staticmethod
    def _expires_at(secret: Secret) -> float:
        return float(secret.get("expires_at") or 2**40)
