"""OAuth tokens: a code is exchanged for tokens, tokens are refreshed and revoked.

Only the hashes of codes and tokens are stored. A code and a refresh token work once. Whoever
presents one again has stolen it, or it was stolen from them: then the grant ends, and with it all
of its tokens (RFC 9700 §4.14).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from postroom.calls.authentication import hash_secret, random_secret
from postroom.calls.oauth_clients import is_known
from postroom.errors import InvalidInput, Unauthenticated
from postroom.model.event import AuditRecord
from postroom.model.key import IssuedTokens, Key, OAuthToken, TokenKind
from postroom.model.values import dataclass
from postroom.pipeline.services import Services

CODE_FOR = timedelta(seconds=60)
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
    """Raise Unauthenticated for a client that has not registered: it then registers anew."""
    if not await is_known(services, client_id):
        raise Unauthenticated("client_id: unknown, or its registration has expired; register anew")


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
        raise invalid_grant(f"this {_NAMES[kind]} has expired; ask for access again")
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
        hash_secret(access): _next(old, "access", now, options.access_for_s),
        hash_secret(refresh): _next(old, "refresh", now, options.refresh_for_s),
    }
    store = services.store.by(_ends(old, now, "token used twice"))
    key = await store.exchange_token(hash_secret(request.secret), tokens, now=now)
    if key is None:
        raise invalid_grant(f"this {_NAMES[old.kind]} was used before; its grant has ended")
    return IssuedTokens(access, refresh, _lasts_s(key, now, options.access_for_s), key.scopes)


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
