"""Toolset `inbox`: agent inboxes, as contracts 000 and 004 name them."""

from __future__ import annotations

from postroom.operations import attachments, inboxes, messages, sending, threads
from postroom.surfaces.mcp.tool import Tool

TEXT = ("text", "truncated", "next_offset")
SENT = ("message_id", "thread_id", "status")
SELDOM = frozenset({"allow_duplicate", "wait_s"})
"""Taken by every send, but not worth a place in the list: an answer that needs it names it."""

BY_OFFSET = frozenset({"cursor"})
"""The offset is enough to read on in lists that change little."""

CREATE_INBOX = Tool(
    name="create_inbox",
    title="Create an inbox",
    operation=inboxes.create_inbox,
)
LIST_INBOXES = Tool(
    name="list_inboxes",
    title="List inboxes",
    operation=inboxes.list_inboxes,
    hide=BY_OFFSET,
)
LIST_MESSAGES = Tool(
    name="list_messages",
    title="List messages",
    operation=messages.list_messages,
    hide=frozenset({"query"}),
    go_on="get_message shows a message in full; offset reads on in the list",
)
SEARCH_MESSAGES = Tool(
    name="search_messages",
    title="Search messages",
    operation=messages.search_messages,
    go_on="get_message shows a message in full; offset reads on in the list",
)
GET_MESSAGE = Tool(
    name="get_message",
    title="Read a message",
    operation=messages.get_message,
    tell_default=frozenset({"include_attachments"}),
    answers=("id", "thread_id", "subject", "from_address", "date", *TEXT, "attachments"),
    go_on="text_offset reads on in text, with fewer extras or a smaller max_chars; "
    "list_attachments lists every attachment",
)
LIST_THREADS = Tool(
    name="list_threads",
    title="List threads",
    operation=threads.list_threads,
    hide=BY_OFFSET,
    go_on="get_thread shows a thread; offset reads on in the list",
)
GET_THREAD = Tool(
    name="get_thread",
    title="Read a thread",
    operation=threads.get_thread,
    answers=("id", "subject", "message_count", "messages", "has_more"),
    go_on="get_message shows a message in full; before, with the id of the first message here, "
    "reads further back",
)
LIST_ATTACHMENTS = Tool(
    name="list_attachments",
    title="List attachments",
    operation=attachments.list_attachments,
    hide=BY_OFFSET,
    go_on="offset reads on in the list",
)
GET_ATTACHMENT_CONTENT = Tool(
    name="get_attachment_content",
    title="Read an attachment",
    operation=attachments.get_attachment_content,
    answers=("content", "content_type", "filename", "size"),
    whole=True,
)
SEND_EMAIL = Tool(
    name="send_email",
    title="Send an e-mail",
    operation=sending.send_email,
    answers=SENT,
    hide=SELDOM,
    elsewhere={"attachments": "send_email_with_attachments"},
)
SEND_EMAIL_WITH_ATTACHMENTS = Tool(
    name="send_email_with_attachments",
    title="Send an e-mail with attachments",
    operation=sending.send_email_with_attachments,
    answers=SENT,
    hide=SELDOM,
)
REPLY_TO_MESSAGE = Tool(
    name="reply_to_message",
    title="Reply to a message",
    operation=sending.reply_to_message,
    answers=SENT,
    hide=SELDOM,
)
WAIT_FOR_MESSAGE = Tool(
    name="wait_for_message",
    title="Wait for a message",
    operation=messages.wait_for_message,
    answers=("timed_out", "extracted", "since"),
    go_on="get_message with text_offset reads on in the text",
)

TOOLS = (
    CREATE_INBOX,
    LIST_INBOXES,
    LIST_MESSAGES,
    SEARCH_MESSAGES,
    GET_MESSAGE,
    LIST_THREADS,
    GET_THREAD,
    LIST_ATTACHMENTS,
    GET_ATTACHMENT_CONTENT,
    SEND_EMAIL,
    SEND_EMAIL_WITH_ATTACHMENTS,
    REPLY_TO_MESSAGE,
    WAIT_FOR_MESSAGE,
)
