"""The mail that tells the owner of mail that waits for approval."""

from __future__ import annotations

import logging
from dataclasses import replace

from postroom.calls.context import RequestContext
from postroom.errors import MailError
from postroom.model.inbox import Inbox
from postroom.model.key import NOTICES
from postroom.model.sending import Sent
from postroom.sending.outgoing_mail import OutgoingMail
from postroom.sending.submission import Sending, send_once

log = logging.getLogger(__name__)

_EVERY_S = 600
"""One notice is enough for all mail that an inbox holds within this time."""


class HeldNotice(Sending):
    """Tells the owner that mail of an inbox waits."""

    inbox_id: str


async def tell_owner(ctx: RequestContext, sent: Sent, inbox: Inbox) -> None:
    """Tell the owner that a mail is held, if the settings name an address.

    The notice says nothing that the mail says. It is no reason to fail if it cannot be sent.
    """
    if ctx.gate.notify is None or sent.status != "held" or sent.deduplicated:
        return
    number = int(ctx.clock().timestamp()) // _EVERY_S
    request = HeldNotice(inbox_id=inbox.id, idempotency_key=f"{inbox.id}/{number}")
    try:
        await send_once(replace(ctx, caller=NOTICES), request, _notice)
    except MailError as error:
        log.warning("notice.failed", extra={"inbox_id": inbox.id, "error": str(error)})


async def _notice(ctx: RequestContext, request: HeldNotice) -> OutgoingMail:
    return OutgoingMail(
        inbox_id=request.inbox_id,
        to=[("", ctx.gate.notify or "")],
        subject="Mail waits for your approval",
        text=(
            "An agent has written mail that waits for your approval. Nothing is sent until you "
            f"decide.\n\nSign in to read and decide: {ctx.gate.page_url}\n"
            "On the server: postroom outbox list --status held\n"
        ),
        headers=(("Auto-Submitted", "auto-generated"),),
    )
