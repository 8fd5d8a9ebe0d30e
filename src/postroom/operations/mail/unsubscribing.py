"""Unsubscribing from list mail, without ever opening a link."""

from __future__ import annotations

from dataclasses import replace

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import MessageId, OneMessage, message_of, operation
from postroom.errors import Conflict, InvalidInput, ProviderError, about_mail
from postroom.mail.unsubscribe import UnsubscribeMail, UnsubscribeOptions, unsubscribe_options
from postroom.model.key import Scope
from postroom.model.mail.message import Message
from postroom.model.mail.sending import Unsubscribed
from postroom.sending.outgoing_mail import OutgoingMail, own_identities
from postroom.sending.submission import SendOptions, send_once

_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_BODY = b"List-Unsubscribe=One-Click"
_UNSIGNED = "no valid DKIM signature covers the unsubscribe headers, so a mail was sent instead"
_UNCHECKED = (
    "it is not known whether the sender's DKIM signature covers the unsubscribe headers; "
    "set POSTROOM_TRUSTED_SERVERS to find out"
)


class Unsubscribe(OneMessage):
    """Unsubscribe from the mailing list that sent a message, by one click or by mail.

    A list that offers only a web page is refused, because a person must open it.
    """


class UnsubscribeMessage(SendOptions):
    """The mail that unsubscribes from the list of a message."""

    message_id: MessageId


@operation(Scope.SEND)
async def unsubscribe(ctx: RequestContext, request: Unsubscribe) -> Unsubscribed:
    with about_mail():
        message = await message_of(ctx, request.message_id)
        (parsed,) = await ctx.parser.parse([await ctx.blobs.read(message.raw)])
        ways = await in_thread(unsubscribe_options, parsed)
        allowed = _allowed(message, ways)
        warning = _UNSIGNED if ways.one_click is not None and allowed.one_click is None else None
        return await _unsubscribe(ctx, message, allowed, warning)


def _allowed(message: Message, ways: UnsubscribeOptions) -> UnsubscribeOptions:
    """The ways that we can go. Raises Conflict if there is none."""
    if message.direction == "outbound" or ways.public_form is None:
        raise Conflict(
            f"{message.id} has no way to unsubscribe; to handle such mail, create a rule"
        )
    if ways.one_click is None and ways.mail is None:
        raise Conflict(f"{message.id} offers only a web page at {ways.host}; a person must open it")
    if ways.one_click is not None and message.auth.get("dkim") not in ("pass", "unknown"):
        return _without_click(message, ways)
    if message.auth.get("dkim") == "pass" and not ways.is_signed:
        return _without_click(message, ways)
    return ways


def _without_click(message: Message, ways: UnsubscribeOptions) -> UnsubscribeOptions:
    """Only the mail: the headers may not be written by the sender (RFC 8058 §4)."""
    if ways.mail is None:
        raise Conflict(
            f"no valid DKIM signature of {message.id} covers its unsubscribe headers, and it "
            f"offers no mail address; a person must decide whether {ways.host} can be trusted"
        )
    return replace(ways, one_click=None)


async def _unsubscribe(
    ctx: RequestContext, message: Message, ways: UnsubscribeOptions, warning: str | None
) -> Unsubscribed:
    """By one click if it is known to be the sender's; else by mail, if there is an address."""
    is_known = message.auth.get("dkim") == "pass"
    if ways.one_click is not None and (is_known or ways.mail is None):
        problem = await _click(ctx, ways.one_click)
        if problem is None:
            warnings = None if is_known else (_UNCHECKED,)
            return Unsubscribed(message.id, "one_click", "accepted", ways.host, warnings=warnings)
        if ways.mail is None:
            raise ProviderError(f"{ways.host} did not accept the request: {problem}; try later")
        return await _write(ctx, message, ways.mail, f"{ways.host} did not accept it: {problem}")
    assert ways.mail is not None
    return await _write(ctx, message, ways.mail, _UNCHECKED if ways.one_click else warning)


async def _click(ctx: RequestContext, url: str) -> str | None:
    """Post the request of RFC 8058; returns why it was not accepted."""
    client = ctx.webhook_client.public()
    try:
        client.check(url)
    except InvalidInput as error:
        return str(error)
    posted = await client.post(url, _HEADERS, _BODY)
    if posted.is_success:
        await ctx.store.record_audit()
        return None
    return f"{posted.code} {posted.detail}".strip() if posted.code else posted.detail


async def _write(
    ctx: RequestContext, message: Message, mail: UnsubscribeMail, warning: str | None
) -> Unsubscribed:
    """Send the mail that unsubscribes, once, from the address that the list wrote to."""
    own = {identity.email for identity in await own_identities(ctx, message.inbox_id)}
    written_to = (*message.to_addresses, *message.cc_addresses, *message.bcc_addresses)
    sender = next((address for address in written_to if address.lower() in own), None)

    async def compose(_: RequestContext, __: UnsubscribeMessage) -> OutgoingMail:
        return OutgoingMail(
            inbox_id=message.inbox_id,
            sender=sender,
            to=[("", mail.address)],
            subject=mail.subject,
            text=mail.text,
        )

    key = f"unsubscribe {message.id}"
    request = UnsubscribeMessage(message_id=message.id, idempotency_key=key)
    sent = await send_once(ctx, request, compose)
    warnings = tuple(filter(None, (warning, *(sent.warnings or ())))) or None
    return Unsubscribed(
        message.id,
        "mail",
        sent.status,
        None,
        mail.address,
        sent.message_id,
        warnings,
    )
