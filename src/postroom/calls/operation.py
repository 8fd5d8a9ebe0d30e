"""Operations: how one is declared, called, limited and audited; lookups of what a caller names."""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, cast

from postroom.admission.spool import release
from postroom.calls.context import RequestContext, parse_request
from postroom.calls.receipts import note_suspicious, receipt, withheld
from postroom.calls.request import READERS, Id, Request, argument, refuse_other_kind
from postroom.errors import Conflict, Forbidden, MailError, NotFound, no_such
from postroom.model.account import Account
from postroom.model.event import AuditRecord
from postroom.model.inbox import OWNERS_RIGHTS, AddressRights, Inbox
from postroom.model.key import Scope
from postroom.model.mail.message import Attachment, Message, Thread
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING

_NAMED = frozenset(
    ("label", "labels", "flags", "destination", "mailbox", "to", "cc", "bcc", "recipient", "scopes",
     "name", "address", "username", "url", "types", "status", "tags", "namespace",
     "expires_at", "redirect_uri")
)  # fmt: skip
"""Arguments that the audit log may hold. Bodies, subjects and secrets are not among them."""

_MAX_CHARS = 200
_MAX_ITEMS = 20


def audit_record_of(ctx: RequestContext, action: str, request: Request) -> AuditRecord:
    """The audit record of a call."""
    values = {name: getattr(request, name) for name in type(request).model_fields}
    return AuditRecord(
        actor=ctx.caller.key_id,
        action=action,
        at=ctx.clock(),
        targets=tuple(_targets(values)),
        details={name: shown for name, v in values.items() if (shown := _audited_value(name, v))},
        namespace=values.get("namespace"),
        via=ctx.via,
    )


def _targets(values: dict[str, Any]) -> list[str]:
    """The ids in the first argument that holds ids."""
    for name, value in values.items():
        if name.endswith("_id") and isinstance(value, str):
            return [value]
        if name.endswith("_ids") and isinstance(value, list):
            return list(dict.fromkeys(value))
    return []


def _audited_value(name: str, value: object) -> object:
    if isinstance(value, (bool, int)) and not isinstance(value, Enum):
        return value
    if name not in _NAMED:
        return None
    if isinstance(value, list):
        return [str(item)[:_MAX_CHARS] for item in value[:_MAX_ITEMS]]
    return value[:_MAX_CHARS] if isinstance(value, str) else None


R = TypeVar("R", bound=Request)
T = TypeVar("T")


@dataclass(frozen=True)
class Operation(Generic[R, T]):
    """`async def verb_noun(ctx, request) -> result`, with the scope that it needs.

    `destroys` marks what cannot be undone; surfaces warn of it. `precondition` may refuse every
    call before its arguments are checked. An operation that `waits` does not count as running, and
    ends when the client disconnects.
    """

    run: Callable[[RequestContext, R], Awaitable[T]]
    scope: Scope
    destroys: bool = False
    precondition: Callable[[RequestContext], None] | None = None
    waits: bool = False
    other_scope: Scope | None = None
    """A scope that is enough as well."""

    @property
    def name(self) -> str:
        return self.run.__name__

    @cached_property
    def request(self) -> type[R]:
        return typing.cast(type[R], self._hints["request"])

    @cached_property
    def result(self) -> Any:
        return self._hints["return"]

    @property
    def description(self) -> str:
        return " ".join((self.request.__doc__ or "").split())

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.run)

    async def __call__(self, ctx: RequestContext, request: R) -> T:
        return await self.run(ctx, request)


def operation(
    scope: Scope,
    *,
    destroys: bool = False,
    precondition: Callable[[RequestContext], None] | None = None,
    waits: bool = False,
    other_scope: Scope | None = None,
) -> Callable[[Callable[[RequestContext, R], Awaitable[T]]], Operation[R, T]]:
    """Declare a function as an operation."""
    return lambda run: Operation(run, scope, destroys, precondition, waits, other_scope)


async def call(
    ctx: RequestContext, operation: Operation[Any, T], arguments: Mapping[str, Any]
) -> T:
    """Call an operation: check rate, scope and arguments, then run it.

    A caller without the scope `read` gets a receipt of what is not read: `calls.receipts`.

    Raises:
        RateLimited: the caller is over its rate limit.
        Forbidden: the caller lacks the scope.
        InvalidInput: the arguments are not valid; nothing was done.
    """
    if ctx.rates is not None and ctx.caller.is_metered:
        ctx.rates.take(ctx.caller.key_id)
    if ctx.fair_queue is None or not ctx.caller.is_metered or operation.waits:
        return await _answer(ctx, operation, arguments)
    async with ctx.fair_queue.of(ctx.caller.key_id):
        return await _answer(ctx, operation, arguments)


def require_scope(ctx: RequestContext, scope: Scope) -> None:
    """Raise Forbidden if the caller lacks a scope."""
    if scope not in ctx.caller.scopes:
        raise Forbidden(
            f"this needs a key with the scope {scope}; "
            f"yours has {', '.join(sorted(ctx.caller.scopes)) or 'none'}"
        )


async def _answer(
    ctx: RequestContext, operation: Operation[Any, T], arguments: Mapping[str, Any]
) -> T:
    if operation.other_scope not in ctx.caller.scopes:
        require_scope(ctx, operation.scope)
    if operation.precondition is not None:
        operation.precondition(ctx)
    request = await _with_inbox_ids(ctx, parse_request(operation.request, arguments))
    if operation.waits:
        release()
    if operation.scope is not Scope.READ:
        ctx = replace(ctx, store=ctx.store.by(audit_record_of(ctx, operation.name, request)))
    if operation.scope is Scope.READ or Scope.READ in ctx.caller.scopes:
        return await _run(ctx, operation, request)
    try:
        return cast(T, receipt(await _run(ctx, operation, request), request))
    except MailError as error:
        raise withheld(error) from error


async def _run(ctx: RequestContext, operation: Operation[Any, T], request: Request) -> T:
    result = await operation.run(ctx, request)
    if not ctx.caller.is_owner:
        await note_suspicious(ctx, result)
    if operation.precondition is not None:
        # A live operation writes nothing here, so the audit entry is recorded on its own.
        await ctx.store.record_audit()
    return result


_OF_INBOXES = ("inbox_id", "inboxes")
"""Arguments that take the address of an inbox in place of its id."""


async def _with_inbox_ids(ctx: RequestContext, request: R) -> R:
    """The request with ids in place of the addresses of inboxes that the caller may see.

    Other addresses stay, so that they are as unknown as an unknown id.
    """
    ids: dict[str, object] = {}
    for name in _OF_INBOXES:
        value = getattr(request, name, None)
        if isinstance(value, str) and "@" in value:
            ids[name] = await inbox_id_of(ctx, value)
        elif isinstance(value, list) and any("@" in one for one in value):
            ids[name] = [await inbox_id_of(ctx, one) for one in value]
    for name in type(request).model_fields:
        if isinstance(inner := getattr(request, name), Request):
            ids[name] = await _with_inbox_ids(ctx, inner)
    return request.model_copy(update=ids) if ids else request


async def inbox_id_of(ctx: RequestContext, name: str) -> str:
    """The id of the inbox with this address, if the caller may see it; else the name as it is."""
    if "@" not in name:
        return name
    inbox = (await ctx.store.inboxes_at([name])).get(name.lower())
    return inbox.id if inbox is not None and ctx.visible.sees(inbox.id) else name


MessageId = Annotated[Id, argument("The message.", "msg_4h8t2w")]


class OneMessage(Request):
    """A request about one message."""

    message_id: MessageId


_THREAD_READERS = {"msg": "get_message", "inb": "list_messages", "att": "get_attachment_content"}
_ATTACHMENT_READERS = dict.fromkeys(("msg", "thr", "inb"), "list_attachments")


async def only_inbox(ctx: RequestContext, *, argument: str = "inbox_id") -> Inbox:
    """The inbox of a caller who has just one; *argument* could name one. Raises Conflict."""
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=20))
    if found.total == 1:
        return found.rows[0]
    if not found.total:
        raise Conflict(f"there is no inbox to use; {_how_to_get_inbox(ctx)}")
    reads = Scope.READ in ctx.caller.scopes
    names = ", ".join(f"{i.id} ({i.address})" if reads else i.id for i in found.rows)
    if argument == "from":
        names = ", ".join(i.address for i in found.rows) if reads else "your addresses"
    raise Conflict(f"{argument}: there are several inboxes; name one of {names}")


def _how_to_get_inbox(ctx: RequestContext) -> str:
    if ctx.is_limited:
        return "this key sees no inbox; ask the owner for a key that sees one"
    if Scope.WRITE not in ctx.caller.scopes:
        return "this key cannot create one; ask the owner for an inbox"
    return "create_inbox makes one"


def require(found: T | None, missing: str) -> T:
    """The result of a lookup. Raises NotFound with the message *missing* if there is none."""
    if found is None:
        raise NotFound(missing)
    return found


async def inbox_of(ctx: RequestContext, inbox_id: str) -> Inbox:
    """The inbox with this id or address, if it exists for the caller. Raises NotFound."""
    found = await ctx.store.inbox(await inbox_id_of(ctx, inbox_id), ctx.visible)
    return require(found, no_inbox(inbox_id))


def no_inbox(inbox_id: str) -> str:
    """The message for an inbox that does not exist for the caller."""
    return f"no inbox {inbox_id}; list_inboxes shows those you may use"


async def message_of(ctx: RequestContext, message_id: str) -> Message:
    """The message, if it exists for the caller. Raises NotFound, InvalidInput."""
    refuse_other_kind(message_id, "msg", READERS)
    message = await ctx.store.message(message_id, ctx.visible)
    return require(message, no_such("message", message_id))


async def attachment_of(ctx: RequestContext, attachment_id: str) -> Attachment:
    """The attachment, if it exists for the caller. Raises NotFound."""
    refuse_other_kind(attachment_id, "att", _ATTACHMENT_READERS)
    attachment = await ctx.store.attachment(attachment_id, ctx.visible)
    return require(
        attachment, f"no attachment {attachment_id}; list_attachments shows the existing ones"
    )


async def account_of(ctx: RequestContext, account_id: str) -> Account:
    """The account, if it exists for the caller. Raises NotFound."""
    account = await ctx.store.account(account_id.lower(), ctx.visible)
    return require(account, f"no account {account_id}; get_capabilities lists those you may use")


async def thread_of(
    ctx: RequestContext, thread_id: str, *, limit: int = 1, before: str | None = None
) -> Thread:
    """The thread with its newest messages, if it exists. Raises NotFound, InvalidInput."""
    refuse_other_kind(thread_id, "thr", _THREAD_READERS)
    thread = await ctx.store.thread(thread_id, ctx.visible, limit=limit, before=before)
    return require(thread, no_such("thread", thread_id))


def address_rights(ctx: RequestContext) -> AddressRights:
    """Which addresses the caller may create.

    An agent with the owner's rights is not the owner: it may create `support@` and the like, but
    only the owner may create the names by which a domain is validated or administered, and the
    plus-addresses of another inbox.
    """
    if ctx.caller.is_owner:
        return OWNERS_RIGHTS
    if ctx.caller.is_agent:
        return AddressRights(business_names=True)
    return AddressRights(other_addresses=ctx.visible == EVERYTHING)
