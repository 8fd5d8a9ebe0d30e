"""Exchange mail with a real Postfix, in both directions."""

from __future__ import annotations

import asyncio
import os
import smtplib
from dataclasses import replace
from email import message_from_bytes
from pathlib import Path

import pytest

from postroom.app import App
from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations.mail.messages import wait_for_message
from postroom.operations.outgoing.sending import send_message
from postroom.pipeline.outbox import Outbox
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from postroom.surfaces.smtp.server import listening
from tests.mails import mail, new_inbox
from tests.servers.postfix import postfix

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/sbin/postfix").exists(), reason="needs root and Postfix"
)


@pytest.mark.may_skip("Postfix is started by root only")
async def test_mail_is_sent_by_postfix_and_delivered_by_it(app: App) -> None:
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    opened = replace(app, settings=settings, services=replace(app.services, has_relay=True))
    ctx = opened.context(OWNER)
    inbox = await new_inbox(ctx)
    async with listening(opened) as listener:
        assert listener is not None
        with postfix(listener.port) as port:

            def submit() -> None:
                with smtplib.SMTP("127.0.0.1", port) as client:
                    client.send_message(message_from_bytes(mail("By Postfix", to=inbox.address)))

            await asyncio.to_thread(submit)
            first = await call(
                ctx, wait_for_message, {"inbox_id": inbox.id, "since": "evt_0", "timeout_s": 60}
            )
            relay = SmtpRelay(parse_relay_url(f"smtp://127.0.0.1:{port}"), "postroom.localhost")
            task = asyncio.create_task(Outbox(ctx, relay).run())
            outgoing_mail = {
                "to": ["ana@elsewhere.example"],
                "subject": "Out",
                "body_text": "Grüße",
            }
            sent = await call(ctx, send_message, {**outgoing_mail, "wait_s": 30})
            # Postfix delivers it to us, we reject it, and Postfix sends us a bounce.
            second = await call(
                ctx,
                wait_for_message,
                {"inbox_id": inbox.id, "since": sent.message_id, "timeout_s": 60},
            )
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert first.message is not None
    assert second.message is not None
    assert ("By Postfix", "sent") == (first.message.subject, sent.status)
    after = await ctx.store.message(sent.message_id, EVERYTHING)
    assert after is not None
    assert "bounced" == after.status, second.message.subject
    assert 3 == (await ctx.store.messages(MessageQuery(visible=EVERYTHING))).total
