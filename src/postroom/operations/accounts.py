"""Logins at providers: looked at, signed in anew, kept in step and removed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SecretStr

from postroom.blocking import in_thread
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.model.account import Account, Capabilities
from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.operation import operation
from postroom.operations.request import Paged, Request
from postroom.pipeline.discarding import discard_unused

AccountId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        pattern=forms.HANDLE,
        description="The account.",
        examples=["work"],
    ),
]


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
    found = await ctx.providers.check(account, secret)
    await _refuse_other_owner(ctx, account, found)
    await in_thread(ctx.providers.keep_secret, account.id, secret)
    await ctx.store.change_account(account.id, learnt_options(account, found))
    return await account_of(ctx, account.id)


async def _refuse_other_owner(ctx: Context, account: Account, found: Capabilities) -> None:
    """Refuse a login to another mailbox: all that is kept here would count as gone there."""
    if await _is_of_another(ctx, account, found):
        whose = found.owner_address or "somebody else"
        raise Conflict(
            f"this is a login of {whose}, not of the mailbox that {account.id} keeps "
            f"({account.address}); sign in as its owner, or add it under another name"
        )


async def _is_of_another(ctx: Context, account: Account, found: Capabilities) -> bool:
    """Whether a login is not the owner's, who may have been written down by the last sync only."""
    stored = await ctx.store.capabilities_of(account.id) or {}
    owner = account.options.get("owner") or stored.get("owner")
    if owner:
        return found.owner not in (None, owner)
    return (found.owner_address or account.address).lower() != account.address.lower()


def learnt_options(account: Account, found: Capabilities) -> dict[str, Any]:
    """The options with what only a check finds out: whose it is, how much the SMTP server takes."""
    if account.provider != "imap":
        return {"owner": found.owner, **account.options} if found.owner else account.options
    learnt = {"attachment_mb": found.max_attachment_size_mb, "mail_bytes": found.mail_bytes}
    return {**account.options, **learnt}


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
    await in_thread(ctx.providers.forget_secret, account.id)
    await discard_unused(ctx, unused or ())
