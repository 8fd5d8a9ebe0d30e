"""The REST surface: read the table and you know it. One row is one endpoint."""

from __future__ import annotations

from postroom.operations import (
    attachments,
    events,
    inboxes,
    keys,
    messages,
    outbox,
    receiving,
    sending,
    threads,
    waiting,
)
from postroom.surfaces.rest.route import Route

ONCE = {"Idempotency-Key": "idempotency_key"}
"""The header under which a send happens once."""

ROUTES = (
    Route("POST", "/v1/inboxes", inboxes.create_inbox, status=201),
    Route("GET", "/v1/inboxes", inboxes.list_inboxes),
    Route("GET", "/v1/inboxes/{inbox_id}", inboxes.get_inbox),
    Route("PATCH", "/v1/inboxes/{inbox_id}", inboxes.rename_inbox),
    Route("DELETE", "/v1/inboxes/{inbox_id}", inboxes.delete_inbox, status=204),
    Route("GET", "/v1/messages", messages.list_messages),
    Route("POST", "/v1/messages", sending.send_message, status=201, headers=ONCE),
    Route("GET", "/v1/messages/wait", waiting.wait_for_message, waits=True),
    Route("GET", "/v1/messages/{message_id}", messages.get_message),
    Route("PATCH", "/v1/messages/{message_id}", messages.update_message, single=True),
    Route("DELETE", "/v1/messages/{message_id}", messages.delete_message, single=True),
    Route(
        "GET",
        "/v1/messages/{message_id}/raw",
        attachments.download_message,
        produces="message/rfc822",
    ),
    Route("POST", "/v1/messages/labels", messages.apply_label),
    Route("POST", "/v1/messages/{message_id}/move", messages.move_message, single=True),
    Route(
        "POST",
        "/v1/messages/{message_id}/reply",
        sending.reply_to_message,
        status=201,
        headers=ONCE,
    ),
    Route(
        "POST",
        "/v1/messages/{message_id}/forward",
        sending.forward_message,
        status=201,
        headers=ONCE,
    ),
    Route("GET", "/v1/search/messages", messages.search_messages),
    Route("GET", "/v1/threads", threads.list_threads),
    Route("GET", "/v1/threads/{thread_id}", threads.get_thread),
    Route("POST", "/v1/threads/merge", threads.merge_threads),
    Route("POST", "/v1/threads/{thread_id}/split", threads.split_thread),
    Route("GET", "/v1/attachments", attachments.list_attachments),
    Route("GET", "/v1/attachments/{attachment_id}", attachments.get_attachment),
    Route(
        "GET",
        "/v1/attachments/{attachment_id}/content",
        attachments.get_attachment_content,
        when=("format", "base64"),
    ),
    Route("GET", "/v1/attachments/{attachment_id}/content", attachments.download_attachment),
    Route(
        "POST",
        "/v1/inbound",
        receiving.receive_message,
        raw="raw",
        query=("recipient",),
        statuses={"received": 201, "duplicate": 200},
    ),
    Route("GET", "/v1/labels", messages.list_labels),
    Route("GET", "/v1/outbox", outbox.list_outbox),
    Route("POST", "/v1/outbox/pause", outbox.pause_outbox),
    Route("POST", "/v1/outbox/resume", outbox.resume_outbox),
    Route("POST", "/v1/outbox/{message_id}/retry", outbox.retry_message),
    Route("POST", "/v1/outbox/{message_id}/cancel", outbox.cancel_message),
    Route("GET", "/v1/events", events.list_events),
    Route(
        "GET",
        "/v1/events/stream",
        events.stream_events,
        headers={"Last-Event-ID": "since"},
        produces="text/event-stream",
    ),
    Route("POST", "/v1/keys", keys.create_key, status=201),
    Route("GET", "/v1/keys", keys.list_keys),
    Route("DELETE", "/v1/keys/{key_id}", keys.delete_key, status=204),
)
