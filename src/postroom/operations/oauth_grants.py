"""OAuth grants: what a client asks a person for, and the key that they give it."""

from __future__ import annotations

from dataclasses import field, replace
from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from postroom.calls.authentication import hash_secret, new_secret
from postroom.calls.context import RequestContext
from postroom.calls.oauth import (
    CHALLENGE,
    CODE_LIFETIME,
    find_client,
    is_registered,
    is_resource,
    new_token,
    resource_of,
)
from postroom.calls.operation import operation
from postroom.calls.request import Request, argument
from postroom.errors import Forbidden, InvalidInput
from postroom.model.key import OAuthClient, OAuthToken, Scope
from postroom.model.values import dataclass
from postroom.operations.keys import CreateKey, ExpiresAt, OnlyInboxes, new_key
from postroom.operations.outgoing.approvals import refuse_if_limited

GRANTABLE = (Scope.READ, Scope.WRITE, Scope.SEND)
_Text = Annotated[str, Field(max_length=2_000)]


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """What a client requests, and where it is redirected.

    `error` is what is wrong with the request, in words and as a code of RFC 6749 §4.1.2.1: the
    client is known and can be told.
    """

    client: OAuthClient
    redirect_uri: str
    scopes: tuple[Scope, ...]
    error: tuple[str, str] | None = None

    @property
    def host(self) -> str:
        """The host of the redirect, or the scheme of a program on the person's machine."""
        url = urlsplit(self.redirect_uri)
        return url.netloc if url.scheme in ("http", "https") else f"{url.scheme}:"


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant, and the code that the client exchanges for tokens."""

    key_id: str
    code: str = field(repr=False)


class GetAccessRequest(Request):
    """Check what an OAuth client asks for, before a person is asked."""

    issuer: Annotated[_Text, argument("The URL of this server.", "https://mail.example.com")]
    client_id: Annotated[_Text, argument("The client.", "https://app.example/client.json")]
    redirect_uri: Annotated[
        _Text, argument("Where the browser is redirected.", "https://app.example/callback")
    ] = ""
    response_type: Annotated[_Text, argument("Always code.", "code")] = ""
    code_challenge: Annotated[
        _Text,
        argument(
            "The PKCE code challenge (RFC 7636).", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        ),
    ] = ""
    code_challenge_method: Annotated[_Text, argument("Always S256.", "S256")] = ""
    resource: Annotated[
        _Text,
        argument(
            "The resource that the tokens are for (RFC 8707).", "https://mail.example.com/mcp"
        ),
    ] = ""
    scope: Annotated[
        _Text, argument("The requested scopes, separated by spaces.", "read write")
    ] = ""


@operation(Scope.ADMIN)
async def get_access_request(ctx: RequestContext, request: GetAccessRequest) -> AccessRequest:
    """Raises NotFound, InvalidInput if the client or its redirect URI is not known."""
    refuse_if_limited(ctx)
    client = await find_client(ctx, request.client_id)
    if not request.redirect_uri or not is_registered(client, request.redirect_uri):
        raise InvalidInput(
            "redirect_uri: not registered by this client, so the browser is not "
            "redirected. If you came from a "
            "page or mail that you do not trust, close this window"
        )
    return AccessRequest(client, request.redirect_uri, _wanted(request.scope), _error_of(request))


def _wanted(scope: str) -> tuple[Scope, ...]:
    """The scopes that a client wants and can get; all, if it names none of them."""
    named = set(scope.split())
    return tuple(one for one in GRANTABLE if one in named) or GRANTABLE


def _error_of(request: GetAccessRequest) -> tuple[str, str] | None:
    if request.response_type != "code":
        return "unsupported_response_type", "response_type: must be code"
    if request.code_challenge_method != "S256":
        return "invalid_request", "code_challenge_method: must be S256 (PKCE, RFC 7636)"
    if not CHALLENGE.fullmatch(request.code_challenge):
        return "invalid_request", "code_challenge: must be 43 characters (PKCE, RFC 7636)"
    resource = resource_of(request.issuer)
    if request.resource and not is_resource(request.resource, resource):
        return "invalid_target", f"resource: must be {resource}"
    return None


class GrantAccess(GetAccessRequest):
    """Give an OAuth client access: a key that is limited to what the person chose."""

    scopes: Annotated[
        list[Literal[Scope.READ, Scope.WRITE, Scope.SEND]],
        argument("The scopes to grant.", ["read"], min_length=1, max_length=3),
    ]
    inboxes: OnlyInboxes = None
    approval: Annotated[
        Literal["risky", "always"],
        argument("Which of its mail waits for approval.", "always"),
    ] = "always"
    expires_at: ExpiresAt = None


@operation(Scope.ADMIN)
async def grant_access(ctx: RequestContext, request: GrantAccess) -> Grant:
    asked = await get_access_request(ctx, request)
    if asked.error is not None:
        raise InvalidInput(asked.error[1])
    beyond = set(request.scopes) - set(asked.scopes)
    if beyond:
        raise Forbidden(f"scopes: the client did not request {', '.join(sorted(beyond))}")
    key = await new_key(ctx, _key_request(ctx, asked, request))
    code, now = new_token(ctx.cell), ctx.clock()
    token = OAuthToken(
        "code",
        key.id,
        asked.client.id,
        resource_of(request.issuer),
        now,
        now + CODE_LIFETIME,
        redirect_uri=asked.redirect_uri,
        code_challenge=request.code_challenge,
    )
    grant = replace(key, client_id=asked.client.id)
    await ctx.store.add_grant(grant, hash_secret(new_secret()), token, hash_secret(code))
    return Grant(key.id, code)


def _key_request(ctx: RequestContext, asked: AccessRequest, request: GrantAccess) -> CreateKey:
    """The key to make; it ends with the caller's own, at the latest."""
    may_send = Scope.SEND in request.scopes
    return CreateKey(
        name=f"{asked.client.name} ({asked.host})"[:200],
        scopes=list(request.scopes),
        inboxes=request.inboxes,
        approval=request.approval if may_send else None,
        expires_at=request.expires_at or _written(ctx.caller.expires_at),
    )


def _written(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"
