"""What the contracts require, each with an id that tests name; `test_coverage` checks both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Requirement:
    """A scenario of a contract in one sentence."""

    contract: str
    sentence: str


REQUIREMENTS = {
    "search:thread": Requirement("000", "thread_id returns all messages of that thread"),
    "search:thread-in-inbox": Requirement("000", "inbox_id and thread_id together narrow both"),
    "search:no-filter": Requirement("000", "without inbox_id or thread_id the answer is 422"),
    "search:q-alone": Requirement("000", "q without inbox_id or thread_id is 422"),
    "search:q-in-inbox": Requirement("000", "q looks in subject, text, sender and file names"),
    "search:q-in-thread": Requirement("000", "q within a thread"),
    "search:attachment-filename": Requirement("000", "q finds a part of an attachment's name"),
    "search:no-match": Requirement("000", "no match is an empty list with count 0"),
    "search:default-page": Requirement("000", "50 messages from offset 0 by default"),
    "search:custom-page": Requirement("000", "limit and offset choose the page"),
    "search:total": Requirement("000", "total counts all matches, not the page"),
    "search:beyond": Requirement("000", "an offset past the end is empty with the true total"),
    "search:tool-thread": Requirement("000", "the tool list_messages takes thread_id"),
    "search:tool-combined": Requirement("000", "list_messages combines inbox, thread and q"),
    "search:tool-search": Requirement("000", "the tool search_messages finds text in an inbox"),
    "search:tool-search-thread": Requirement("000", "search_messages within a thread"),
    "search:tool-search-page": Requirement("000", "search_messages pages and counts"),
    "attachments:by-message": Requirement("004", "list_attachments of a message, with metadata"),
    "attachments:by-thread": Requirement("004", "list_attachments of all messages of a thread"),
    "attachments:by-inbox": Requirement("004", "list_attachments of an inbox, in pages"),
    "attachments:no-filter": Requirement("004", "list_attachments without a filter is an error"),
    "attachments:content": Requirement("004", "get_attachment_content: base64, type and name"),
    "attachments:content-missing": Requirement("004", "an unknown attachment is not found"),
    "attachments:always-base64": Requirement("004", "content is base64 whatever the type"),
    "attachments:send-one": Requirement("004", "send_email_with_attachments sends one file"),
    "attachments:send-several": Requirement("004", "several files are sent and stored"),
    "attachments:bad-base64": Requirement("004", "invalid base64 is a clear error"),
    "attachments:send-reply": Requirement("004", "with thread_id the mail joins the thread"),
    "attachments:send-email": Requirement("004", "send_email is unchanged and takes no files"),
    "memory:search-tool": Requirement("003", "memory_search: key, summary, relevance; pages"),
    "memory:fulltext-tool": Requirement("003", "memory_fulltext_search: AND, OR, highlighting"),
    "memory:validation": Requirement("003", "wrong parameters are a descriptive error"),
    "memory:output": Requirement("003", "results are shaped like those of other memory tools"),
    "memory:registration": Requirement("003", "with search enabled both tools are listed"),
    "memory:schema": Requirement("003", "every parameter has a description and an example"),
    "memory:compatibility": Requirement("003", "a tool says the same as its REST endpoint"),
}


def requirement(name: str) -> Callable[[F], F]:
    """Say which requirement a test shows to hold."""
    return pytest.mark.requirement(name)
