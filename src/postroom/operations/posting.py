"""A letter on its way: checked, composed and recorded in one transaction, exactly once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, TypeVar

from pydantic import Field

from postroom.blocking import in_thread
from postroom.errors import InvalidInput
from postroom.mail.compose import Outgoing, compose
from postroom.model.draft import StoredDraft
from postroom.model.event import Event
from postroom.model.inbox import SENT, Inbox
from postroom.model.message import Recipient
from postroom.model.sending import Sent, overall_status
from postroom.model.stored import NewMessage, NewSend
from postroom.operations.account_scopes import refuse_mute, refuse_undraftable
from postroom.operations.confidences import warn_of_confidences
from postroom.operations.context import Context
from postroom.operations.enclosures import collect
from postroom.operations.keeping import let_go
from postroom.operations.letters import Letter, Parent, outgoing_of, recipients_of
from postroom.operations.origins import identity_of, origin_of
from postroom.operations.oversize import refuse_oversize
from postroom.operations.request import Request
from postroom.pipeline.addressing import inboxes_for
from postroom.pipeline.receive import Arrival, as_sent, check_size, put_away
from postroom.pipeline.routing import route_all

S = TypeVar("S", bound="Sending")


IdempotencyKey = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=256,
        description="Your key for this send: repeated, the mail goes out once.",
        examples=["order-1042"],
    ),
]


class Sending(Request):
    """What every send takes beside the mail itself."""

    idempotency_key: IdempotencyKey = None
    allow_duplicate: Annotated[
        bool,
        Field(
            description="Send again what was sent minutes ago.",
            examples=[True],
        ),
    ] = False
    wait_s: Annotated[
        int,
        Field(ge=0, le=30, description="Wait so long for the relay's answer.", examples=[10]),
    ] = 0


async def send_once(
    ctx: Context, request: S, write: Callable[[Context, S], Awaitable[Letter]]
) -> Sent:
    """Send what *write* makes of a request, exactly once; when this returns, it is on disk.

    What makes two calls the same is what the caller said, and it is looked up before anything
    else: by the time of a retry the thread has grown, and the answered mail may be gone.
    With `wait_s` it returns as soon as the outcome is known, but no later.

    Raises:
        InvalidInput, TooLarge, NotFound: something in the letter is wrong; nothing was sent.
        Conflict: its idempotency key was used for another letter.
        RateLimited: the caller has sent its share of this hour.
    """
    payload = _payload(request)
    earlier = await ctx.store.earlier_send(
        ctx.caller.key_id,
        payload,
        idempotency_key=request.idempotency_key,
        allow_duplicate=request.allow_duplicate,
        now=ctx.clock(),
    )
    sent = earlier or await _send(ctx, await write(ctx, request), request, payload)
    return await _outcome(ctx, sent, request.wait_s) if request.wait_s else sent


async def _outcome(ctx: Context, sent: Sent, wait_s: int) -> Sent:
    """Wait until the relay has spoken of everybody who is queued, or the time is over."""

    def is_about_it(event: Event) -> bool:
        return event.message_id == sent.message_id

    let_go()
    with ctx.watch.subscribe(ctx.store, is_about_it) as subscription:
        events = aiter(ctx.watch.after(subscription, await ctx.store.newest_event()))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while _is_waiting(sent := await _current(ctx, sent)):
                    await anext(events)
    return sent


def _is_waiting(sent: Sent) -> bool:
    return any(r.status == "queued" and r.detail is None for r in sent.recipients)


async def _current(ctx: Context, sent: Sent) -> Sent:
    message = await ctx.store.message(sent.message_id, ctx.visible)
    recipients = (message.recipients if message else None) or sent.recipients
    return replace(sent, status=overall_status(recipients), recipients=recipients)


async def sent_with_key(ctx: Context, draft_id: str, key: str) -> Sent | None:
    """What became of a draft that was sent with this key, even if it is a draft again since.

    Raises:
        Conflict: the key was used for another mail.
    """
    earlier = await ctx.store.earlier_send(
        ctx.caller.key_id,
        _draft_payload(draft_id),
        idempotency_key=key,
        allow_duplicate=False,
        now=ctx.clock(),
    )
    return None if earlier is None else await _current(ctx, earlier)


async def send_draft_once(
    ctx: Context, letter: Letter, draft: StoredDraft, key: str | None = None
) -> Sent:
    """Send what a draft says; whoever has sent it before, there is one mail.

    Raises what `send_once` raises for a letter that is wrong, and Conflict when it was changed.
    """
    request = Sending(idempotency_key=key)
    return await _send(ctx, letter, request, _draft_payload(draft.id), draft)


def _draft_payload(draft_id: str) -> bytes:
    return hashlib.sha256(f"draft {draft_id}".encode()).digest()


async def _send(
    ctx: Context,
    letter: Letter,
    request: Sending,
    payload: bytes,
    draft: StoredDraft | None = None,
) -> Sent:
    _check_recipients(ctx, letter)
    inbox, parent = await origin_of(ctx, letter)
    await refuse_mute(ctx, inbox)
    sender = await identity_of(ctx, letter, inbox, parent)
    outgoing = outgoing_of(ctx, letter, sender, parent, await collect(ctx, letter.enclosures))
    raw = await in_thread(compose, outgoing)
    local = await inboxes_for(ctx, recipients_of(outgoing))
    await _check_size(ctx, inbox, outgoing, raw, local)
    (parsed,) = await ctx.parser.parse([raw])
    warnings = await warn_of_confidences(
        ctx, f"{parsed.subject}\n{parsed.text}", recipients_of(outgoing)
    )
    recipients = tuple(
        [Recipient(address, "scheduled") for address in recipients_of(outgoing)]
        if letter.send_at
        else (await route_all(ctx, recipients_of(outgoing), local, inbox.account_id)).values()
    )
    now_local = () if letter.send_at else dict.fromkeys(i.id for i in local.values())
    own = Arrival(raw, inbox.id, SENT, "outbound")
    arrivals = [own, *(Arrival(raw, inbox_id) for inbox_id in now_local)]
    async with put_away(ctx, [(arrival, parsed) for arrival in arrivals]) as copies:
        return await ctx.store.record_send(
            NewSend(
                message=_sent_copy(copies[0], letter, outgoing, parent, recipients),
                deliveries=tuple(copies[1:]),
                caller=ctx.caller.key_id,
                payload=payload,
                idempotency_key=request.idempotency_key,
                allow_duplicate=request.allow_duplicate,
                most_per_hour=ctx.limits.sends_per_hour if ctx.caller.is_metered else None,
                answered=None if letter.is_forward else parent.message_id,
                send_at=letter.send_at,
                warnings=warnings,
                draft_id=draft.id if draft else None,
                draft_revision=draft.revision if draft else 0,
            )
        )


async def check_letter(ctx: Context, letter: Letter) -> Inbox:
    """Refuse what could not be sent, without sending it; the inbox that would send.

    Raises what `send_once` raises for a letter that is wrong.
    """
    _check_recipients(ctx, letter)
    inbox, parent = await origin_of(ctx, letter)
    await refuse_undraftable(ctx, inbox)
    sender = await identity_of(ctx, letter, inbox, parent)
    outgoing = outgoing_of(ctx, letter, sender, parent, await collect(ctx, letter.enclosures))
    raw = await in_thread(compose, outgoing)
    await _check_size(ctx, inbox, outgoing, raw, await inboxes_for(ctx, recipients_of(outgoing)))
    return inbox


async def _check_size(
    ctx: Context, inbox: Inbox, outgoing: Outgoing, raw: bytes, local: Collection[str]
) -> None:
    """Refuse what is too large for us, or for the provider if anybody gets it from there."""
    check_size(raw, ctx.limits.message_bytes)
    leaves = any(address.lower() not in local for address in recipients_of(outgoing))
    if inbox.account_id is not None and leaves:
        await refuse_oversize(ctx, inbox.account_id, outgoing, raw)


def _check_recipients(ctx: Context, letter: Letter) -> None:
    count = len(letter.to) + len(letter.cc) + len(letter.bcc)
    if not count:
        raise InvalidInput("to: at least one recipient is required")
    if count > ctx.limits.recipients:
        raise InvalidInput(f"to: {count} recipients; the limit is {ctx.limits.recipients}")


def _sent_copy(
    copy: NewMessage,
    letter: Letter,
    outgoing: Outgoing,
    parent: Parent,
    recipients: tuple[Recipient, ...],
) -> NewMessage:
    """The sender's own message, which knows what became of each recipient."""
    sent = as_sent(copy, [address for _, address in outgoing.bcc])
    answered = dict.fromkeys(a.lower() for a in parent.senders if a and letter.is_automatic)
    return replace(
        sent,
        recipients=recipients,
        thread_id=parent.thread_id,
        auto_answered=tuple(answered),
    )


def _payload(request: Sending) -> bytes:
    """What makes two sends the same: all that the caller said but how to repeat it."""
    said = request.model_dump_json(
        exclude={"idempotency_key", "allow_duplicate", "wait_s"}, exclude_defaults=True
    )
    return hashlib.sha256(f"{type(request).__name__}{said}".encode()).digest()
