"""Identities: the addresses to send from, with names and signatures."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import address_rights, inbox_of, only_inbox, operation, require
from postroom.calls.request import (
    Accepts,
    Id,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    change_of,
)
from postroom.errors import InvalidInput, NotFound, no_such
from postroom.mail.addresses import canonical_address, parse_own_address
from postroom.mail.html.html import sanitise_html
from postroom.model.account import Identity, RemoteIdentity
from postroom.model.inbox import Inbox
from postroom.model.key import Scope
from postroom.model.page import Page
from postroom.operations.inboxes import Name, OwnAddress

IdentityId = Annotated[Id, argument("The identity.", "idn_5c1r8v")]
Signature = Annotated[str, Field(max_length=20_000)]


class ListIdentities(Paged):
    """List the addresses you may send from, oldest first."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None


@operation(Scope.READ)
async def list_identities(ctx: RequestContext, request: ListIdentities) -> Page[Identity]:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    found = await ctx.store.identities(ctx.visible, request.inbox_id, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class CreateAlias(Request):
    """Create another address of an inbox, to send and receive."""

    email: Annotated[
        OwnAddress,
        argument("At a domain of this server, or a plus-address.", "orders@postroom.localhost"),
        Accepts(request.OWN_ADDRESS),
    ]
    name: Annotated[Name, argument("The name shown as sender.", "Orders")] = ""
    signature: Annotated[Signature, argument("The signature in HTML.", "<p>Orders</p>")] = ""
    inbox_id: Annotated[
        OptionalInboxName, argument("The inbox, if you have several.", "inb_7k2m9q")
    ] = None


@operation(Scope.WRITE)
async def create_alias(ctx: RequestContext, request: CreateAlias) -> Identity:
    name, email = parse_own_address(request.email, field="email")
    if name:
        raise InvalidInput("email: give the bare address; the name has its own argument")
    email = canonical_address(email)
    inbox_id = request.inbox_id
    inbox = await only_inbox(ctx) if inbox_id is None else await inbox_of(ctx, inbox_id)
    rights = address_rights(ctx)
    await ctx.store.check_alias(email, inbox.id, rights)
    signature = sanitise_html(request.signature)
    await _allow(ctx, inbox, RemoteIdentity(email, request.name, signature))
    return await ctx.store.add_identity(
        Identity(
            id=ctx.new_id("idn"),
            email=email,
            name=request.name,
            signature=signature,
            inbox_id=inbox.id,
            account_id=inbox.account_id,
            is_default=False,
        ),
        rights,
    )


async def _allow(ctx: RequestContext, inbox: Inbox, alias: RemoteIdentity) -> None:
    """Refuse an address that gets no mail; create it at a provider that supports aliases."""
    domain = alias.email.rpartition("@")[2]
    if domain in ctx.domains:
        return
    if inbox.account_id is None:
        raise InvalidInput(
            f"email: this server does not serve the domain {domain}; "
            f"it serves {', '.join(ctx.domains)}"
        )
    account = await ctx.store.account(inbox.account_id, ctx.visible)
    account = require(account, no_such("account", inbox.account_id))
    stored = await ctx.store.capabilities_of(account.id) or {}
    local, _, own = account.address.rpartition("@")
    if stored.get("can_create_alias"):
        await ctx.providers.create_alias(account, alias)
    elif not (alias.email.startswith(f"{local}+") and alias.email.endswith(f"@{own}")):
        raise InvalidInput(
            f"email: the provider of {account.id} cannot create addresses; use one of its own "
            f"addresses, such as {local}+sales@{own}, or one at {', '.join(ctx.domains)}"
        )


class UpdateIdentity(Request):
    """Change the name or the signature of an identity, or make it its inbox's default."""

    constraints = (
        change_of(("name", "signature", "is_default"), "give name, signature or is_default"),
    )
    identity_id: IdentityId
    name: Annotated[Name | None, argument("The new name.", "Orders")] = None
    signature: Annotated[
        Signature | None, argument("The signature in HTML; empty removes it.", "<p>Ana</p>")
    ] = None
    is_default: Annotated[bool | None, argument("Make it the default sender.", True)] = None


@operation(Scope.WRITE)
async def update_identity(ctx: RequestContext, request: UpdateIdentity) -> Identity:
    signature = None if request.signature is None else sanitise_html(request.signature)
    identity = await ctx.store.change_identity(
        request.identity_id,
        ctx.visible,
        name=request.name,
        signature=signature,
        is_default=request.is_default,
    )
    return require(identity, _no_identity(request.identity_id))


class DeleteIdentity(Request):
    """Remove an alias from its inbox; mail it has received stays there."""

    identity_id: IdentityId


@operation(Scope.ADMIN, destroys=True)
async def delete_identity(ctx: RequestContext, request: DeleteIdentity) -> None:
    if not await ctx.store.remove_identity(request.identity_id, ctx.visible):
        raise NotFound(_no_identity(request.identity_id))


def _no_identity(identity_id: str) -> str:
    return f"no identity {identity_id}; list_identities shows yours"
