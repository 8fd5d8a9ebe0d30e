"""Logins at providers: added, looked at, removed; and what each of them can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, ProviderAuthFailed
from postroom.mail.compose import parse_address
from postroom.model.account import (
    Account,
    Capabilities,
    CapabilityReport,
    ProviderName,
    RateLimits,
)
from postroom.model.key import Scope
from postroom.model.limits import MB
from postroom.model.page import Page, Slice
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Accepts, Paged, Request
from postroom.pipeline.syncing import how_to_sign_in

_MOST_ACCOUNTS = 1_000

AccountId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="The account.",
        examples=["work"],
    ),
]
Host = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._:-]+$")]
Port = Annotated[int, Field(ge=1, le=65_535)]
Security = Literal["tls", "starttls", "none"]
SCOPES: tuple[Literal["read", "draft", "send"], ...] = ("read", "draft", "send")


class Credentials(Request):
    """What logs an account in: a password, or tokens of OAuth."""

    password: Annotated[
        SecretStr | None,
        Field(
            max_length=4096,
            description="The password, or for fastmail an API token.",
            examples=["an-app-password"],
        ),
    ] = None
    access_token: Annotated[
        SecretStr | None,
        Field(max_length=16_384, description="For gmail and outlook.", examples=["ya29.a0"]),
    ] = None
    refresh_token: Annotated[
        SecretStr | None,
        Field(max_length=16_384, description="Renews the access token.", examples=["1//0g"]),
    ] = None
    token_expires_at: Annotated[
        int | None,
        Field(ge=0, le=2**53, description="When, in seconds since 1970.", examples=[1790000000]),
    ] = None

    def secret(self) -> dict[str, str]:
        """What goes into the vault."""
        given = {
            "password": self.password,
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
        }
        found = {name: value.get_secret_value() for name, value in given.items() if value}
        if self.token_expires_at is not None:
            found["expires_at"] = str(self.token_expires_at)
        return found


class AddAccount(Credentials):
    """Add a mailbox at a provider: its mail is kept in step in an inbox of its own.

    The login is tried first; nothing is kept if it does not work.
    """

    account_id: Annotated[AccountId, Field(description="A name for it.", examples=["work"])]
    provider: Annotated[
        ProviderName, Field(description="imap, gmail, outlook or fastmail.", examples=["imap"])
    ]
    address: Annotated[
        str,
        Field(max_length=320, description="Its address.", examples=["ana@example.com"]),
        Accepts(forms.MAILBOX),
    ]
    name: Annotated[
        str,
        Field(
            max_length=256,
            pattern=forms.LINE,
            description="The name shown as sender.",
            examples=["Ana Lee"],
        ),
    ] = ""
    user: Annotated[
        str | None,
        Field(max_length=320, description="The user name, if not the address.", examples=["ana"]),
    ] = None
    host: Annotated[
        Host | None, Field(description="imap: the server.", examples=["imap.example.com"])
    ] = None
    port: Annotated[Port, Field(description="imap: its port.", examples=[993])] = 993
    security: Annotated[
        Security, Field(description="imap: tls, starttls or none.", examples=["tls"])
    ] = "tls"
    smtp_host: Annotated[
        Host | None,
        Field(
            description="imap: the server that takes mail; without it, it cannot send.",
            examples=["smtp.example.com"],
        ),
    ] = None
    smtp_port: Annotated[Port, Field(description="imap: its port.", examples=[465])] = 465
    smtp_security: Annotated[
        Security, Field(description="The same for SMTP.", examples=["tls"])
    ] = "tls"
    ca_file: Annotated[
        str | None,
        Field(
            max_length=4096,
            description="Trust this certificate instead of the system's.",
            examples=["/etc/ssl/mail.pem"],
        ),
    ] = None
    insecure: Annotated[
        bool, Field(description="On this machine only: no TLS.", examples=[True])
    ] = False
    scopes: Annotated[
        list[Literal["read", "draft", "send"]],
        Field(
            max_length=3,
            description="What may be done with it; read is always among it.",
            examples=[["read", "send"]],
        ),
    ] = list(SCOPES)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.provider == "imap" and not self.host:
            raise ValueError("host: name the IMAP server, such as imap.example.com")
        if self.provider in ("imap", "fastmail") and self.password is None:
            raise ValueError("password: is required for this provider")
        if self.provider in ("gmail", "outlook") and self.access_token is None:
            raise ValueError("access_token: sign in first: postroom account add")
        if "none" in (self.security, self.smtp_security) and not self.insecure:
            raise ValueError("security: none sends the password in the clear; give insecure too")
        return self

    def options(self) -> dict[str, Any]:
        """What is kept beside the secret."""
        scopes = [scope for scope in SCOPES if scope in ("read", *self.scopes)]
        kept: dict[str, Any] = {"user": self.user or self.address, "scopes": scopes}
        if self.provider == "imap":
            kept |= {"host": self.host, "port": self.port, "security": self.security}
            kept |= {"smtp_host": self.smtp_host, "smtp_port": self.smtp_port}
            kept |= {"smtp_security": self.smtp_security, "smtp_user": kept["user"]}
            kept |= {"ca_file": self.ca_file, "insecure": self.insecure}
        elif self.user is not None:
            kept["basic"] = True
        return kept


@operation(Scope.ADMIN)
async def add_account(ctx: Context, request: AddAccount) -> Account:
    if ctx.visible is not None:
        raise Forbidden("a key that is limited to inboxes cannot add an account; use another key")
    _, address = parse_address(request.address, field="address")
    _refuse_clear_text(request)
    account = Account(
        id=request.account_id.lower(),
        provider=request.provider,
        address=address.lower(),
        inbox_id=ctx.new_id("inb"),
        state="new",
        detail="",
        synced=0,
        total=None,
        synced_at=None,
        created_at=ctx.clock().replace(microsecond=0),
        options=request.options(),
    )
    await _refuse_taken(ctx, account)
    secret = request.secret()
    capabilities = await ctx.providers.check(account, secret)
    ctx.providers.keep_secret(account.id, secret)
    account = replace(account, options=_learnt(account, capabilities))
    try:
        await ctx.store.add_account(account, request.name)
    except Exception:
        ctx.providers.forget_secret(account.id)
        raise
    await ctx.store.set_capabilities(account.id, capabilities_json(capabilities))
    return account


def _learnt(account: Account, found: Capabilities) -> dict[str, Any]:
    """The options with what only a check finds out: how much the SMTP server takes."""
    if account.provider != "imap":
        return account.options
    learnt = {"attachment_mb": found.max_attachment_size_mb, "mail_bytes": found.mail_bytes}
    return {**account.options, **learnt}


def _refuse_clear_text(request: AddAccount) -> None:
    """A password leaves this machine encrypted only, whichever server it is for."""
    if request.insecure and not _is_local(request.host):
        raise InvalidInput("insecure: works only with a host on this machine")
    is_clear = request.smtp_host is not None and request.smtp_security == "none"
    if is_clear and not _is_local(request.smtp_host):
        raise InvalidInput(
            "smtp_security: none works only with an smtp_host on this machine; use tls or starttls"
        )


def _is_local(host: str | None) -> bool:
    return (host or "").lower() in ("localhost", "127.0.0.1", "::1")


async def _refuse_taken(ctx: Context, account: Account) -> None:
    if await ctx.store.account(account.id, None) is not None:
        raise Conflict(f"there is an account {account.id} already; choose another name")
    live = ctx.imap.accounts if ctx.imap is not None else ()
    if account.id in {one.account_id for one in live}:
        raise Conflict(f"there is a live account {account.id} in the settings; choose another name")
    if await ctx.store.identity_at(account.address) is not None:
        raise Conflict(f"there is an inbox for {account.address} already")


class ListAccounts(Paged):
    """List the accounts whose mail is kept here: how far each is, and what is wrong with it."""


@operation(Scope.READ)
async def list_accounts(ctx: Context, request: ListAccounts) -> Page[Account]:
    found = await ctx.store.accounts(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


async def account_of(ctx: Context, account_id: str) -> Account:
    """The account, if it exists for the caller. Raises NotFound."""
    account = await ctx.store.account(account_id.lower(), ctx.visible)
    if account is None:
        raise NotFound(f"no account {account_id}; get_capabilities lists those you may use")
    return account


class CheckAccount(Request):
    """Log in to an account now and tell what it can do."""

    account_id: AccountId


@operation(Scope.ADMIN)
async def check_account(ctx: Context, request: CheckAccount) -> Capabilities:
    account = await account_of(ctx, request.account_id)
    try:
        found = await ctx.providers.check(account, None)
    except ProviderAuthFailed as error:
        raise ProviderAuthFailed(how_to_sign_in(account, str(error)), **error.details) from error
    await ctx.store.set_capabilities(account.id, capabilities_json(found))
    options = _learnt(account, found)
    if account.state == "needs_reauth" or options != account.options:
        await ctx.store.change_account(account.id, options)
    return _told(ctx, account, found)


class LogInAccount(Credentials):
    """Give an account another password or other tokens. They are tried first."""

    account_id: AccountId


@operation(Scope.ADMIN)
async def log_in_account(ctx: Context, request: LogInAccount) -> Account:
    account = await account_of(ctx, request.account_id)
    secret = request.secret()
    needed = "access_token" if account.provider in ("gmail", "outlook") else "password"
    if needed not in secret:
        raise InvalidInput(f"{needed}: is required for {account.provider}")
    await ctx.providers.check(account, secret)
    ctx.providers.keep_secret(account.id, secret)
    await ctx.store.change_account(account.id, account.options)
    return await account_of(ctx, account.id)


class SyncAccount(Request):
    """Look at an account now instead of at the next occasion."""

    account_id: AccountId


@operation(Scope.WRITE)
async def sync_account(ctx: Context, request: SyncAccount) -> Account:
    account = await account_of(ctx, request.account_id)
    await ctx.store.ask_for_sync(account.id, ctx.clock())
    return account


class RemoveAccount(Request):
    """Remove an account with its inbox and the mail that is kept here.

    At the provider, everything stays as it is.
    """

    account_id: AccountId


@operation(Scope.ADMIN, destroys=True)
async def remove_account(ctx: Context, request: RemoveAccount) -> None:
    account = await account_of(ctx, request.account_id)
    unused = await ctx.store.remove_inbox(account.inbox_id, ctx.visible, force=True)
    ctx.providers.forget_secret(account.id)
    await ctx.blobs.discard(unused or (), ctx.store.used_blobs)


class GetCapabilities(Request):
    """Tell what can be done with the mail of an account, or of local inboxes."""

    account_id: Annotated[
        AccountId | None, Field(description="Only this account.", examples=["work"])
    ] = None


@operation(Scope.READ)
async def get_capabilities(ctx: Context, request: GetCapabilities) -> CapabilityReport:
    asked = None if request.account_id is None else await account_of(ctx, request.account_id)
    found = await ctx.store.accounts(ctx.visible, Slice(limit=_MOST_ACCOUNTS))
    known = [(account, await _known(ctx, account)) for account in found.rows]
    told = tuple(_told(ctx, account, capabilities) for account, capabilities in known)
    if asked is not None:
        one = next(c for c in told if c.account_id == asked.id)
        return _report(one, told)
    return _report(told[0] if len(told) == 1 else _local(ctx), told)


def _report(one: Capabilities, all_of_them: tuple[Capabilities, ...]) -> CapabilityReport:
    values = {name: getattr(one, name) for name in Capabilities.__slots__}
    return CapabilityReport(**values, accounts=all_of_them)


def _local(ctx: Context) -> Capabilities:
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


async def _known(ctx: Context, account: Account) -> Capabilities:
    stored = await ctx.store.capabilities_of(account.id)
    if stored is None:
        return await ctx.providers.check(account, None)
    rates = RateLimits(**stored.pop("rate_limits"))
    return Capabilities(**stored, rate_limits=rates)


def _told(ctx: Context, account: Account, capabilities: Capabilities) -> Capabilities:
    """What holds for a caller here: our own limit for files, if the provider's is higher."""
    ours = ctx.limits.attachments_bytes // MB
    return replace(
        capabilities,
        account_id=account.id,
        address=account.address,
        state=account.state,
        last_refusal=account.last_refusal,
        max_attachment_size_mb=min(ours, capabilities.max_attachment_size_mb),
    )


def capabilities_json(capabilities: Capabilities) -> dict[str, Any]:
    """What is written down of them."""
    rates = capabilities.rate_limits
    return {
        "provider": capabilities.provider,
        "has_threading": capabilities.has_threading,
        "has_server_side_rules": capabilities.has_server_side_rules,
        "max_attachment_size_mb": capabilities.max_attachment_size_mb,
        "rate_limits": {
            "requests_per_second": rates.requests_per_second,
            "burst": rates.burst,
        },
        "has_labels": capabilities.has_labels,
        "has_push": capabilities.has_push,
        "can_send": capabilities.can_send,
        "can_create_alias": capabilities.can_create_alias,
        "mail_bytes": capabilities.mail_bytes,
        "files_bytes": capabilities.files_bytes,
    }
