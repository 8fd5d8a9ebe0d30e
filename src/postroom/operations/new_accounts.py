"""Adding a login at a provider: what it needs, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from postroom.blocking import in_thread
from postroom.errors import Conflict, Forbidden, InvalidInput
from postroom.mail.typed import parse_own_address
from postroom.model.account import Account, Capabilities, ProviderName
from postroom.model.key import Scope
from postroom.operations import forms
from postroom.operations.accounts import AccountId, Credentials, learnt_options
from postroom.operations.capabilities import capabilities_json
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Accepts

Host = Annotated[str, Field(min_length=1, max_length=255, pattern=forms.HOST)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Security = Literal["tls", "starttls", "none"]
SCOPES: tuple[Literal["read", "draft", "send"], ...] = ("read", "draft", "send")


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
    _, address = parse_own_address(request.address, field="address")
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
    _refuse_other_address(account, capabilities)
    account = replace(account, options=learnt_options(account, capabilities))
    await ctx.store.add_account(account, request.name)
    await ctx.store.set_capabilities(account.id, capabilities_json(capabilities))
    try:
        await in_thread(ctx.providers.keep_secret, account.id, secret)
    except Exception:
        await ctx.store.remove_inbox(account.inbox_id, None, force=True)
        raise
    await ctx.store.ask_for_sync(account.id, ctx.clock())
    return account


def _refuse_other_address(account: Account, found: Capabilities) -> None:
    """Refuse an address that is not the mailbox's: one signs in as somebody else by mistake."""
    theirs = found.owner_address
    if theirs is not None and theirs.lower() != account.address:
        raise Conflict(f"this is a login of {theirs}; give that address, or sign in as another")


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
