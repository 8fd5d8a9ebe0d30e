"""The requirements of the contracts, each with an id that tests name; `test_coverage`
checks both.
"""

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
    "imap:tools": Requirement("002", "ten tools, with these names, arguments and defaults"),
    "imap:envelope": Requirement("002", "every answer has summary, data and meta"),
    "imap:error": Requirement("002", "every error has code, message, details and meta"),
    "imap:soft": Requirement("002", "failures of a server are data: status, issues, next_action"),
    "imap:account-id": Requirement("002", "account_id fits a pattern and is default by default"),
    "imap:mailbox": Requirement("002", "a mailbox is 1 to 256 characters without controls"),
    "imap:message-id": Requirement("002", "message_id is imap, account, mailbox and two numbers"),
    "imap:message-id-account": Requirement("002", "message_id names the account that is asked"),
    "imap:limit": Requirement("002", "limit is 1 to 50, 10 by default"),
    "imap:secrets": Requirement("002", "no secret is in any answer"),
    "imap:tls": Requirement("002", "certificate and host name are verified by default"),
    "imap:list-accounts": Requirement("002", "accounts: id, host, port, secure; next_action"),
    "imap:verify-account": Requirement("002", "reached, entered, and what the server can do"),
    "imap:list-mailboxes": Requirement("002", "mailboxes with name and delimiter, at most 200"),
    "imap:search": Requirement("002", "a page of summaries with its counts"),
    "imap:search-criteria": Requirement("002", "each criterion narrows the search"),
    "imap:search-text": Requirement("002", "search texts are 1 to 256 characters, no controls"),
    "imap:search-days": Requirement("002", "last_days is 1 to 365 and excludes the two dates"),
    "imap:search-dates": Requirement("002", "dates are YYYY-MM-DD, start not after end"),
    "imap:search-cursor": Requirement("002", "a cursor goes on, and excludes criteria"),
    "imap:search-snippet": Requirement("002", "snippets on demand, 50 to 500 characters"),
    "imap:search-many": Requirement("002", "more than 20,000 matches are refused"),
    "imap:get": Requirement("002", "a message with its fields"),
    "imap:get-body": Requirement("002", "body_max_chars is 100 to 20000, 2000 by default"),
    "imap:get-headers": Requirement("002", "headers: the curated ones, all, or none"),
    "imap:get-html": Requirement("002", "HTML on demand, sanitised and bounded"),
    "imap:get-attachments": Requirement("002", "at most 50 attachments, with type, size, part"),
    "imap:get-pdf": Requirement("002", "the text of PDFs on demand, bounded"),
    "imap:get-pdf-size": Requirement("002", "no text of a PDF over 5 MB"),
    "imap:get-pdf-failure": Requirement("002", "a PDF that fails does not fail the call"),
    "imap:raw": Requirement("002", "the source, byte for byte in base64"),
    "imap:raw-bytes": Requirement("002", "max_bytes is 1024 to 1000000, 200000 by default"),
    "imap:gate": Requirement("002", "changes need MAIL_IMAP_WRITE_ENABLED=true"),
    "imap:flags": Requirement("002", "flags are added and removed, and told"),
    "imap:flags-given": Requirement("002", "1 to 20 flags to add or to remove"),
    "imap:copy": Requirement("002", "a copy within an account, with its new id"),
    "imap:copy-account": Requirement("002", "a copy to another account"),
    "imap:move": Requirement("002", "a move within an account, with its new id"),
    "imap:move-fallback": Requirement("002", "without MOVE: a copy and a deletion"),
    "imap:delete": Requirement("002", "a deletion of this one message"),
    "imap:delete-confirm": Requirement("002", "confirm must be true"),
    "imap:cost-search": Requirement("issue 6", "a warm page of 50 takes 3 round trips at most"),
    "imap:cost-get": Requirement("issue 6", "a message takes 3 round trips, 100 KB of 25 MB"),
    "imap:environment": Requirement("002", "accounts and timeouts come from the environment"),
    "memory:search-tool": Requirement("003", "memory_search: key, summary, relevance; pages"),
    "memory:fulltext-tool": Requirement("003", "memory_fulltext_search: AND, OR, highlighting"),
    "memory:validation": Requirement("003", "wrong parameters are a descriptive error"),
    "memory:output": Requirement("003", "results are shaped like those of other memory tools"),
    "memory:registration": Requirement("003", "with search enabled both tools are listed"),
    "memory:schema": Requirement("003", "every parameter has a description and an example"),
    "memory:compatibility": Requirement("003", "a tool says the same as its REST endpoint"),
    "rules:create-dry-run": Requirement("001", "create_rule returns a DryRunPlan by default"),
    "rules:create": Requirement("001", "create_rule with dry_run=false returns the Rule"),
    "rules:create-wrong": Requirement("001", "a rule that is wrong is INVALID_REQUEST"),
    "rules:plan": Requirement("001", "run_rule_plan returns a plan without executing"),
    "rules:apply": Requirement("001", "a plan is executed as it was shown, or refused"),
    "mail:search": Requirement("001", "search_messages filters by text, labels, from, to, dates"),
    "mail:search-page": Requirement("001", "results, total_count, limit, offset and has_more"),
    "mail:get-message": Requirement("001", "get_message has headers, body and attachments"),
    "mail:get-thread": Requirement("001", "get_thread has all messages of a conversation"),
    "mail:apply-label": Requirement("001", "apply_label puts a label on several messages"),
    "mail:move": Requirement("001", "move_message moves to a mailbox"),
    "mail:send": Requirement("001", "send_message takes text, HTML, cc, bcc, a reply and files"),
    "mail:identities": Requirement("001", "list_identities lists who one may send as"),
    "mail:alias": Requirement("001", "create_alias makes an address with name and signature"),
    "mail:errors": Requirement("001", "an error has one of six codes and a message"),
    "mail:capabilities": Requirement("001", "get_capabilities has provider, limits and threading"),
}


def requirement(name: str) -> Callable[[F], F]:
    """Mark a test with the requirement that it verifies."""
    return pytest.mark.requirement(name)
