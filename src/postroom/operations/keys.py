"""Keys: create, list and revoke them; the audit log of what they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from postroom.calls.authentication import OWNER_KEY_ID, hash_secret, new_secret
from postroom.calls.context import RequestContext
from postroom.calls.operation import inbox_of, operation
from postroom.calls.receipts import IDENTIFIER, needs_read
from postroom.calls.request import Accepts, Id, InboxName, Paged, Request, argument
from postroom.errors import Forbidden, InvalidInput, NotFound, no_such
from postroom.model.approval import Approval, Policy, RecipientLists
from postroom.model.audit import AuditEntry, AuditQuery
from postroom.model.key import Key, Scope
from postroom.model.page import Page
from postroom.model.view import Everything, view_of
from postroom.operations.accounts import AccountId
from postroom.operations.approvals import ApprovalMode, Recipients, refuse_looser
from postroom.operations.imap.accounts import accounts_of
from postroom.operations.inboxes import Name
from postroom.operations.memories import NamespaceName


class CreateKey(Request):
    """Make a key. The answer is the only one that ever shows it."""

    name: Annotated[Name, argument("What it is for.", "crm", min_length=1)]
    scopes: Annotated[
        list[Scope], argument("What it may do.", ["read"], min_length=1, max_length=5)
    ] = [Scope.READ]
    inboxes: Annotated[
        list[InboxName] | None,
        argument(
            "The only inboxes that exist for it; without: all.", ["inb_7k2m9q"], max_length=1000
        ),
    ] = None
    accounts: Annotated[
        list[AccountId] | None,
        argument(
            "The only accounts that exist for it, with their inboxes; without: all.",
            ["work"],
            max_length=1000,
        ),
    ] = None
    namespaces: Annotated[
        list[NamespaceName] | None,
        argument(
            "The only namespaces of memories that exist for it; without: all, or "
            "none if inboxes or accounts are given.",
            ["support"],
            max_length=1000,
        ),
    ] = None
    approval: ApprovalMode = None
    recipients: Recipients = None


@operation(Scope.ADMIN)
async def create_key(ctx: RequestContext, request: CreateKey) -> Key:
    _refuse_if_limited(ctx)
    _check_approver(ctx, request.scopes)
    beyond = sorted(set(request.scopes) - ctx.caller.scopes)
    if beyond:
        raise Forbidden(f"scopes: your own key lacks {', '.join(beyond)}, so it cannot give it")
    for inbox_id in request.inboxes or ():
        await inbox_of(ctx, inbox_id)
    live = {account.account_id for account in accounts_of(ctx)}
    for account_id in request.accounts or ():
        if account_id not in live and await ctx.store.account(account_id, ctx.visible) is None:
            raise NotFound(f"no account {account_id}; `postroom account list` shows yours")
    policy = _policy(request)
    refuse_looser(ctx, policy, "approval")
    secret = new_secret()
    key = Key(
        id=ctx.new_id("key"),
        name=request.name,
        scopes=tuple(sorted(set(request.scopes))),
        inboxes=view_of(request.inboxes),
        namespaces=view_of(request.namespaces),
        accounts=view_of(request.accounts),
        created_at=ctx.clock().replace(microsecond=0),
        last_used_at=None,
        approval=policy.approval,
        recipients=policy.recipients,
    )
    await ctx.store.add_key(key, hash_secret(secret))
    return replace(key, key=secret)


def _policy(request: CreateKey) -> Policy:
    """The policy of a new key: mail of one that may send is held if it is risky."""
    default: Approval = "risky" if Scope.SEND in request.scopes else "never"
    lists = RecipientLists() if request.recipients is None else request.recipients.lists()
    return Policy(request.approval or default, lists)


def _check_approver(ctx: RequestContext, scopes: list[Scope]) -> None:
    """Only a person makes a key that approves mail, and it can do nothing else."""
    if Scope.APPROVE not in scopes:
        return
    if set(scopes) != {Scope.APPROVE}:
        raise InvalidInput("scopes: a key with the scope approve can have no other scope")
    if Scope.APPROVE not in ctx.caller.scopes:
        raise Forbidden(
            "scopes: a key with the scope approve is made at the terminal, with `postroom key "
            "create`, or on the web pages"
        )


class ListKeys(Paged):
    """List the keys, oldest first; the secrets themselves are not kept."""


@operation(Scope.ADMIN)
async def list_keys(ctx: RequestContext, request: ListKeys) -> Page[Key]:
    _refuse_if_limited(ctx)
    found = await ctx.store.keys(ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class DeleteKey(Request):
    """Revoke a key at once."""

    key_id: Annotated[Id, argument("The key.", "key_3s8v5y")]


@operation(Scope.ADMIN, destroys=True)
async def delete_key(ctx: RequestContext, request: DeleteKey) -> None:
    _refuse_if_limited(ctx)
    if request.key_id == OWNER_KEY_ID:
        raise Forbidden("the owner's key cannot be deleted; `postroom key reset` replaces it")
    if not await ctx.store.remove_key(request.key_id):
        raise NotFound(no_such("key", request.key_id))


def _refuse_if_limited(ctx: RequestContext) -> None:
    views = (ctx.visible, ctx.caller.accounts, ctx.caller.namespaces)
    if not all(isinstance(view, Everything) for view in views):
        raise Forbidden(
            "a key that is limited to inboxes, accounts or namespaces cannot manage keys; use "
            "another key"
        )


_Name = Annotated[
    Annotated[str, Field(min_length=1, max_length=512)] | None,
    Accepts({"pattern": r"^[^\u0000]*$"}),
]
"""Any target, also the key of a memory, which may hold characters that no id has."""


class ListAudit(Paged):
    """List what keys, tools and rules have done, newest first."""

    actor: Annotated[_Name, argument("Only this key or rule.", "key_3s8v5y")] = None
    action: Annotated[_Name, argument("Only this action.", "apply_label")] = None
    target: Annotated[_Name, argument("Only about this.", "msg_4h8t2w")] = None


@operation(Scope.ADMIN)
async def list_audit(ctx: RequestContext, request: ListAudit) -> Page[AuditEntry]:
    if request.target is not None and not IDENTIFIER.fullmatch(request.target):
        needs_read(ctx, "the key of a memory is not an id")
    about = request.model_dump(include={"actor", "action", "target"})
    query = AuditQuery(ctx.visible, ctx.caller.namespaces, page=ctx.cursors.slice(request), **about)
    return ctx.cursors.page(request, await ctx.store.audit(query))
