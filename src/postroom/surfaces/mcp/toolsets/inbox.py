"""Toolset `inbox`: agent inboxes, as contracts 000 and 004 name them."""

from __future__ import annotations

from postroom.operations import inboxes
from postroom.operations.mail import attachments, messages, threads
from postroom.operations.outgoing import drafts, outbox, sending
from postroom.surfaces.mcp.tool import Tool

TEXT = ("text", "truncated", "next_offset")
SENT = ("message_id", "status")
SELDOM = frozenset({"allow_duplicate", "wait_s", "reply_to", "headers", "send_at", "automatic"})
"""Taken by every send, but not worth a place in the list: an answer that needs it names it."""

BY_OFFSET = frozenset({"cursor"})
"""The offset is enough to read on in lists that change little."""

SEARCH_MESSAGES = Tool(
    "search_messages",
    "Search messages",
    messages.search_messages,
    go_on="get_message shows a message in full; offset reads on in the list",
)
GET_MESSAGE = Tool(
    "get_message",
    "Read a message",
    messages.get_message,
    tell_default=frozenset({"include_attachments"}),
    answers=("id", "thread_id", *TEXT, "attachments"),
    go_on="text_offset reads on in text, with fewer extras or a smaller max_chars; "
    "list_attachments lists every attachment",
)
GET_THREAD = Tool(
    "get_thread",
    "Read a thread",
    threads.get_thread,
    answers=("messages", "has_more"),
    go_on="get_message shows a message in full; before, with the id of the first message here, "
    "reads further back",
)

TOOLS = (
    Tool("create_inbox", "Create an inbox", inboxes.create_inbox),
    Tool("list_inboxes", "List inboxes", inboxes.list_inboxes, hide=BY_OFFSET),
    Tool(
        "list_messages",
        "List messages",
        messages.list_messages,
        hide=frozenset({"query", "subject", "flags", "mode", "sort", "cursor"}),
        go_on="get_message shows a message in full; offset reads on in the list",
    ),
    SEARCH_MESSAGES,
    GET_MESSAGE,
    Tool(
        "list_threads",
        "List threads",
        threads.list_threads,
        hide=BY_OFFSET,
        go_on="get_thread shows a thread; offset reads on in the list",
    ),
    GET_THREAD,
    Tool(
        "list_attachments",
        "List attachments",
        attachments.list_attachments,
        hide=BY_OFFSET,
        go_on="offset reads on in the list",
    ),
    Tool(
        "get_attachment_content",
        "Read an attachment",
        attachments.get_attachment_content,
        answers=("content", "text", "content_type", "filename", "size"),
        go_on="offset reads on in text",
        whole=True,
        cut="text",
    ),
    Tool(
        "send_email",
        "Send an e-mail",
        sending.send_email,
        answers=SENT,
        hide=SELDOM,
        elsewhere={"attachments": "send_email_with_attachments"},
    ),
    Tool(
        "send_email_with_attachments",
        "Send an e-mail with attachments",
        sending.send_email_with_attachments,
        answers=SENT,
        hide=SELDOM,
    ),
    Tool(
        "reply_to_message",
        "Reply to a message",
        sending.reply_to_message,
        answers=SENT,
        hide=SELDOM,
    ),
    Tool(
        "cancel_message",
        "Cancel a message",
        outbox.cancel_message,
        answers=("draft_id",),
        description="Stop a queued or scheduled message: it becomes a draft again.",
    ),
    Tool(
        "list_drafts",
        "List drafts",
        drafts.list_drafts,
        hide=frozenset({"cursor", "offset", "inbox_id"}),
    ),
    Tool(
        "wait_for_message",
        "Wait for a message",
        messages.wait_for_message,
        answers=("timed_out", "extracted", "since"),
        go_on="get_message with text_offset reads on in the text",
    ),
)
