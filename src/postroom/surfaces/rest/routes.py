"""The routes table of the REST surface: one row per endpoint, with its path and its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from postroom.calls.context import RequestContext
from postroom.calls.operation import Operation
from postroom.calls.request import argument_names
from postroom.operations import (
    accounts,
    inboxes,
    keys,
    memories,
    memory_search,
    rules,
    webhooks,
)
from postroom.operations.mail import (
    attachments,
    bulk_changes,
    inbound,
    message_changes,
    messages,
    threads,
    unsubscribing,
)
from postroom.operations.outgoing import approvals, drafts, identities, outbox, sending

Location = Literal["path", "query", "body", "raw", "headers"]
"""Where an argument is given; `raw` is the unchanged body, `headers` all headers."""

NOTHING_HERE = "there is nothing at this path"
WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})


@dataclass(frozen=True)
class Route:
    """A row of the table.

    `statuses` chooses the status by the `status` of the result. `raw` names the argument that is
    the body itself. `query` names arguments in the query of a request that has a body.
    `headers` lets a header give an argument. `when` chooses this row if a query has this argument.
    `single` means that the path names the one message the action is about: if it failed, the
    request failed. `produces` is the media type of a download. `posted` are the media types of
    what a provider posts to us, for which it has no key: its argument `headers` gets the headers it
    came with, and `expect` says by these how many bytes may come.
    """

    method: str
    path: str
    operation: Operation[Any, Any]
    status: int = 200
    statuses: Mapping[str, int] = field(default_factory=dict)
    raw: str | None = None
    query: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    when: str | None = None
    single: bool = False
    produces: str = "*/*"
    posted: tuple[str, ...] = ()
    expect: Callable[[RequestContext, str, Mapping[str, str]], int] | None = None

    @cached_property
    def path_arguments(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def locations(self) -> dict[str, Location]:
        """Where each argument of the operation is given."""
        return {name: self._location(name) for name in argument_names(self.operation.request)}

    def _location(self, name: str) -> Location:
        if name in self.path_arguments:
            return "path"
        if name == self.raw:
            return "raw"
        if name == "headers" and self.posted:
            return "headers"
        return "query" if name in self.query or self.method in WITHOUT_BODY else "body"

    @cached_property
    def has_json_body(self) -> bool:
        return "body" in self.locations.values()

    @property
    def takes_body(self) -> bool:
        """Whether a body is read, even if no argument is in it."""
        return self.has_json_body or self.method not in WITHOUT_BODY

    def at(self, location: Location) -> list[str]:
        """The arguments that are given in one place."""
        return [name for name, where in self.locations.items() if where == location]


def names_of(routes: Iterable[Route]) -> dict[str, str]:
    """What each operation is called over REST; of several endpoints, the first."""
    names: dict[str, str] = {}
    for route in routes:
        names.setdefault(route.operation.name, f"{route.method} {route.path}")
    return names


def _send(path: str, operation: Operation[Any, Any]) -> Route:
    """A send, which a header makes happen once."""
    once = {"Idempotency-Key": "idempotency_key"}
    return Route("POST", path, operation, status=201, headers=once)


ROUTES = (
    Route("POST", "/v1/inboxes", inboxes.create_inbox, status=201),
    Route("GET", "/v1/inboxes", inboxes.list_inboxes),
    Route("GET", "/v1/inboxes/{inbox_id}", inboxes.get_inbox),
    Route("PATCH", "/v1/inboxes/{inbox_id}", inboxes.rename_inbox),
    Route("DELETE", "/v1/inboxes/{inbox_id}", inboxes.delete_inbox, status=204),
    Route("GET", "/v1/inboxes/{inbox_id}/policy", approvals.get_policy),
    Route("PATCH", "/v1/inboxes/{inbox_id}/policy", approvals.set_policy),
    Route("POST", "/v1/policy/test", approvals.check_policy, raw="raw", query=("key_id",)),
    Route("GET", "/v1/messages", messages.list_messages),
    _send("/v1/messages", sending.send_message),
    Route("GET", "/v1/messages/wait", messages.wait_for_message),
    Route("GET", "/v1/messages/{message_id}", messages.get_message),
    Route("PATCH", "/v1/messages/{message_id}", message_changes.update_message, single=True),
    Route("DELETE", "/v1/messages/{message_id}", message_changes.delete_message, single=True),
    Route(
        "GET",
        "/v1/messages/{message_id}/raw",
        attachments.download_message,
        produces="message/rfc822",
    ),
    Route("GET", "/v1/messages/{message_id}/link", attachments.link_message),
    Route("POST", "/v1/messages/labels", message_changes.apply_label),
    Route("POST", "/v1/messages/update", bulk_changes.update_messages),
    Route("POST", "/v1/messages/{message_id}/move", message_changes.move_message, single=True),
    _send("/v1/messages/{message_id}/reply", sending.reply_to_message),
    _send("/v1/messages/{message_id}/forward", sending.forward_message),
    Route("POST", "/v1/messages/{message_id}/unsubscribe", unsubscribing.unsubscribe),
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
        when="format",
    ),
    Route("GET", "/v1/attachments/{attachment_id}/content", attachments.download_attachment),
    Route("GET", "/v1/attachments/{attachment_id}/link", attachments.link_attachment),
    Route(
        "POST",
        "/v1/inbound",
        inbound.receive_message,
        raw="raw",
        query=("recipient",),
        statuses={"received": 201, "duplicate": 200},
    ),
    Route(
        "POST",
        "/v1/inbound/{provider}",
        inbound.receive_posting,
        raw="raw",
        query=("format",),
        posted=("multipart/form-data", "application/x-www-form-urlencoded", "application/json"),
        expect=inbound.max_inbound_bytes,
    ),
    Route("GET", "/v1/ids/{prefix}", inboxes.find_ids),
    Route("GET", "/v1/mailboxes", message_changes.list_mailboxes),
    Route("GET", "/v1/labels", message_changes.list_labels),
    Route("PATCH", "/v1/labels/{label}", message_changes.rename_label),
    Route("DELETE", "/v1/labels/{label}", message_changes.delete_label, status=204),
    Route("POST", "/v1/drafts", drafts.create_draft, status=201),
    Route("GET", "/v1/drafts", drafts.list_drafts),
    Route("GET", "/v1/drafts/{draft_id}", drafts.get_draft),
    Route("PATCH", "/v1/drafts/{draft_id}", drafts.update_draft),
    Route("DELETE", "/v1/drafts/{draft_id}", drafts.delete_draft, status=204),
    _send("/v1/drafts/{draft_id}/send", drafts.send_draft),
    Route("GET", "/v1/outbox", outbox.list_outbox),
    Route("POST", "/v1/outbox/pause", outbox.pause_outbox),
    Route("POST", "/v1/outbox/resume", outbox.resume_outbox),
    Route("GET", "/v1/outbox/{message_id}", approvals.get_held_mail),
    Route("POST", "/v1/outbox/{message_id}/approve", approvals.approve_message),
    Route("POST", "/v1/outbox/{message_id}/reject", approvals.reject_message),
    Route("POST", "/v1/outbox/{message_id}/retry", outbox.retry_message),
    Route("POST", "/v1/outbox/{message_id}/cancel", outbox.cancel_message),
    Route("GET", "/v1/events", webhooks.list_events),
    Route(
        "GET",
        "/v1/events/stream",
        webhooks.stream_events,
        headers={"Last-Event-ID": "since"},
        produces="text/event-stream",
    ),
    Route("POST", "/v1/webhooks", webhooks.create_webhook, status=201),
    Route("GET", "/v1/webhooks", webhooks.list_webhooks),
    Route("PATCH", "/v1/webhooks/{webhook_id}", webhooks.update_webhook),
    Route("POST", "/v1/webhooks/{webhook_id}/ping", webhooks.ping_webhook),
    Route("DELETE", "/v1/webhooks/{webhook_id}", webhooks.delete_webhook, status=204),
    Route("POST", "/v1/webhooks/{webhook_id}/renew", webhooks.renew_webhook),
    Route("GET", "/v1/webhooks/{webhook_id}/deliveries", webhooks.list_deliveries),
    Route(
        "POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", webhooks.redeliver
    ),
    Route("POST", "/v1/memories", memories.memory_add, statuses={"created": 201, "updated": 200}),
    Route("GET", "/v1/memories", memory_search.memory_list),
    Route("GET", "/v1/memories/search", memory_search.memory_search),
    Route("GET", "/v1/memories/fulltext", memory_search.memory_fulltext_search),
    Route("GET", "/v1/memories/{key}", memories.memory_get),
    Route("PATCH", "/v1/memories/{key}", memories.memory_update),
    Route("DELETE", "/v1/memories/{key}", memories.memory_delete),
    Route("POST", "/v1/rules", rules.create_rule, status=201),
    Route("GET", "/v1/rules", rules.list_rules),
    Route("GET", "/v1/rules/{rule_id}", rules.get_rule),
    Route("PATCH", "/v1/rules/{rule_id}", rules.update_rule),
    Route("DELETE", "/v1/rules/{rule_id}", rules.delete_rule),
    Route("POST", "/v1/rules/{rule_id}/plan", rules.run_rule_plan),
    Route("GET", "/v1/plans/{plan_id}", rules.get_rule_plan),
    Route("POST", "/v1/plans/{plan_id}/apply", rules.apply_rule_plan),
    Route("POST", "/v1/plans/{plan_id}/undo", rules.undo_rule_plan),
    Route("GET", "/v1/audit", keys.list_audit),
    Route("GET", "/v1/identities", identities.list_identities),
    Route("POST", "/v1/identities", identities.create_alias, status=201),
    Route("PATCH", "/v1/identities/{identity_id}", identities.update_identity),
    Route("DELETE", "/v1/identities/{identity_id}", identities.delete_identity, status=204),
    Route("POST", "/v1/accounts", accounts.add_account, status=201),
    Route("GET", "/v1/accounts", accounts.list_accounts),
    Route("DELETE", "/v1/accounts/{account_id}", accounts.remove_account, status=204),
    Route("POST", "/v1/accounts/{account_id}/sync", accounts.sync_account),
    Route("POST", "/v1/accounts/{account_id}/check", accounts.check_account),
    Route("POST", "/v1/accounts/{account_id}/login", accounts.log_in_account),
    Route("GET", "/v1/capabilities", accounts.get_capabilities),
    Route("POST", "/v1/keys", keys.create_key, status=201),
    Route("GET", "/v1/keys", keys.list_keys),
    Route("PATCH", "/v1/keys/{key_id}", keys.update_key),
    Route("DELETE", "/v1/keys/{key_id}", keys.delete_key, status=204),
)
