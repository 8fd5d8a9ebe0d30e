"""Accounts: add, list, check, sync and remove them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, SecretStr, model_validator

from postroom.blocking import in_thread
from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import account_of, address_rights, operation
from postroom.calls.request import Accepts, Paged, Request, argument
from postroom.errors import Conflict, Forbidden, InvalidInput, ProviderAuthFailed
from postroom.mail.addresses import canonical_address, parse_own_address
from postroom.model.account import (
    PUBLIC_ONLY,
    Account,
    Capabilities,
    CapabilityReport,
    ProviderName,
    RateLimits,
)
from postroom.model.inbox import AddressRights
from postroom.model.key import Scope
from postroom.model.limits import MB
from postroom.model.page import Page, Slice
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import Name
from postroom.pipeline.blobs import discard_unused
from postroom.pipeline.sync import sign_in_advice

AccountId = Annotated[
    str, argument("The account.", "work", min_length=1, max_length=64, pattern=request.HANDLE)
]


Token = Annotated[SecretStr | None, Field(max_length=16_384)]


class Credentials(Request):
    """What logs an account in: a password, or tokens of OAuth."""

    password: Annotated[
        SecretStr | None,
        argument("The password, or for fastmail an API token.", "an-app-password", max_length=4096),
    ] = None
    access_token: Annotated[
        Token, argument("gmail and outlook: the OAuth access token.", "ya29.a0")
    ] = None
    refresh_token: Annotated[
        Token, argument("gmail and outlook: the OAuth refresh token.", "1//0g")
    ] = None
    token_expires_at: Annotated[
        int | None,
        argument(
            "When the access token expires, in seconds since 1970.", 1790000000, ge=0, le=2**53
        ),
    ] = None

    def secret(self) -> dict[str, str]:
        """The secret that is stored in the vault."""
        names = ("password", "access_token", "refresh_token")
        found = {name: v.get_secret_value() for name in names if (v := getattr(self, name))}
        if self.token_expires_at is not None:
            found["expires_at"] = str(self.token_expires_at)
        return found


def credentials_of(tokens: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `Credentials` for tokens that a sign-in has given."""
    names = ("access_token", "refresh_token")
    found: dict[str, Any] = {name: tokens[name] for name in names if name in tokens}
    if "expires_at" in tokens:
        found["token_expires_at"] = int(tokens["expires_at"])
    return found


class ListAccounts(Paged):
    """List the synced accounts with their progress and problems."""


@operation(Scope.READ)
async def list_accounts(ctx: RequestContext, request: ListAccounts) -> Page[Account]:
    found = await ctx.store.accounts(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class OneAccount(Request):
    """A request about one synced account."""

    account_id: AccountId


class GetAccount(OneAccount):
    """Get one account with its progress and problems."""


@operation(Scope.READ)
async def get_account(ctx: RequestContext, request: GetAccount) -> Account:
    return await account_of(ctx, request.account_id)


class LogInAccount(Credentials):
    """Replace the password or tokens of an account. The new login is tested first."""

    account_id: AccountId


@operation(Scope.ADMIN)
async def log_in_account(ctx: RequestContext, request: LogInAccount) -> Account:
    account = await account_of(ctx, request.account_id)
    secret = request.secret()
    needed = "access_token" if account.provider in ("gmail", "outlook") else "password"
    if needed not in secret:
        raise InvalidInput(f"{needed}: is required for {account.provider}")
    found = await ctx.providers.check(account, secret)
    await _refuse_other_owner(ctx, account, found)
    await in_thread(ctx.providers.store_secret, account.id, secret)
    await ctx.store.change_account(account.id, options_after_check(account, found))
    return await account_of(ctx, account.id)


async def _refuse_other_owner(ctx: RequestContext, account: Account, found: Capabilities) -> None:
    """Refuse a login to another mailbox: all stored mail would count as removed.

    Whose mailbox it is, the options of the account or its last sync say, or else its address.
    """
    stored = await ctx.store.capabilities_of(account.id) or {}
    if owner := account.options.get("owner") or stored.get("owner"):
        is_other = found.owner not in (None, owner)
    else:
        is_other = (found.owner_address or account.address).lower() != account.address.lower()
    if is_other:
        whose = found.owner_address or "somebody else"
        raise Conflict(
            f"this login is for {whose}, not for the mailbox of {account.id} "
            f"({account.address}); sign in as its owner, or add it under another name"
        )


def options_after_check(account: Account, found: Capabilities) -> dict[str, Any]:
    """The options with what a check finds out: the owner, and the limits of the SMTP server."""
    if account.provider != "imap":
        return {"owner": found.owner, **account.options} if found.owner else account.options
    limits = {"attachment_mb": found.max_attachment_size_mb, "mail_bytes": found.mail_bytes}
    return {**account.options, **limits}


class SyncAccount(OneAccount):
    """Sync an account now."""


@operation(Scope.WRITE)
async def sync_account(ctx: RequestContext, request: SyncAccount) -> Account:
    account = await account_of(ctx, request.account_id)
    await ctx.store.request_sync(account.id, ctx.clock())
    return account


class RemoveAccount(OneAccount):
    """Remove an account with its inbox and its stored mail.

    Nothing changes at the provider.
    """


@operation(Scope.ADMIN, destroys=True)
async def remove_account(ctx: RequestContext, request: RemoveAccount) -> None:
    account = await account_of(ctx, request.account_id)
    unused = await ctx.store.remove_inbox(account.inbox_id, ctx.visible, force=True)
    await in_thread(ctx.providers.remove_secret, account.id)
    await discard_unused(ctx, unused or ())


_MAX_ACCOUNTS = 1_000


class CheckAccount(OneAccount):
    """Log in to an account now and show what it supports."""


@operation(Scope.ADMIN)
async def check_account(ctx: RequestContext, request: CheckAccount) -> Capabilities:
    account = await account_of(ctx, request.account_id)
    try:
        found = await ctx.providers.check(account, None)
    except ProviderAuthFailed as error:
        raise ProviderAuthFailed(sign_in_advice(account, str(error)), **error.details) from error
    await ctx.store.set_capabilities(account.id, asdict(found))
    options = options_after_check(account, found)
    if account.state == "needs_reauth" or options != account.options:
        await ctx.store.change_account(account.id, options)
    return _with_account(ctx, account, found)


class GetCapabilities(Request):
    """Show the features that an account, or local inboxes, support."""

    account_id: Annotated[AccountId | None, argument("Only this account.", "work")] = None


@operation(Scope.READ)
async def get_capabilities(ctx: RequestContext, request: GetCapabilities) -> CapabilityReport:
    requested = None if request.account_id is None else await account_of(ctx, request.account_id)
    found = await ctx.store.accounts(ctx.visible, Slice(limit=_MAX_ACCOUNTS))
    reports = [_with_account(ctx, a, await _capabilities_of(ctx, a)) for a in found.rows]
    selected = reports[0] if len(reports) == 1 else _local(ctx)
    if requested is not None:
        selected = next(c for c in reports if c.account_id == requested.id)
    values = {name: getattr(selected, name) for name in Capabilities.__slots__}
    return CapabilityReport(**values, accounts=tuple(reports))


def _local(ctx: RequestContext) -> Capabilities:
    limits = ctx.limits
    return Capabilities(
        provider="local",
        has_threading=True,
        has_server_side_rules=False,
        max_attachment_size_mb=limits.attachments_bytes // MB,
        rate_limits=RateLimits(limits.requests_per_second, limits.requests_burst),
        has_labels=True,
        has_push=True,
        can_send=True,
        can_create_alias=True,
    )


async def _capabilities_of(ctx: RequestContext, account: Account) -> Capabilities:
    stored = await ctx.store.capabilities_of(account.id)
    if stored is None:
        return await ctx.providers.check(account, None)
    rates = RateLimits(**stored.pop("rate_limits"))
    return Capabilities(**stored, rate_limits=rates)


def _with_account(
    ctx: RequestContext, account: Account, capabilities: Capabilities
) -> Capabilities:
    """The capabilities with the state of the account, and our own limit for attachments."""
    ours = ctx.limits.attachments_bytes // MB
    return replace(
        capabilities,
        account_id=account.id,
        address=account.address,
        state=account.state,
        last_refusal=account.last_refusal,
        max_attachment_size_mb=min(ours, capabilities.max_attachment_size_mb),
    )


Host = Annotated[str, Field(min_length=1, max_length=255, pattern=request.HOST)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Security = Literal["tls", "starttls", "none"]
AccountScope = Literal["read", "draft", "send"]
SCOPES: tuple[AccountScope, ...] = get_args(AccountScope)


_SERVERS = ("host", "port", "security", "smtp_host", "smtp_port", "smtp_security")


class AddAccount(Credentials):
    """Add a mailbox at a provider: its mail is synced with a new inbox.

    The login is tested first; nothing is stored if it fails.
    """

    account_id: Annotated[AccountId, argument("A name for the account.", "work")]
    provider: Annotated[ProviderName, argument("imap, gmail, outlook or fastmail.", "imap")]
    address: Annotated[
        str,
        argument("Its e-mail address.", "ana@example.com", max_length=320),
        Accepts(request.MAILBOX),
    ]
    name: Annotated[Name, argument("The name shown as sender.", "Ana Lee")] = ""
    user: Annotated[
        str | None, argument("The user name, if it is not the address.", "ana", max_length=320)
    ] = None
    host: Annotated[Host | None, argument("imap: the server.", "imap.example.com")] = None
    port: Annotated[Port, argument("imap: the port of the server.", 993)] = 993
    security: Annotated[
        Security, argument("imap: the transport security: tls, starttls or none.", "tls")
    ] = "tls"
    smtp_host: Annotated[
        Host | None,
        argument("imap: the SMTP server; without it, the account cannot send.", "smtp.example.com"),
    ] = None
    smtp_port: Annotated[Port, argument("imap: the port of the SMTP server.", 465)] = 465
    smtp_security: Annotated[
        Security, argument("imap: the transport security of the SMTP server.", "tls")
    ] = "tls"
    ca_file: Annotated[
        str | None,
        argument(
            "Trust this certificate instead of the system's.", "/etc/ssl/mail.pem", max_length=4096
        ),
    ] = None
    insecure: Annotated[bool, argument("Do not require TLS; works on loopback only.", True)] = False
    scopes: Annotated[
        list[AccountScope],
        argument(
            "The operations to allow; read is always included.", ["read", "send"], max_length=3
        ),
    ] = list(SCOPES)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.provider == "imap" and not self.host:
            raise ValueError("host: name the IMAP server, such as imap.example.com")
        if self.provider in ("imap", "fastmail") and self.password is None:
            raise ValueError("password: is required for this provider")
        if self.provider in ("gmail", "outlook") and self.access_token is None:
            raise ValueError("access_token: sign in first: postroom account add")
        for name in ("security", "smtp_security"):
            if getattr(self, name) == "none" and not self.insecure:
                raise ValueError(f"{name}: none sends the password unencrypted; also set insecure")
        return self

    def options(self) -> dict[str, Any]:
        """The options that are stored beside the secret."""
        scopes = [scope for scope in SCOPES if scope in ("read", *self.scopes)]
        options: dict[str, Any] = {"user": self.user or self.address, "scopes": scopes}
        if self.provider == "imap":
            options |= {name: getattr(self, name) for name in (*_SERVERS, "ca_file", "insecure")}
            options["smtp_user"] = options["user"]
        elif self.user is not None:
            options["basic"] = True
        return options


@operation(Scope.ADMIN)
async def add_account(ctx: RequestContext, request: AddAccount) -> Account:
    refuse_limited(ctx)
    _, address = parse_own_address(request.address, field="address")
    _refuse_clear_text(request)
    account = Account(
        id=request.account_id.lower(),
        provider=request.provider,
        address=canonical_address(address),
        inbox_id=ctx.new_id("inb"),
        state="new",
        detail="",
        synced=0,
        total=None,
        synced_at=None,
        created_at=ctx.clock().replace(microsecond=0),
        options=request.options() | ({} if ctx.caller.is_local else {PUBLIC_ONLY: True}),
    )
    await refuse_in_use(ctx, account.id, account.address)
    secret = request.secret()
    capabilities = await ctx.providers.check(account, secret)
    theirs = capabilities.owner_address
    if theirs is not None and theirs.lower() != account.address:
        raise Conflict(
            f"this login is for {theirs}; use that address, or sign in to another mailbox"
        )
    account = replace(account, options=options_after_check(account, capabilities))
    await ctx.store.add_account(account, request.name, _rights(ctx, account))
    await ctx.store.set_capabilities(account.id, asdict(capabilities))
    try:
        await in_thread(ctx.providers.store_secret, account.id, secret)
    except Exception:
        await ctx.store.remove_inbox(account.inbox_id, EVERYTHING, force=True)
        raise
    await ctx.store.request_sync(account.id, ctx.clock())
    return account


def _rights(ctx: RequestContext, account: Account) -> AddressRights:
    """At a domain that we do not serve, reserved names are up to its provider."""
    rights = address_rights(ctx)
    is_foreign = account.address.rpartition("@")[2] not in ctx.domains
    return replace(rights, reserved_names=rights.reserved_names or is_foreign)


def _refuse_clear_text(request: AddAccount) -> None:
    """Refuse to send a password unencrypted to another machine."""
    if request.insecure and not _is_local(request.host):
        raise InvalidInput("insecure: works only with a host on this machine")
    is_clear = request.smtp_host is not None and request.smtp_security == "none"
    if is_clear and not _is_local(request.smtp_host):
        raise InvalidInput(
            "smtp_security: none works only with an smtp_host on this machine; use tls or starttls"
        )


def _is_local(host: str | None) -> bool:
    return (host or "").lower() in ("localhost", "127.0.0.1", "::1")


def refuse_limited(ctx: RequestContext) -> None:
    """Refuse a caller who is limited to inboxes to add an account. Raises Forbidden."""
    if ctx.is_limited:
        raise Forbidden("a key that is limited to inboxes cannot add an account; use another key")


async def refuse_in_use(ctx: RequestContext, account_id: str, address: str) -> None:
    """Refuse a name or an address that is in use. Raises Conflict."""
    if await ctx.store.account(account_id, EVERYTHING) is not None:
        raise Conflict(f"the account {account_id} already exists; choose another name")
    live = ctx.imap.accounts if ctx.imap is not None else ()
    if account_id in {selected.account_id for selected in live}:
        raise Conflict(f"there is a live account {account_id} in the settings; choose another name")
    if await ctx.store.identity_at(address) is not None:
        raise Conflict(f"an inbox for {address} already exists")
