"""The inbox, identity and account that a mail is sent from."""

from __future__ import annotations

from postroom.calls.context import RequestContext
from postroom.calls.lookups import inbox_of, message_of, only_inbox
from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.mail.addresses import parse_address
from postroom.mail.composing.compose import reply_references
from postroom.mail.text.fold import as_key
from postroom.model.account import Identity
from postroom.model.inbox import Inbox
from postroom.model.message import Message
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.sending.outgoing_mail import OutgoingMail, Parent

_MAX_IDENTITIES = 1_000


async def origin_of(ctx: RequestContext, outgoing_mail: OutgoingMail) -> tuple[Inbox, Parent]:
    """The inbox that sends, and the message that the mail answers."""
    if outgoing_mail.in_reply_to and outgoing_mail.in_reply_to.startswith("msg_"):
        answered = await message_of(ctx, outgoing_mail.in_reply_to)
        inbox = await _sender(ctx, outgoing_mail, answered.inbox_id)
        if inbox.id != answered.inbox_id:
            raise NotFound(f"no message {outgoing_mail.in_reply_to} in the inbox {inbox.id}")
        return inbox, _parent_of(answered)
    inbox = await _sender(ctx, outgoing_mail, None)
    if outgoing_mail.thread_id:
        return inbox, await _thread_parent(ctx, outgoing_mail.thread_id, inbox)
    if outgoing_mail.in_reply_to:
        return inbox, await _parent_by_internet_id(ctx, outgoing_mail.in_reply_to, inbox)
    return inbox, Parent()


async def _sender(ctx: RequestContext, outgoing_mail: OutgoingMail, default: str | None) -> Inbox:
    if outgoing_mail.sender:
        inbox = await _inbox_at(ctx, outgoing_mail.sender)
        if outgoing_mail.inbox_id not in (None, inbox.id):
            raise Conflict(f"from: {inbox.address} is not the address of {outgoing_mail.inbox_id}")
        return inbox
    if outgoing_mail.inbox_id or default:
        return await inbox_of(ctx, outgoing_mail.inbox_id or default or "")
    return await only_inbox(ctx)


async def _inbox_at(ctx: RequestContext, sender: str) -> Inbox:
    _, address = parse_address(sender)
    inbox = (await ctx.store.inboxes_at([address])).get(address.lower())
    if inbox is None or not ctx.visible.sees(inbox.id):
        raise NotFound(f"from: you have no inbox with the address {address}")
    return inbox


def _parent_of(message: Message) -> Parent:
    """The parent of a reply; a Message-ID that no header can carry is left out."""
    references = reply_references(message)
    own = message.internet_message_id
    recipients = (*message.to_addresses, *message.cc_addresses, *message.bcc_addresses)
    return Parent(
        own if own in references else None,
        references,
        message.thread_id,
        message.id,
        (message.from_address,) if message.direction == "outbound" else recipients,
        (message.from_address, *message.reply_to_addresses),
    )


async def _thread_parent(ctx: RequestContext, thread_id: str, inbox: Inbox) -> Parent:
    newest = await ctx.store.newest_message(thread_id, ctx.visible)
    if newest is None or newest.inbox_id != inbox.id:
        raise NotFound(f"no thread {thread_id} in the inbox {inbox.id}")
    return _parent_of(newest)


async def _parent_by_internet_id(ctx: RequestContext, in_reply_to: str, inbox: Inbox) -> Parent:
    """The parent by its Message-ID, stored here or not."""
    internet_id = in_reply_to.strip().removeprefix("<").removesuffix(">")
    if not internet_id or any(c.isspace() or c in "<>" for c in internet_id):
        raise InvalidInput("in_reply_to: give the id of a message (msg_…) or its Message-ID")
    held = await ctx.store.message_by_internet_id(inbox.id, as_key(internet_id))
    return _parent_of(held) if held else Parent(internet_id, (internet_id,))


async def identity_of(
    ctx: RequestContext, outgoing_mail: OutgoingMail, inbox: Inbox, parent: Parent
) -> Identity:
    """The sender: the address in `from`, the one the parent was sent to, or the inbox's default."""
    found = None
    if outgoing_mail.sender:
        found = await ctx.store.identity_at(parse_address(outgoing_mail.sender)[1])
    elif parent.written_to:
        own = {identity.email: identity for identity in await own_identities(ctx, inbox.id)}
        found = next((own[a.lower()] for a in parent.written_to if a.lower() in own), None)
    found = found or await ctx.store.default_identity(inbox.id)
    if found is None:
        raise NotFound(no_such("inbox", inbox.id))
    return found


async def own_identities(ctx: RequestContext, inbox_id: str) -> tuple[Identity, ...]:
    """The addresses that an inbox may send from."""
    found = await ctx.store.identities(ctx.visible, inbox_id, Slice(limit=_MAX_IDENTITIES))
    return tuple(found.rows)


async def refuse_unsendable(ctx: RequestContext, inbox: Inbox) -> None:
    """Refuse to send from an account that cannot send. Raises Conflict."""
    if inbox.account_id is None:
        return
    _refuse_missing_scope(await _scopes(ctx, inbox.account_id), ("send",), inbox.account_id)
    stored = await ctx.store.capabilities_of(inbox.account_id)
    if stored is not None and not stored["can_send"]:
        raise Conflict(
            f"the account {inbox.account_id} cannot send: it was added without an SMTP server, or "
            "its provider does not accept mail"
        )


async def refuse_undraftable(ctx: RequestContext, inbox: Inbox) -> None:
    """Refuse drafts for an account that is read-only or cannot send. Raises Conflict."""
    if inbox.account_id is None:
        return
    scopes = await _scopes(ctx, inbox.account_id)
    _refuse_missing_scope(scopes, ("draft", "send"), inbox.account_id)
    if "send" in scopes:
        await refuse_unsendable(ctx, inbox)


async def _scopes(ctx: RequestContext, account_id: str) -> tuple[str, ...]:
    """The scopes that an account was added with."""
    account = await ctx.store.account(account_id, EVERYTHING)
    if account is None:
        raise NotFound(no_such("account", account_id))
    return tuple(account.options.get("scopes", ("read", "draft", "send")))


def _refuse_missing_scope(
    scopes: tuple[str, ...], needed: tuple[str, ...], account_id: str
) -> None:
    if not set(scopes) & set(needed):
        raise Conflict(
            f"the account {account_id} was added for {', '.join(scopes)} only; to {needed[0]} "
            f"with it, remove it and add it with --scope {needed[0]}"
        )
