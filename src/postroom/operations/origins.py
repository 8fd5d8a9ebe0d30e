"""Where a letter comes from: which inbox sends it, what it answers, and under which address."""

from __future__ import annotations

from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.mail.compose import parse_address, reply_references
from postroom.mail.keying import as_key
from postroom.model.account import Identity
from postroom.model.inbox import Inbox
from postroom.model.message import Message
from postroom.model.page import Slice
from postroom.operations.context import Context
from postroom.operations.inboxes import inbox_of
from postroom.operations.letters import Letter, Parent
from postroom.operations.messages import message_of

_MOST_IDENTITIES = 1_000


async def origin_of(ctx: Context, letter: Letter) -> tuple[Inbox, Parent]:
    """Decide which inbox sends, and what the letter answers."""
    if letter.in_reply_to and letter.in_reply_to.startswith("msg_"):
        answered = await message_of(ctx, letter.in_reply_to)
        inbox = await _sender(ctx, letter, answered.inbox_id)
        if inbox.id != answered.inbox_id:
            raise NotFound(f"no message {letter.in_reply_to} in the inbox {inbox.id}")
        return inbox, _answering(answered)
    inbox = await _sender(ctx, letter, None)
    if letter.thread_id:
        return inbox, await _thread_parent(ctx, letter.thread_id, inbox)
    if letter.in_reply_to:
        return inbox, await _foreign_parent(ctx, letter.in_reply_to, inbox)
    return inbox, Parent()


async def _sender(ctx: Context, letter: Letter, default: str | None) -> Inbox:
    if letter.sender:
        inbox = await _inbox_at(ctx, letter.sender)
        if letter.inbox_id not in (None, inbox.id):
            raise Conflict(f"from: {inbox.address} is not the address of {letter.inbox_id}")
        return inbox
    if letter.inbox_id or default:
        return await inbox_of(ctx, letter.inbox_id or default or "")
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=20))
    if found.total == 1:
        return found.rows[0]
    if not found.total:
        raise Conflict("there is no inbox to send from; create_inbox makes one")
    names = ", ".join(f"{inbox.id} ({inbox.address})" for inbox in found.rows)
    raise Conflict(f"inbox_id: there are several inboxes; name one of {names}")


async def _inbox_at(ctx: Context, sender: str) -> Inbox:
    _, address = parse_address(sender)
    inbox = (await ctx.store.inboxes_at([address])).get(address.lower())
    if inbox is None or (ctx.visible is not None and inbox.id not in ctx.visible):
        raise NotFound(f"from: you have no inbox with the address {address}")
    return inbox


def _answering(message: Message) -> Parent:
    """What to say of the mail that is answered; an id that no header can carry is left out."""
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


async def _thread_parent(ctx: Context, thread_id: str, inbox: Inbox) -> Parent:
    newest = await ctx.store.newest_message(thread_id, ctx.visible)
    if newest is None or newest.inbox_id != inbox.id:
        raise NotFound(f"no thread {thread_id} in the inbox {inbox.id}")
    return _answering(newest)


async def _foreign_parent(ctx: Context, in_reply_to: str, inbox: Inbox) -> Parent:
    """A Message-ID: a mail we hold, or one we have never seen."""
    internet_id = in_reply_to.strip().removeprefix("<").removesuffix(">")
    if not internet_id or any(c.isspace() or c in "<>" for c in internet_id):
        raise InvalidInput("in_reply_to: give the id of a message (msg_…) or its Message-ID")
    held = await ctx.store.message_by_internet_id(inbox.id, as_key(internet_id))
    return _answering(held) if held else Parent(internet_id, (internet_id,))


async def identity_of(ctx: Context, letter: Letter, inbox: Inbox, parent: Parent) -> Identity:
    """Whom the letter is from: the address that was named, the one that it answers for, or the
    default of the inbox.
    """
    found = None
    if letter.sender:
        found = await ctx.store.identity_at(parse_address(letter.sender)[1])
    elif parent.written_to:
        own = {identity.email: identity for identity in await own_identities(ctx, inbox.id)}
        found = next((own[a.lower()] for a in parent.written_to if a.lower() in own), None)
    found = found or await ctx.store.default_identity(inbox.id)
    if found is None:
        raise NotFound(no_such("inbox", inbox.id))
    return found


async def own_identities(ctx: Context, inbox_id: str) -> tuple[Identity, ...]:
    """The addresses that an inbox may send from."""
    found = await ctx.store.identities(ctx.visible, inbox_id, Slice(limit=_MOST_IDENTITIES))
    return tuple(found.rows)
