"""Signing in to an account at Google or Microsoft with a browser, in two steps.

Between the steps nothing is stored: the state is encrypted for the caller and returned to them,
so that any process of the server can continue. The first step gives a code to type on any
device (RFC 8628), or a URL whose `state` is this encrypted text (RFC 6749, 7636).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import account_of, call, operation
from postroom.calls.request import Accepts, Request, argument
from postroom.errors import InvalidInput
from postroom.mail.addresses import canonical_address, parse_own_address
from postroom.model.account import (
    SLOW_DOWN_S,
    UNUSED_REDIRECT,
    Account,
    DeviceAnswer,
    ProviderName,
    SignIn,
    SignInProgress,
    StartedSignIn,
)
from postroom.model.key import Scope
from postroom.operations.accounts import (
    SCOPES,
    AccountId,
    AccountScope,
    add_account,
    credentials_of,
    log_in_account,
    refuse_in_use,
    refuse_limited,
)
from postroom.operations.inboxes import Name
from postroom.ports.provider import Secret

_BINDING = b"oauth sign-in"
_BROWSER_LIFETIME = timedelta(minutes=30)
_LONGEST_INTERVAL_S = 60
_LOOPBACK = r"^http://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?/[A-Za-z0-9/_-]{0,100}$"
_GONE = "this sign-in has expired or was started by somebody else; start again"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A sign-in between its steps. Without an address it is one of an account that exists."""

    provider: ProviderName
    account_id: str
    address: str | None
    name: str
    scopes: tuple[str, ...]
    redirect: str
    ends: int = 0
    verifier: str = field(default="", repr=False)
    device_code: str = field(default="", repr=False)
    user_code: str | None = None
    url: str = ""
    interval_s: int = 0

    def sealed(self, ctx: RequestContext) -> str:
        return ctx.cursors.seal(json.dumps(asdict(self)).encode(), _BINDING)

    @classmethod
    def unsealed(cls, ctx: RequestContext, text: str) -> _Pending:
        """Raises InvalidInput if it has expired, or is not one that was started here."""
        try:
            values: dict[str, Any] = json.loads(ctx.cursors.unseal(text, _BINDING))
        except InvalidInput:
            raise InvalidInput(_GONE) from None
        found = cls(**{**values, "scopes": tuple(values["scopes"])})
        if found.ends < ctx.clock().timestamp():
            raise InvalidInput(_GONE)
        return found

    def started(self, sealed: str) -> StartedSignIn:
        return StartedSignIn(
            sealed,
            self.provider,
            self.account_id,
            self.url,
            self.user_code,
            self.interval_s,
            datetime.fromtimestamp(self.ends, UTC),
        )


class StartSignIn(Request):
    """Start to sign in to Gmail or Outlook with a browser, for a new account or an existing one."""

    account_id: Annotated[AccountId, argument("The account, or a name for it.", "work")]
    provider: Annotated[
        Literal["gmail", "outlook"] | None, argument("The provider of a new account.", "gmail")
    ] = None
    address: Annotated[
        Annotated[str, Field(max_length=320), Accepts(request.MAILBOX)] | None,
        argument("The address of a new account.", "ana@example.com"),
    ] = None
    name: Annotated[Name, argument("The name shown as sender.", "Ana Lee")] = ""
    scopes: Annotated[
        list[AccountScope], argument("The allowed operations.", ["read"], max_length=3)
    ] = list(SCOPES)
    redirect: Annotated[
        str,
        Field(max_length=200, pattern=_LOOPBACK),
        argument("The redirect address, on this machine.", "http://127.0.0.1:8700/back"),
    ] = UNUSED_REDIRECT


@operation(Scope.ADMIN, waits=True)
async def start_sign_in(ctx: RequestContext, request: StartSignIn) -> StartedSignIn:
    pending = await _pending(ctx, request)
    if pending.provider == "outlook":
        return await _with_device_code(ctx, pending)
    pending = replace(pending, ends=_in(ctx, _BROWSER_LIFETIME))
    started = ctx.providers.start_sign_in(
        pending.provider,
        pending.scopes,
        pending.redirect,
        lambda verifier: replace(pending, verifier=verifier).sealed(ctx),
    )
    return replace(pending, url=started.url).started(started.state)


def _in(ctx: RequestContext, span: timedelta) -> int:
    return int((ctx.clock() + span).timestamp())


async def _pending(ctx: RequestContext, request: StartSignIn) -> _Pending:
    """What is known before the first step. Raises NotFound, Conflict, InvalidInput."""
    if request.address is None:
        account = await account_of(ctx, request.account_id)
        if account.provider not in ("gmail", "outlook"):
            raise InvalidInput(f"{account.id} is signed in with a password; use log_in_account")
        kept = tuple(account.options.get("scopes", SCOPES))
        return _Pending(account.provider, account.id, None, "", kept, request.redirect)
    refuse_limited(ctx)
    if request.provider is None:
        raise InvalidInput("provider: must be gmail or outlook")
    _, address = parse_own_address(request.address, field="address")
    await refuse_in_use(ctx, request.account_id.lower(), canonical_address(address))
    scopes = tuple(scope for scope in SCOPES if scope in ("read", *request.scopes))
    about = (request.account_id, request.address, request.name)
    return _Pending(request.provider, *about, scopes, request.redirect)


async def _with_device_code(ctx: RequestContext, pending: _Pending) -> StartedSignIn:
    device = await ctx.providers.start_device_sign_in(pending.provider, pending.scopes)
    pending = replace(
        pending,
        ends=_in(ctx, timedelta(seconds=device.expires_s)),
        device_code=device.device_code,
        user_code=device.user_code,
        url=device.url,
        interval_s=max(device.interval_s, 1),
    )
    return pending.started(pending.sealed(ctx))


class FinishSignIn(Request):
    """Go on with a sign-in: add the account or renew its login if the person has signed in."""

    sign_in: Annotated[str, argument("As start_sign_in returned it.", "q83v", max_length=8_000)]
    answer: Annotated[
        str,
        argument("The final address of the browser.", "http://127.0.0.1:1/", max_length=8_000),
    ] = ""


@operation(Scope.ADMIN, waits=True)
async def finish_sign_in(ctx: RequestContext, request: FinishSignIn) -> SignInProgress:
    pending = _Pending.unsealed(ctx, request.sign_in)
    found = await _tokens(ctx, pending, request)
    if not isinstance(found, str):
        return SignInProgress(await _log_in(ctx, pending, found))
    if found == "slow_down":
        longer = min(pending.interval_s + SLOW_DOWN_S, _LONGEST_INTERVAL_S)
        pending = replace(pending, interval_s=longer)
    return SignInProgress(None, pending.started(pending.sealed(ctx)))


async def _tokens(
    ctx: RequestContext, pending: _Pending, request: FinishSignIn
) -> Secret | DeviceAnswer:
    at = (pending.provider, pending.scopes)
    if pending.device_code:
        return await ctx.providers.poll_device_sign_in(*at, pending.device_code)
    if not request.answer.strip():
        raise InvalidInput("answer: paste the address of the last page of the sign-in")
    sign_in = SignIn("", pending.redirect, request.sign_in, pending.verifier)
    return await ctx.providers.finish_sign_in(*at, sign_in, request.answer)


async def _log_in(ctx: RequestContext, pending: _Pending, found: Secret) -> Account:
    """Add the account or replace its login, as the operations for that do, with their checks."""
    tokens = credentials_of(found)
    if pending.address is None:
        return await call(ctx, log_in_account, {"account_id": pending.account_id, **tokens})
    about = {name: getattr(pending, name) for name in ("account_id", "provider", "address", "name")}
    return await call(ctx, add_account, {**about, "scopes": list(pending.scopes), **tokens})
