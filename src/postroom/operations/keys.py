"""Keys: create, list and revoke them; the audit log of what they did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from postroom.calls.authentication import OWNER_KEY_ID, hash_secret, new_secret
from postroom.calls.context import RequestContext
from postroom.calls.operation import inbox_of, operation, require
from postroom.calls.receipts import IDENTIFIER, needs_read
from postroom.calls.request import (
    Accepts,
    Id,
    InboxName,
    Moment,
    Paged,
    Request,
    argument,
    change_of,
    moment_of,
)
from postroom.errors import Forbidden, InvalidInput, NotFound, no_such
from postroom.model.event import AuditEntry, AuditQuery, Via
from postroom.model.key import Key, KeyChange, Scope
from postroom.model.mail.approval import APPROVALS, Approval, Policy
from postroom.model.page import Page
from postroom.model.view import view_of
from postroom.operations.accounts import AccountId
from postroom.operations.imap.accounts import accounts_of
from postroom.operations.inboxes import Name
from postroom.operations.memories import NamespaceName
from postroom.operations.outgoing.approvals import (
    ApprovalMode,
    Recipients,
    refuse_if_limited,
    refuse_looser,
)

_SPAN = re.compile(r"([1-9][0-9]{0,4})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_NEVER = "never"
KeyId = Annotated[Id, argument("The key.", "key_3s8v5y")]


def _checked_expiry(written: str | None) -> str | None:
    if not written or written == _NEVER or _SPAN.fullmatch(written) or moment_of(written):
        return written or None
    raise ValueError("write 2027-01-31T09:30:00Z, a time from now such as 30d or 12h, or never")


Expiry = Annotated[
    Annotated[str, Field(max_length=64)] | None,
    AfterValidator(_checked_expiry),
    Accepts(
        {
            "anyOf": [
                {"format": "date-time"},
                {"format": "date"},
                {"pattern": f"^(?:{_SPAN.pattern}|{_NEVER})?$"},
            ]
        }
    ),
]
"""When a key ends: a time, a time from now, or never."""


def _expiry_of(ctx: RequestContext, written: str | None) -> datetime | None:
    """The time at which a key ends; None if it never does.

    Raises:
        InvalidInput: it is in the past.
        Forbidden: the caller's own key ends before.
    """
    found = None if written in (None, _NEVER) else _moment(written, ctx.clock())
    if found is not None and found <= ctx.clock():
        problem = "is in the past; give a future time, such as 30d; delete_key revokes a key now"
        raise InvalidInput.of(("expires_at", problem))
    own = ctx.caller.expires_at
    if own is not None and (found is None or found > own):
        raise Forbidden(
            f"expires_at: your own key expires at {own:%Y-%m-%dT%H:%M:%SZ}; give this time or an "
            "earlier one"
        )
    return found


def _moment(written: str, now: datetime) -> datetime | None:
    span = _SPAN.fullmatch(written)
    if span is None:
        return moment_of(written)
    length = timedelta(**{_UNITS[span[2]]: int(span[1])})
    return now.replace(microsecond=0) + length


OnlyInboxes = Annotated[
    list[InboxName] | None,
    argument("The only inboxes that it sees; default: all.", ["inb_7k2m9q"], max_length=1000),
]
ExpiresAt = Annotated[
    Expiry, argument("When it expires: a time, or a time from now such as 30d.", "30d")
]


class CreateKey(Request):
    """Create a key. It is shown only once."""

    name: Annotated[Name, argument("What it is for.", "crm", min_length=1)]
    scopes: Annotated[
        list[Scope], argument("Its scopes.", ["read"], min_length=1, max_length=5)
    ] = [Scope.READ]
    inboxes: OnlyInboxes = None
    accounts: Annotated[
        list[AccountId] | None,
        argument(
            "The only accounts that it sees, with their inboxes; default: all.",
            ["work"],
            max_length=1000,
        ),
    ] = None
    namespaces: Annotated[
        list[NamespaceName] | None,
        argument(
            "The only namespaces of memories that it sees; default: all, or "
            "none if inboxes or accounts are given.",
            ["support"],
            max_length=1000,
        ),
    ] = None
    approval: ApprovalMode = None
    recipients: Recipients = None
    expires_at: ExpiresAt = None


@operation(Scope.ADMIN)
async def create_key(ctx: RequestContext, request: CreateKey) -> Key:
    key, secret = await new_key(ctx, request), new_secret(ctx.cell)
    await ctx.store.add_key(key, hash_secret(secret))
    return replace(key, key=secret)


async def new_key(ctx: RequestContext, request: CreateKey) -> Key:
    """The key that a caller asks for, not stored yet: nobody gives more than they have.

    Raises Forbidden, InvalidInput, NotFound.
    """
    refuse_if_limited(ctx)
    _check_approver(ctx, request.scopes)
    beyond = sorted(set(request.scopes) - ctx.caller.scopes)
    if beyond:
        raise Forbidden(f"scopes: your own key lacks {', '.join(beyond)}, so it cannot grant it")
    for inbox_id in request.inboxes or ():
        await inbox_of(ctx, inbox_id)
    live = {account.account_id for account in accounts_of(ctx)}
    for account_id in request.accounts or ():
        if account_id not in live and await ctx.store.account(account_id, ctx.visible) is None:
            raise NotFound(f"no account {account_id}; `postroom account list` shows yours")
    policy = _policy(ctx, request)
    refuse_looser(ctx, policy, "approval")
    return Key(
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
        expires_at=_expiry_of(ctx, request.expires_at),
    )


def _policy(ctx: RequestContext, request: CreateKey) -> Policy:
    """The policy of a new key: mail of one that may send is held if it is risky.

    It is not looser than the caller's own, unless the caller asks for that.
    """
    own = ctx.caller.policy
    usual: Approval = "risky" if Scope.SEND in request.scopes else "never"
    default = max(usual, own.approval, key=APPROVALS.index)
    lists = own.recipients if request.recipients is None else request.recipients.lists()
    return Policy(request.approval or default, lists)


def _check_approver(ctx: RequestContext, scopes: list[Scope]) -> None:
    """Only a person makes a key that approves mail, and it can do nothing else."""
    if Scope.APPROVE not in scopes:
        return
    if set(scopes) != {Scope.APPROVE}:
        raise InvalidInput("scopes: a key with the scope approve can have no other scope")
    if Scope.APPROVE not in ctx.caller.scopes:
        raise Forbidden(
            "scopes: a key with the scope approve is created at the terminal, with `postroom key "
            "create`, or on the web pages"
        )


class ListKeys(Paged):
    """List the keys, oldest first; secrets are not stored."""


@operation(Scope.ADMIN)
async def list_keys(ctx: RequestContext, request: ListKeys) -> Page[Key]:
    refuse_if_limited(ctx)
    found = await ctx.store.keys(ctx.cursors.slice(request))
    return ctx.cursors.page(request, replace(found, rows=await _with_sign_in(ctx, found.rows)))


async def _with_sign_in(ctx: RequestContext, keys: Sequence[Key]) -> tuple[Key, ...]:
    """The keys; those of OAuth clients say whether the client is still signed in."""
    grants = [key.id for key in keys if key.client_id is not None]
    valid = await ctx.store.signed_in_grants(grants, ctx.clock()) if grants else set[str]()
    return tuple(
        replace(key, signed_in=key.id in valid) if key.id in grants else key for key in keys
    )


class GetKey(Request):
    """Get one key; its secret is not stored."""

    key_id: KeyId


@operation(Scope.ADMIN)
async def get_key(ctx: RequestContext, request: GetKey) -> Key:
    refuse_if_limited(ctx)
    [key] = await _with_sign_in(ctx, [await _key_of(ctx, request.key_id)])
    return key


async def _key_of(ctx: RequestContext, key_id: str) -> Key:
    """Raises NotFound."""
    found = await ctx.store.keys_by_id([key_id])
    return require(next(iter(found), None), no_such("key", key_id))


class UpdateKey(Request):
    """Rename a key, or change its expiry or the policy of its mail.

    A key that has expired works again when extended.
    """

    constraints = (
        change_of(
            ("name", "expires_at", "approval", "recipients"),
            "give name, expires_at, approval or recipients: what to change",
        ),
    )
    key_id: KeyId
    name: Annotated[Name | None, argument("What it is for.", "crm", min_length=1)] = None
    expires_at: Annotated[
        Expiry, argument("When it expires: a time, a time from now such as 30d, or never.", "never")
    ] = None
    approval: ApprovalMode = None
    recipients: Recipients = None


@operation(Scope.ADMIN)
async def update_key(ctx: RequestContext, request: UpdateKey) -> Key:
    refuse_if_limited(ctx)
    change = KeyChange(name=request.name, policy=await _changed_policy(ctx, request))
    if request.expires_at is not None:
        if request.key_id == OWNER_KEY_ID:
            raise Forbidden("the owner's key does not expire; `postroom key reset` replaces it")
        ends = _expiry_of(ctx, request.expires_at)
        change = replace(change, expires_at=ends, never_expires=ends is None)
    return require(
        await ctx.store.update_key(request.key_id, change), no_such("key", request.key_id)
    )


async def _changed_policy(ctx: RequestContext, request: UpdateKey) -> Policy | None:
    """The new policy of a key, if it changes. Raises NotFound, Forbidden."""
    if request.approval is None and request.recipients is None:
        return None
    before = (await _key_of(ctx, request.key_id)).policy
    lists = before.recipients if request.recipients is None else request.recipients.lists()
    policy = Policy(request.approval or before.approval, lists)
    refuse_looser(ctx, policy, "approval", before)
    return policy


class DeleteKey(Request):
    """Revoke a key immediately."""

    key_id: KeyId


@operation(Scope.ADMIN, destroys=True)
async def delete_key(ctx: RequestContext, request: DeleteKey) -> None:
    refuse_if_limited(ctx)
    if request.key_id == OWNER_KEY_ID:
        raise Forbidden("the owner's key cannot be deleted; `postroom key reset` replaces it")
    if not await ctx.store.remove_key(request.key_id):
        raise NotFound(no_such("key", request.key_id))


_Name = Annotated[
    Annotated[str, Field(min_length=1, max_length=512)] | None,
    Accepts({"pattern": r"^[^\u0000]*$"}),
]
"""Any target, also the key of a memory, which may hold characters that no id has."""


_AUDIT_FILTERS = ("actor", "action", "target", "via", "after_date", "before_date")


class ListAudit(Paged):
    """List changes made by keys, tools and rules, newest first."""

    actor: Annotated[_Name, argument("Only this key or rule.", "key_3s8v5y")] = None
    action: Annotated[_Name, argument("Only this action.", "apply_label")] = None
    target: Annotated[_Name, argument("Only on this object.", "msg_4h8t2w")] = None
    via: Annotated[Via | None, argument("Only changes requested this way.", "mcp-stdio")] = None
    after_date: Annotated[Moment, argument("From this time on.", "2026-01-31")] = None
    before_date: Annotated[Moment, argument("Before this time.", "2026-02-28")] = None


@operation(Scope.ADMIN)
async def list_audit(ctx: RequestContext, request: ListAudit) -> Page[AuditEntry]:
    if request.target is not None and not IDENTIFIER.fullmatch(request.target):
        needs_read(ctx, "the key of a memory is not an id")
    about = request.model_dump(include={*_AUDIT_FILTERS})
    query = AuditQuery(ctx.visible, ctx.caller.namespaces, page=ctx.cursors.slice(request), **about)
    return ctx.cursors.page(request, await ctx.store.audit(query))
