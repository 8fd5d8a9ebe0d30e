"""Keys: made, listed, revoked, and recognised at the door."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from postroom.errors import Forbidden, NotFound, Unauthenticated, no_such
from postroom.model.inbox import Visible
from postroom.model.key import Caller, Key, Scope
from postroom.model.page import Page
from postroom.operations.accounts import AccountId
from postroom.operations.context import Context
from postroom.operations.imap.accounts import accounts_of
from postroom.operations.inboxes import Name, inbox_of
from postroom.operations.memories import NamespaceName
from postroom.operations.operation import operation
from postroom.operations.request import Id, Paged, Request
from postroom.pipeline.house import House

OWNER_KEY_ID = "owner"


def new_secret() -> str:
    """A key as its bearer writes it."""
    return "pk_" + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    """What we keep of a key. It is random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


async def authenticate(house: House, secret: str | None) -> Caller:
    """Find out who bears this key. Raises Unauthenticated."""
    if not secret:
        raise Unauthenticated("a key is required: send it as `Authorization: Bearer <key>`")
    secret_hash = hash_secret(secret)
    key = await house.store.key_of(secret_hash, house.clock())
    if key is None:
        raise Unauthenticated("this key is not known; `postroom key create` makes one")
    return Caller(
        key_id=key.id,
        scopes=frozenset(Scope(scope) for scope in key.scopes),
        inboxes=await _inboxes_of(house, key),
        accounts=None if key.accounts is None else frozenset(key.accounts),
        namespaces=None if key.namespaces is None else frozenset(key.namespaces),
        is_owner=key.id == OWNER_KEY_ID,
        secret_hash=secret_hash,
    )


async def _inboxes_of(house: House, key: Key) -> Visible:
    """The inboxes that exist for a key: those it names, and those of the accounts it names."""
    if key.inboxes is None and key.accounts is None:
        return None
    fed = await house.store.inboxes_of_accounts(key.accounts) if key.accounts else frozenset()
    return fed.union(key.inboxes or ())


class CreateKey(Request):
    """Make a key. The answer is the only one that ever shows it."""

    name: Annotated[Name, Field(min_length=1, description="What it is for.", examples=["crm"])]
    scopes: Annotated[
        list[Scope],
        Field(min_length=1, max_length=4, description="What it may do.", examples=[["read"]]),
    ] = [Scope.READ]
    inboxes: Annotated[
        list[Id] | None,
        Field(
            max_length=1000,
            description="The only inboxes that exist for it; without: all.",
            examples=[["inb_7k2m9q"]],
        ),
    ] = None
    accounts: Annotated[
        list[AccountId] | None,
        Field(
            max_length=1000,
            description="The only accounts that exist for it, with their inboxes; without: all.",
            examples=[["work"]],
        ),
    ] = None
    namespaces: Annotated[
        list[NamespaceName] | None,
        Field(
            max_length=1000,
            description="The only namespaces of memories that exist for it; without: all.",
            examples=[["support"]],
        ),
    ] = None


@operation(Scope.ADMIN)
async def create_key(ctx: Context, request: CreateKey) -> Key:
    _refuse_if_limited(ctx)
    beyond = sorted(set(request.scopes) - ctx.caller.scopes)
    if beyond:
        raise Forbidden(f"scopes: your own key lacks {', '.join(beyond)}, so it cannot give it")
    for inbox_id in request.inboxes or ():
        await inbox_of(ctx, inbox_id)
    await _check_accounts(ctx, request.accounts or ())
    secret = new_secret()
    key = Key(
        id=ctx.new_id("key"),
        name=request.name,
        scopes=tuple(sorted(set(request.scopes))),
        inboxes=None if request.inboxes is None else tuple(dict.fromkeys(request.inboxes)),
        namespaces=None if request.namespaces is None else tuple(dict.fromkeys(request.namespaces)),
        accounts=None if request.accounts is None else tuple(dict.fromkeys(request.accounts)),
        created_at=ctx.clock().replace(microsecond=0),
        last_used_at=None,
    )
    await ctx.store.add_key(key, hash_secret(secret))
    return replace(key, key=secret)


async def _check_accounts(ctx: Context, account_ids: Iterable[str]) -> None:
    live = {account.account_id for account in accounts_of(ctx)}
    for account_id in account_ids:
        if account_id not in live and await ctx.store.account(account_id, ctx.visible) is None:
            raise NotFound(f"no account {account_id}; `postroom account list` shows yours")


class ListKeys(Paged):
    """List the keys, oldest first; the secrets themselves are not kept."""


@operation(Scope.ADMIN)
async def list_keys(ctx: Context, request: ListKeys) -> Page[Key]:
    _refuse_if_limited(ctx)
    found = await ctx.store.keys(ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class DeleteKey(Request):
    """Revoke a key at once."""

    key_id: Annotated[Id, Field(description="The key.", examples=["key_3s8v5y"])]


@operation(Scope.ADMIN, destroys=True)
async def delete_key(ctx: Context, request: DeleteKey) -> None:
    _refuse_if_limited(ctx)
    if request.key_id == OWNER_KEY_ID:
        raise Forbidden("the owner's key cannot be deleted; `postroom key reset` replaces it")
    if not await ctx.store.remove_key(request.key_id):
        raise NotFound(no_such("key", request.key_id))


def _refuse_if_limited(ctx: Context) -> None:
    if ctx.visible is not None or ctx.caller.namespaces is not None:
        raise Forbidden(
            "a key that is limited to inboxes, accounts or namespaces cannot manage keys; use "
            "another key"
        )
