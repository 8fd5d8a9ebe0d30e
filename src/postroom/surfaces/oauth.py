"""The endpoints of the OAuth server that programs call; the consent page is one of the web pages.

    GET  /.well-known/oauth-protected-resource[/mcp]    what `/mcp` needs (RFC 9728)
    GET  /.well-known/oauth-authorization-server        this server (RFC 8414)
    GET  /.well-known/openid-configuration              the same, for clients that look here
    POST /register                                      RFC 7591
    POST /token                                         a code or refresh token for tokens
    POST /revoke                                        RFC 7009

All URLs are those of `POSTROOM_PUBLIC_URL`. Why the handlers of the SDK are not used:
`docs/decisions/0006-oauth.md`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from msgspec.json import encode
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.admission.rate_limits import RateLimits
from postroom.admission.spool import keyless_client
from postroom.app import App
from postroom.calls.oauth import (
    TokenRequest,
    redeem_code,
    refresh_tokens,
    register_client,
    resource_of,
    revoke_token,
)
from postroom.errors import InvalidInput, MailError, NotFound
from postroom.model.key import IssuedTokens
from postroom.operations.oauth_grants import GRANTABLE
from postroom.surfaces.http import KINDS, RESOURCE_METADATA, server_url

SERVER_METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_SUFFIXES = ("", "/mcp", "/mcp/")
_MAX_BYTES, _MAX_FIELDS = 16_384, 50
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_STATUS = {"unauthenticated": 401, "rate_limited": 429, "unavailable": 503, "too_large": 413}
_CODES = {
    "unauthenticated": "invalid_client",
    "rate_limited": "temporarily_unavailable",
    "unavailable": "temporarily_unavailable",
}
Values = dict[str, str]
Endpoint = Callable[[Request, bytes], Awaitable[Response]]


def oauth_mounts(app: App) -> dict[str, ASGIApp]:
    """The endpoints, under each path where an HTTP server has to mount them."""
    endpoints = Endpoints(app)
    metadata = dict.fromkeys((RESOURCE_METADATA, *SERVER_METADATA), endpoints.metadata)
    return {
        **metadata,
        "/register": endpoints.post("/register", endpoints.register, endpoints.registrations),
        "/token": endpoints.post("/token", endpoints.token, endpoints.exchanges),
        "/revoke": endpoints.post("/revoke", endpoints.revoke, endpoints.exchanges),
    }


class Endpoints:
    """The endpoints; limits are per address, because callers have no key yet."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.registrations = RateLimits(per_second=0.1, burst=20)
        self.exchanges = RateLimits(per_second=10, burst=100)

    async def metadata(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The metadata of the resource or of the server, which anybody may read."""
        path, url = scope["path"], server_url(self._app.settings.public_url, scope)
        prefix = next(one for one in (RESOURCE_METADATA, *SERVER_METADATA) if path.startswith(one))
        if path.removeprefix(prefix) not in _SUFFIXES:
            raise NotFound("there is nothing at this path")
        if scope["method"] not in ("GET", "HEAD"):
            response = Response(status_code=405, headers={"Allow": "GET, HEAD"})
        elif prefix == RESOURCE_METADATA:
            response = _document(_resource(url))
        else:
            response = _document(_server(url, registers=self._app.settings.oauth_registration))
        await response(scope, receive, send)

    def post(self, path: str, endpoint: Endpoint, rates: RateLimits) -> ASGIApp:
        """An application that reads a bounded body, and answers errors as OAuth has them."""

        async def respond(request: Request) -> Response:
            if request.method != "POST":
                return Response(status_code=405, headers={"Allow": "POST"})
            sender = request.client.host if request.client else ""
            stated = request.headers.get("content-length", "")
            chunks, bodies = aiter(request.stream()), self._app.request_bodies
            try:
                rates.take(sender)
                async with bodies.body(chunks, keyless_client(sender), _MAX_BYTES, stated) as body:
                    with self._app.concurrency_limit.slot():
                        return await endpoint(request, body)
            except MailError as error:
                return _error(error)

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"].rstrip("/") != path:
                raise NotFound("there is nothing at this path")
            try:
                response = await respond(Request(scope, receive))
            except ClientDisconnect:
                return
            await response(scope, receive, send)

        return serve

    async def register(self, _request: Request, body: bytes) -> Response:
        """Register a client, always as a public one (RFC 7591 §3.2.1)."""
        try:
            metadata = json.loads(body)
        except (ValueError, RecursionError):
            metadata = None
        if not isinstance(metadata, dict):
            raise InvalidInput("send a JSON object", oauth="invalid_client_metadata")
        try:
            client = await register_client(self._app.services, metadata)
        except InvalidInput as error:
            raise InvalidInput(str(error), oauth="invalid_redirect_uri") from error
        answer = {
            "client_id": client.id,
            "client_id_issued_at": int(self._app.services.clock().timestamp()),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": " ".join(GRANTABLE),
        }
        return Response(encode(answer), 201, _NO_STORE, _JSON)

    async def token(self, request: Request, body: bytes) -> Response:
        """Exchange a code or a refresh token for tokens."""
        given = _form(request, body)
        match given.get("grant_type"):
            case "authorization_code":
                asked = self._token_request(request, given, "code")
                issued = await redeem_code(self._app.services, asked)
            case "refresh_token":
                asked = self._token_request(request, given, "refresh_token")
                issued = await refresh_tokens(self._app.services, asked)
            case _:
                raise InvalidInput(
                    "grant_type: must be authorization_code or refresh_token",
                    oauth="unsupported_grant_type",
                )
        return Response(encode(_answer(issued)), 200, _NO_STORE, _JSON)

    def _token_request(self, request: Request, given: Values, secret: str) -> TokenRequest:
        return TokenRequest(
            client_id=_required(given, "client_id"),
            secret=_required(given, secret),
            resource=resource_of(server_url(self._app.settings.public_url, request.scope)),
            named_resource=given.get("resource"),
            redirect_uri=given.get("redirect_uri"),
            code_verifier=given.get("code_verifier"),
        )

    async def revoke(self, request: Request, body: bytes) -> Response:
        """Revoke a token; one that is not known is revoked already."""
        given = _form(request, body)
        client_id, token = _required(given, "client_id"), _required(given, "token")
        await revoke_token(self._app.services, client_id, token)
        return Response(status_code=200, headers=_NO_STORE)


def _resource(url: str) -> ProtectedResourceMetadata:
    return ProtectedResourceMetadata.model_validate(
        {
            "resource": resource_of(url),
            "authorization_servers": [url],
            "scopes_supported": list(GRANTABLE),
            "bearer_methods_supported": ["header"],
            "resource_name": "Postroom",
        }
    )


def _server(url: str, *, registers: bool) -> OAuthMetadata:
    return OAuthMetadata.model_validate(
        {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "registration_endpoint": f"{url}/register" if registers else None,
            "revocation_endpoint": f"{url}/revoke",
            "scopes_supported": list(GRANTABLE),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
        }
    )


def _document(document: BaseModel) -> Response:
    body = document.model_dump_json(exclude_none=True).encode()
    return Response(body, media_type=_JSON)


def _answer(issued: IssuedTokens) -> dict[str, Any]:
    return {
        "access_token": issued.access_token,
        "token_type": "Bearer",
        "expires_in": issued.expires_in_s,
        "refresh_token": issued.refresh_token,
        "scope": " ".join(issued.scopes),
    }


def _form(request: Request, body: bytes) -> Values:
    """The fields of a form. Raises InvalidInput, also for one that is there twice."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise InvalidInput(f"send {_FORM}")
    try:
        text = body.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidInput("the form cannot be read") from None
    if len(dict(pairs)) != len(pairs):
        raise InvalidInput("each parameter may be given once (RFC 6749 §3.2)")
    return {name: value for name, value in pairs if value}


def _required(given: Values, name: str) -> str:
    if name == "client_id" and name not in given:
        raise InvalidInput(f"{name}: is required", oauth="invalid_client")
    if name not in given:
        raise InvalidInput(f"{name}: is required")
    return given[name]


def _error(error: MailError) -> Response:
    """An error as RFC 6749 §5.2 has it."""
    code = str(error.details.get("oauth") or _CODES.get(error.code, "invalid_request"))
    status = 401 if code == "invalid_client" else _STATUS.get(error.code, KINDS[error.code].status)
    body = {"error": code, "error_description": str(error)}
    headers = dict(_NO_STORE)
    if retry_after := getattr(error, "retry_after", None):
        headers["Retry-After"] = str(retry_after)
    return Response(encode(body), 400 if status == 422 else status, headers, _JSON)
