"""Inboxes: create, list, rename and delete them; ids by their first characters, for people."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import address_rights, inbox_of, no_inbox, operation, require
from postroom.calls.request import Accepts, InboxName, Paged, Request, argument, not_both
from postroom.errors import Conflict, Forbidden, InvalidInput
from postroom.mail.addresses import canonical_address, parse_own_address
from postroom.model.inbox import Inbox
from postroom.model.key import Scope
from postroom.model.page import FoundIds, Page
from postroom.pipeline.blobs import discard_unused

Name = Annotated[str, Field(max_length=256, pattern=request.LINE)]
Username = Annotated[str, Field(min_length=1, max_length=64, pattern=request.USERNAME)]
OwnAddress = Annotated[str, Field(min_length=3, max_length=254)]
ClientId = Annotated[str, Field(min_length=1, max_length=256)]


class CreateInbox(Request):
    """Create an inbox with its own e-mail address. Without arguments the address is random."""

    constraints = (not_both("place", "username", "address", "give username or address, not both"),)
    name: Annotated[Name | None, argument("The name shown as sender.", "Support agent")] = None
    username: Annotated[
        Username | None, argument("The part before the @; the domain is this server's.", "orders")
    ] = None
    address: Annotated[
        OwnAddress | None,
        argument(
            "The whole address instead, at a domain of this server.", "orders@postroom.localhost"
        ),
        Accepts(request.OWN_ADDRESS),
    ] = None
    client_id: Annotated[
        ClientId | None, argument("Your own id; the same id returns the same inbox.", "agent-7")
    ] = None


@operation(Scope.WRITE)
async def create_inbox(ctx: RequestContext, request: CreateInbox) -> Inbox:
    if ctx.is_limited:
        raise Forbidden("a key that is limited to inboxes cannot create one; use another key")
    inbox = Inbox(
        id=ctx.new_id("inb"),
        address=_address(ctx, request),
        name=request.name or "",
        account_id=None,
        created_at=ctx.clock().replace(microsecond=0),
    )
    body = request.model_dump(exclude={"client_id"}, exclude_none=True)
    payload = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    return await ctx.store.add_inbox(
        inbox, client_id=request.client_id, payload=payload, rights=address_rights(ctx)
    )


def _address(ctx: RequestContext, request: CreateInbox) -> str:
    if request.address is None:
        username = request.username or ctx.new_id("agent").replace("_", "-")[:18]
        return f"{username}@{ctx.domains[0]}".lower()
    name, address = parse_own_address(request.address)
    domain = address.rpartition("@")[2].lower()
    if name:
        raise InvalidInput("address: give the bare address; the name has its own argument")
    if domain not in ctx.domains:
        raise InvalidInput(
            f"address: this server does not serve the domain {domain}; "
            f"it serves {', '.join(ctx.domains)} (setting POSTROOM_DOMAIN)"
        )
    return canonical_address(address)


class ListInboxes(Paged):
    """List the inboxes you may use, oldest first."""


@operation(Scope.READ)
async def list_inboxes(ctx: RequestContext, request: ListInboxes) -> Page[Inbox]:
    found = await ctx.store.inboxes(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


InboxId = Annotated[InboxName, argument("The inbox.", "inb_7k2m9q")]


class OneInbox(Request):
    """A request about one inbox."""

    inbox_id: InboxId


class GetInbox(OneInbox):
    """Get one inbox."""


@operation(Scope.READ)
async def get_inbox(ctx: RequestContext, request: GetInbox) -> Inbox:
    return await inbox_of(ctx, request.inbox_id)


class RenameInbox(OneInbox):
    """Change the name of an inbox; its address stays."""

    name: Annotated[Name, argument("The new name.", "Support agent")]


@operation(Scope.WRITE)
async def rename_inbox(ctx: RequestContext, request: RenameInbox) -> Inbox:
    inbox = await ctx.store.rename_inbox(request.inbox_id, request.name, ctx.visible)
    return require(inbox, no_inbox(request.inbox_id))


class DeleteInbox(OneInbox):
    """Delete an inbox permanently. An inbox with mail needs force."""

    force: Annotated[bool, argument("Delete its mail with it.", True)] = False


@operation(Scope.ADMIN, destroys=True)
async def delete_inbox(ctx: RequestContext, request: DeleteInbox) -> None:
    inbox = await inbox_of(ctx, request.inbox_id)
    if inbox.account_id is not None:
        raise Conflict(
            f"{inbox.id} is the inbox of the account {inbox.account_id}; remove the account instead"
        )
    unused = await ctx.store.remove_inbox(request.inbox_id, ctx.visible, force=request.force)
    await discard_unused(ctx, require(unused, no_inbox(request.inbox_id)))


_AT_MOST = 10


class FindIds(Request):
    """Find the ids of inboxes, messages, threads or attachments that begin with a prefix."""

    prefix: Annotated[
        str,
        argument(
            "The kind, such as msg_, and at least three characters.",
            "msg_4h8",
            min_length=7,
            max_length=64,
            pattern="^(?:inb|msg|thr|att)_[0-9a-z]+$",
        ),
    ]


@operation(Scope.READ)
async def find_ids(ctx: RequestContext, request: FindIds) -> FoundIds:
    found = await ctx.store.ids_from(request.prefix, ctx.visible, limit=_AT_MOST + 1)
    return FoundIds(found[:_AT_MOST], has_more=len(found) > _AT_MOST)
