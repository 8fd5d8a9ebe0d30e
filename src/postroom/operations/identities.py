"""Addresses that one may send from, and the signatures that go with them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.mail.html import sanitise_html
from postroom.mail.typed import parse_own_address
from postroom.model.account import Identity
from postroom.model.inbox import Inbox
from postroom.model.key import Scope
from postroom.model.page import Page, Slice
from postroom.model.remote import RemoteIdentity
from postroom.operations import forms
from postroom.operations.context import Context
from postroom.operations.inboxes import inbox_of
from postroom.operations.operation import operation
from postroom.operations.request import (
    Accepts,
    Id,
    OptionalId,
    Paged,
    Request,
    Together,
    one_of,
)

IdentityId = Annotated[Id, Field(description="The identity.", examples=["idn_5c1r8v"])]
DisplayName = Annotated[str, Field(max_length=256, pattern=forms.LINE)]
Signature = Annotated[str, Field(max_length=20_000)]


class ListIdentities(Paged):
    """List the addresses you may send from, oldest first."""

    inbox_id: Annotated[
        OptionalId, Field(description="Only this inbox.", examples=["inb_7k2m9q"])
    ] = None


@operation(Scope.READ)
async def list_identities(ctx: Context, request: ListIdentities) -> Page[Identity]:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    found = await ctx.store.identities(ctx.visible, request.inbox_id, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class CreateAlias(Request):
    """Make another address of an inbox, to send from and receive at."""

    email: Annotated[
        str,
        Field(
            min_length=3,
            max_length=254,
            description="At a domain of ours, or a plus-address.",
            examples=["sales@postroom.localhost"],
        ),
        Accepts(forms.OWN_ADDRESS),
    ]
    name: Annotated[
        DisplayName, Field(description="The name shown as sender.", examples=["Sales"])
    ] = ""
    signature: Annotated[
        Signature,
        Field(description="HTML under what is sent.", examples=["<p>Sales</p>"]),
    ] = ""
    inbox_id: Annotated[
        OptionalId,
        Field(description="Whose, if there are several.", examples=["inb_7k2m9q"]),
    ] = None


@operation(Scope.WRITE)
async def create_alias(ctx: Context, request: CreateAlias) -> Identity:
    name, email = parse_own_address(request.email, field="email")
    if name:
        raise InvalidInput("email: give the bare address; the name has its own argument")
    inbox = await _inbox_for(ctx, request.inbox_id)
    if await ctx.store.identity_at(email) is not None:
        raise Conflict(f"the address {email} is taken; choose another")
    signature = sanitise_html(request.signature)
    await _allow(ctx, inbox, RemoteIdentity(email.lower(), request.name, signature))
    return await ctx.store.add_identity(
        Identity(
            id=ctx.new_id("idn"),
            email=email.lower(),
            name=request.name,
            signature=signature,
            inbox_id=inbox.id,
            account_id=inbox.account_id,
            is_default=False,
        )
    )


async def _inbox_for(ctx: Context, inbox_id: str | None) -> Inbox:
    if inbox_id is not None:
        return await inbox_of(ctx, inbox_id)
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=20))
    if found.total == 1:
        return found.rows[0]
    if not found.total:
        raise Conflict("there is no inbox for it; create_inbox makes one")
    names = ", ".join(f"{inbox.id} ({inbox.address})" for inbox in found.rows)
    raise Conflict(f"inbox_id: there are several inboxes; name one of {names}")


async def _allow(ctx: Context, inbox: Inbox, alias: RemoteIdentity) -> None:
    """Refuse what nobody would deliver; at a provider that makes aliases, make it there."""
    domain = alias.email.rpartition("@")[2]
    if domain in ctx.domains:
        return
    if inbox.account_id is None:
        raise InvalidInput(
            f"email: we do not serve the domain {domain}; served are {', '.join(ctx.domains)}"
        )
    account = await ctx.store.account(inbox.account_id, ctx.visible)
    if account is None:
        raise NotFound(no_such("account", inbox.account_id))
    stored = await ctx.store.capabilities_of(account.id) or {}
    if stored.get("can_create_alias"):
        await ctx.providers.create_alias(account, alias)
    elif not _is_plus_address(alias.email, account.address):
        local, _, own = account.address.rpartition("@")
        raise InvalidInput(
            f"email: the provider of {account.id} makes no addresses for us; give one of its own, "
            f"such as {local}+sales@{own}, or one at {', '.join(ctx.domains)}"
        )


def _is_plus_address(email: str, own: str) -> bool:
    """Whether what goes to *email* comes to *own*, and so belongs to whoever has that."""
    local, _, domain = own.rpartition("@")
    return email.startswith(f"{local}+") and email.endswith(f"@{domain}")


class UpdateIdentity(Request):
    """Change the name or the signature of an identity, or make it its inbox's default."""

    together: ClassVar[tuple[Together, ...]] = (
        one_of("change", "name", "signature", "is_default", may_be_empty=True),
    )
    identity_id: IdentityId
    name: Annotated[DisplayName | None, Field(description="The new name.", examples=["Sales"])] = (
        None
    )
    signature: Annotated[
        Signature | None, Field(description="HTML; empty is none.", examples=["<p>Ana</p>"])
    ] = None
    is_default: Annotated[
        bool | None, Field(description="Send from it unless told otherwise.", examples=[True])
    ] = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.name is None and self.signature is None and self.is_default is None:
            raise ValueError("give name, signature or is_default")
        return self


@operation(Scope.WRITE)
async def update_identity(ctx: Context, request: UpdateIdentity) -> Identity:
    signature = None if request.signature is None else sanitise_html(request.signature)
    identity = await ctx.store.change_identity(
        request.identity_id,
        ctx.visible,
        name=request.name,
        signature=signature,
        is_default=request.is_default,
    )
    if identity is None:
        raise NotFound(f"no identity {request.identity_id}; list_identities shows yours")
    return identity
