"""OAuth clients (documents, registration, redirection), and tokens (exchange, refresh, revocation).

A client is named by the HTTPS URL of a JSON document (OAuth Client ID Metadata Document), or has
registered itself (RFC 7591). All are public clients, which PKCE protects. Documents are fetched for
a person who is signed in, and for nobody else: a stranger cannot make this server send requests.

Only the hashes of codes and tokens are stored. A code and a refresh token work once. Whoever
presents one again has stolen it, or it was stolen from them: then the grant ends, and with it all
of its tokens (RFC 9700 §4.14).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit

from postroom.calls.authentication import hash_secret, random_secret
from postroom.errors import FeatureDisabled, InvalidInput, MailError, NotFound, Unauthenticated
from postroom.mail.text.invisible import cleaned
from postroom.model.event import AuditRecord
from postroom.model.key import (
    IssuedTokens,
    Key,
    OAuthClient,
    OAuthToken,
    TokenKind,
    is_document_url,
)
from postroom.model.values import dataclass
from postroom.pipeline.services import Services

UNUSED_CLIENT_LIFETIME = timedelta(days=1)
"""How long a registered client may take until a person grants access."""

MAX_ID_CHARS, MAX_URI_CHARS, MAX_URIS = 500, 1_000, 20
_NAME_CHARS = 80
_LOOPBACK = frozenset({"127.0.0.1", "[::1]", "localhost"})
_APP_SCHEMES = frozenset(
    ("claude", "codex", "cursor", "goose", "jetbrains", "kiro", "lmstudio", "raycast", "trae",
     "vscode", "vscode-insiders", "vscodium", "warp", "windsurf", "zed")
)  # fmt: skip
"""Schemes of known programs that are not a domain in reverse, as RFC 8252 §7.1 requires."""

_URI = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+", re.ASCII)
"""The characters of a URI without a fragment (RFC 3986)."""
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_DOT_SEGMENT = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
_SHARED_SECRETS = frozenset({"client_secret_basic", "client_secret_post", "client_secret_jwt"})


async def find_client(services: Services, client_id: str) -> OAuthClient:
    """The client with this id; its document is fetched unless it was a moment ago.

    Raises NotFound or InvalidInput, with what the person can do.
    """
    if is_document_url(client_id):
        return services.oauth.recent.get(client_id) or await _fetch_client(services, client_id)
    found = await _registered(services, client_id)
    if found is None:
        raise NotFound(
            f"client_id: no client {client_id[:100]!r} has registered here, or its registration "
            "has expired. Remove this server from the program and add it again. Programs register "
            "at /register, or use the HTTPS URL of a client ID metadata document as their client_id"
        )
    return found


async def _registered(services: Services, client_id: str) -> OAuthClient | None:
    if len(client_id) > MAX_ID_CHARS:
        return None
    return await services.store.oauth_client(client_id, services.clock())


async def _fetch_client(services: Services, client_id: str) -> OAuthClient:
    _check_document_url(client_id)
    try:
        body = await services.oauth.documents.get(client_id, {"Accept": "application/json"})
    except MailError as error:
        raise InvalidInput(f"client_id: its metadata document cannot be read: {error}") from error
    client = _client_of(client_id, body)
    services.oauth.recent.put(client)
    return client


def _check_document_url(client_id: str) -> None:
    """Raise InvalidInput for what the draft does not allow as the URL of a document (§3)."""
    url = _parsed(client_id)
    if len(client_id) > MAX_ID_CHARS or url is None or url.path in ("", "/"):
        raise InvalidInput(
            "client_id: write it as https://host/path, without user, password or fragment, in at "
            f"most {MAX_ID_CHARS} characters"
        )
    if _DOT_SEGMENT.search(url.path):
        raise InvalidInput("client_id: its path must not contain . or .. as a segment")


def _client_of(client_id: str, body: bytes) -> OAuthClient:
    """The client that a document describes. Raises InvalidInput."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidInput("client_id: its metadata document is not a JSON object")
    if document.get("client_id") != client_id:
        raise InvalidInput("client_id: its metadata document names another client_id")
    method = document.get("token_endpoint_auth_method", "none")
    if method in _SHARED_SECRETS or "client_secret" in document:
        raise InvalidInput(
            "client_id: its metadata document is public and must not contain or require a "
            "client secret"
        )
    return OAuthClient(client_id, _name(document), checked_redirects(document))


def _name(metadata: dict[str, Any]) -> str:
    name = metadata.get("client_name")
    text = " ".join(cleaned(name).split()) if isinstance(name, str) else ""
    return text[:_NAME_CHARS] or "A program without a name"


def checked_redirects(metadata: dict[str, Any]) -> tuple[str, ...]:
    """The redirect URIs of a client. Raises InvalidInput for one that cannot be allowed."""
    uris = metadata.get("redirect_uris")
    if not isinstance(uris, list) or not 1 <= len(uris) <= MAX_URIS:
        raise InvalidInput(f"redirect_uris: give 1 to {MAX_URIS} URIs")
    for uri in uris:
        _check_redirect(uri)
    return tuple(uris)


def _check_redirect(uri: object) -> None:
    """HTTPS anywhere, HTTP on loopback (RFC 8252 §7.3), and the schemes of programs (§7.1)."""
    url = _parsed(uri) if isinstance(uri, str) and len(uri) <= MAX_URI_CHARS else None
    if url is None:
        raise InvalidInput("redirect_uris: not a URI without user, password and fragment")
    if url.scheme == "https" or is_loopback(url):
        return
    is_app = "." in url.scheme or url.scheme in _APP_SCHEMES
    if url.scheme in ("http", "https") or not is_app:
        raise InvalidInput(
            f"redirect_uris: {url.scheme} is not allowed here; use https, http on 127.0.0.1, [::1] "
            "or localhost, or a scheme of your own that is your domain in reverse (RFC 8252)"
        )


def _parsed(uri: str) -> SplitResult | None:
    """The parts of a URI; None if it has a user, a fragment, or over HTTP no proper host."""
    try:
        url = urlsplit(uri)
        is_port_valid = url.port != 0
    except ValueError:
        return None
    is_web = url.scheme in ("http", "https")
    if is_web and not (is_port_valid and _HOST.fullmatch(url.netloc)):
        return None
    # `urlsplit` drops what a browser might see, such as a line end, and folds the scheme
    is_plain = _URI.fullmatch(uri) and "@" not in url.netloc and url.geturl() == uri
    return url if is_plain and _SCHEME.fullmatch(url.scheme) else None


def is_loopback(url: SplitResult) -> bool:
    """Whether a redirect stays on the machine of the browser."""
    return url.scheme == "http" and _host(url) in _LOOPBACK


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition(":")[0] if url.port is not None else url.netloc


def is_registered(client: OAuthClient, redirect_uri: str) -> bool:
    """Whether a client may be redirected there: exactly, but for the port on loopback."""
    if redirect_uri in client.redirect_uris:
        return True
    url = _parsed(redirect_uri) if len(redirect_uri) <= MAX_URI_CHARS else None
    if url is None or not is_loopback(url):
        return False
    return any(
        url._replace(netloc=_host(url)) == one._replace(netloc=_host(one))
        for one in map(urlsplit, client.redirect_uris)
        if is_loopback(one)
    )


async def register_client(services: Services, metadata: dict[str, Any]) -> OAuthClient:
    """Register a client (RFC 7591). Raises InvalidInput, FeatureDisabled."""
    if not services.oauth.registration:
        raise FeatureDisabled("clients cannot register here: POSTROOM_OAUTH_REGISTRATION is off")
    now = services.clock()
    uris = checked_redirects(metadata)
    client = OAuthClient(services.new_id("cli"), _name(metadata), uris)
    await services.store.add_oauth_client(client, now=now, expires_at=now + UNUSED_CLIENT_LIFETIME)
    return client


CODE_LIFETIME = timedelta(seconds=60)
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
"""A code challenge of the method S256 (RFC 7636 §4.2)."""

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


def new_token(cell: str | None = None) -> str:
    """A new random code or token of this cell; unlike a key, it is not meant for people."""
    return random_secret("po_", cell, "_")


def resource_of(base_url: str) -> str:
    """The resource that this server protects (RFC 8707)."""
    return f"{base_url}/mcp"


def is_resource(named: str, resource: str) -> bool:
    """Whether a client names this resource: a slash at its end and a default port are the same."""
    found = _canonical(named)
    return found is not None and found == _canonical(resource)


def _canonical(named: str) -> str | None:
    """A resource in the form in which it is compared; None if it is no URL of one."""
    try:
        url = urlsplit(named)
        usual = {"http": 80, "https": 443}.get(url.scheme)
        port = "" if url.port in (None, usual) else f":{url.port}"
    except ValueError:
        return None
    if "@" in url.netloc or url.query or url.fragment or not url.hostname:
        return None
    return f"{url.scheme}://{url.hostname}{port}{url.path.removesuffix('/')}"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What a client sends to the token endpoint, and for which resource we answer."""

    client_id: str
    secret: str
    """The code or the refresh token."""
    resource: str
    named_resource: str | None = None
    redirect_uri: str | None = None
    code_verifier: str | None = None


async def redeem_code(services: Services, request: TokenRequest) -> IssuedTokens:
    """Exchange a code for tokens. Raises Unauthenticated, InvalidInput."""
    code = await _find(services, request, "code")
    if request.redirect_uri not in (None, code.redirect_uri):  # OAuth 2.1 needs it no more
        raise invalid_grant("redirect_uri: differs from that of the authorization request")
    verifier = request.code_verifier or ""
    if not _VERIFIER.fullmatch(verifier) or not _is_challenge(verifier, code.code_challenge or ""):
        raise invalid_grant("code_verifier: does not match the code_challenge")
    return await _exchange(services, request, code)


async def refresh_tokens(services: Services, request: TokenRequest) -> IssuedTokens:
    """Exchange a refresh token for new tokens. Raises Unauthenticated, InvalidInput."""
    return await _exchange(services, request, await _find(services, request, "refresh"))


async def check_client(services: Services, client_id: str) -> None:
    """Raise Unauthenticated for a client that has not registered: it then registers again.

    The document of a client that has one is not requested.
    """
    if not is_document_url(client_id) and await _registered(services, client_id) is None:
        raise Unauthenticated("client_id: unknown, or its registration has expired; register again")


async def _find(services: Services, request: TokenRequest, kind: TokenKind) -> OAuthToken:
    """The code or refresh token of a request, if it is valid for this client and resource."""
    await check_client(services, request.client_id)
    if request.named_resource and not is_resource(request.named_resource, request.resource):
        raise InvalidInput(f"resource: must be {request.resource}", oauth="invalid_target")
    found = await services.store.oauth_token(hash_secret(request.secret))
    if found is None or found.kind != kind or found.client_id != request.client_id:
        raise invalid_grant(f"this {_NAMES[kind]} is unknown, or was revoked")
    if found.used_at is not None:
        await end_grant(services, found, "token used twice")
        raise invalid_grant(f"this {_NAMES[kind]} was used before; its grant has ended")
    if found.resource != request.resource:
        raise invalid_grant(f"this {_NAMES[kind]} is for another resource")
    if found.expires_at <= services.clock() or await _has_ended(services, found):
        raise invalid_grant(f"this {_NAMES[kind]} has expired; request access again")
    return found


_NAMES = {"code": "code", "refresh": "refresh token", "access": "access token"}


def invalid_grant(reason: str) -> InvalidInput:
    """The error for a code or token that is not valid (RFC 6749 §5.2)."""
    return InvalidInput(reason, oauth="invalid_grant")


async def _has_ended(services: Services, token: OAuthToken) -> bool:
    keys = await services.store.keys_by_id([token.key_id])
    return not keys or keys[0].has_expired(services.clock())


def _is_challenge(verifier: str, challenge: str) -> bool:
    digest = hashlib.sha256(verifier.encode()).digest()
    computed = urlsafe_b64encode(digest).rstrip(b"=")
    return hmac.compare_digest(computed, challenge.encode())


async def _exchange(services: Services, request: TokenRequest, old: OAuthToken) -> IssuedTokens:
    now, options = services.clock(), services.oauth
    access, refresh = new_token(services.cell), new_token(services.cell)
    tokens = {
        hash_secret(access): _next(old, "access", now, options.access_lifetime_s),
        hash_secret(refresh): _next(old, "refresh", now, options.refresh_lifetime_s),
    }
    store = services.store.by(_ends(old, now, "token used twice"))
    key = await store.exchange_token(hash_secret(request.secret), tokens, now=now)
    if key is None:
        raise invalid_grant(f"this {_NAMES[old.kind]} was used before; its grant has ended")
    return IssuedTokens(access, refresh, _lasts_s(key, now, options.access_lifetime_s), key.scopes)


def _lasts_s(key: Key, now: datetime, most_s: int) -> int:
    """How long an access token works: it ends with its grant."""
    if key.expires_at is None:
        return most_s
    return min(most_s, int((key.expires_at - now).total_seconds()))


def _next(old: OAuthToken, kind: TokenKind, now: datetime, lasts_s: int) -> OAuthToken:
    ends = now + timedelta(seconds=lasts_s)
    return OAuthToken(kind, old.key_id, old.client_id, old.resource, now, ends)


def _ends(token: OAuthToken, now: datetime, reason: str) -> AuditRecord:
    about = {"reason": reason, "name": token.client_id}
    return AuditRecord(token.key_id, "end_grant", now, (token.key_id,), about, via="mcp")


async def end_grant(services: Services, token: OAuthToken, reason: str) -> None:
    """End the grant of a token, and with it all of its tokens."""
    store = services.store.by(_ends(token, services.clock(), reason))
    await store.remove_key(token.key_id)


async def revoke_token(services: Services, client_id: str, secret: str) -> None:
    """Revoke a token (RFC 7009): with a refresh token ends the grant, with an access token only
    this token. One that is unknown, or of another client, is left as it is."""
    await check_client(services, client_id)
    secret_hash = hash_secret(secret)
    found = await services.store.oauth_token(secret_hash)
    if found is None or found.client_id != client_id:
        return
    if found.kind == "access":
        await services.store.remove_token(secret_hash)
    else:
        await end_grant(services, found, "revoked by its client")
