"""Mails for SMTP clients, and the stored subjects."""

from __future__ import annotations

from postroom.app import App
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from tests.mails import mail

MAIL = mail("Over SMTP").replace(b"\n", b"\r\n")


async def subjects(app: App) -> list[str]:
    return [
        row.subject
        for row in (await app.services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    ]
