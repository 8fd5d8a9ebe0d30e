"""Looking up what a caller names by its id, if it exists for them; and what they may create."""

from __future__ import annotations

from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.request import READERS, Id, argument, refuse_other_kind
from postroom.errors import Conflict, NotFound, no_such
from postroom.model.account import Account
from postroom.model.inbox import OWNERS_RIGHTS, AddressRights, Inbox
from postroom.model.key import AGENT, Scope
from postroom.model.message import Attachment, Message, Thread
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING

MessageId = Annotated[Id, argument("The message.", "msg_4h8t2w")]
_THREAD_READERS = {"msg": "get_message", "inb": "list_messages", "att": "get_attachment_content"}
_ATTACHMENT_READERS = {
    "msg": "list_attachments",
    "thr": "list_attachments",
    "inb": "list_attachments",
}


async def only_inbox(ctx: RequestContext) -> Inbox:
    """The inbox of a caller who has just one. Raises Conflict."""
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=20))
    if found.total == 1:
        return found.rows[0]
    if not found.total:
        raise Conflict(f"there is no inbox to use; {_how_to_get_inbox(ctx)}")
    names = ", ".join(f"{inbox.id} ({inbox.address})" for inbox in found.rows)
    raise Conflict(f"inbox_id: there are several inboxes; name one of {names}")


def _how_to_get_inbox(ctx: RequestContext) -> str:
    if ctx.is_limited:
        return "this key may see no inbox; ask the owner for a key that names one"
    if Scope.WRITE not in ctx.caller.scopes:
        return "this key cannot create one; ask the owner for an inbox"
    return "create_inbox makes one"


async def inbox_of(ctx: RequestContext, inbox_id: str) -> Inbox:
    """The inbox, if it exists for the caller. Raises NotFound."""
    inbox = await ctx.store.inbox(inbox_id, ctx.visible)
    if inbox is None:
        raise no_inbox(inbox_id)
    return inbox


def no_inbox(inbox_id: str) -> NotFound:
    """The error for an inbox that does not exist for the caller."""
    return NotFound(f"no inbox {inbox_id}; list_inboxes shows those you may use")


async def message_of(ctx: RequestContext, message_id: str) -> Message:
    """The message, if it exists for the caller.

    Raises:
        InvalidInput: the id is one of another kind.
        NotFound: there is no such message.
    """
    refuse_other_kind(message_id, "msg", READERS)
    message = await ctx.store.message(message_id, ctx.visible)
    if message is None:
        raise NotFound(no_such("message", message_id))
    return message


async def attachment_of(ctx: RequestContext, attachment_id: str) -> Attachment:
    """The attachment, if it exists for the caller. Raises NotFound."""
    refuse_other_kind(attachment_id, "att", _ATTACHMENT_READERS)
    attachment = await ctx.store.attachment(attachment_id, ctx.visible)
    if attachment is None:
        raise NotFound(f"no attachment {attachment_id}; list_attachments shows what there is")
    return attachment


async def account_of(ctx: RequestContext, account_id: str) -> Account:
    """The account, if it exists for the caller. Raises NotFound."""
    account = await ctx.store.account(account_id.lower(), ctx.visible)
    if account is None:
        raise NotFound(f"no account {account_id}; get_capabilities lists those you may use")
    return account


async def thread_of(
    ctx: RequestContext, thread_id: str, *, limit: int = 1, before: str | None = None
) -> Thread:
    """The thread, if it exists for the caller, with its newest messages.

    Raises:
        InvalidInput: the id is one of another kind.
        NotFound: there is no such thread.
    """
    refuse_other_kind(thread_id, "thr", _THREAD_READERS)
    thread = await ctx.store.thread(thread_id, ctx.visible, limit=limit, before=before)
    if thread is None:
        raise NotFound(no_such("thread", thread_id))
    return thread


def address_rights(ctx: RequestContext) -> AddressRights:
    """Which addresses the caller may create.

    An agent with the owner's rights is not the owner: it may create `support@` and the like, but
    only the owner may create the names by which a domain is validated or administered, and the
    plus-addresses of another inbox.
    """
    if ctx.caller.is_owner:
        return OWNERS_RIGHTS
    if ctx.caller == AGENT:
        return AddressRights(business_names=True)
    return AddressRights(other_addresses=ctx.visible == EVERYTHING)
