"""The Python client of a Postroom server.

    from postroom.client import Postroom

    with Postroom("http://127.0.0.1:8700", key="pk_…") as mail:
        inbox = mail.create_inbox(name="Support")
        for message in mail.list_messages(inbox_id=inbox.id):
            print(message.subject)

Importing it loads neither the server nor HTTP.
"""

from postroom.client.client import AsyncPostroom, Postroom
from postroom.client.events import (
    AsyncEventStream,
    EventStream,
    Webhook,
    WebhookEvent,
    verify_webhook,
)
from postroom.client.files import Download, file
from postroom.client.responses import AsyncPage, AsyncPages, MergedPages, Page, merge_pages

__all__ = [
    "AsyncEventStream",
    "AsyncPage",
    "AsyncPages",
    "AsyncPostroom",
    "Download",
    "EventStream",
    "MergedPages",
    "Page",
    "Postroom",
    "Webhook",
    "WebhookEvent",
    "file",
    "merge_pages",
    "verify_webhook",
]
