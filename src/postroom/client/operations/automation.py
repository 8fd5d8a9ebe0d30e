"""Operations: automation. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from postroom.client.events import EventStream
from postroom.client.method import operation, pages, stream
from postroom.client.responses import Page
from postroom.client.values.mail import ActionResult
from postroom.client.values.records import (
    DryRunPlan,
    Event,
    Rule,
    Webhook,
    WebhookDelivery,
    WebhookPing,
)


class AutomationOperations:
    """Conditions and actions for mail. Effects that a rule would have, before anything is
    done. Events of mail, as a list and as a stream. URLs that receive events.
    """

    @operation("POST", "/v1/rules")
    def create_rule(self, rule_yaml: str, *, dry_run: bool | None = None) -> Rule | DryRunPlan:
        """Plan a rule over stored mail: what it would do, and why.

        apply_rule_plan applies it. dry_run=false saves the rule for new mail instead.

        Args:
            rule_yaml: The rule in YAML. Conditions: all any none not, and from to cc subject
                text header.X label flag mailbox has_attachment attachment.name
                attachment.type size_bytes age_days date list_id auth with equals contains
                matches regex in greater_than less_than after before exists. Actions:
                apply_label remove_label move mark_read mark_unread flag unflag archive delete
                forward reply webhook stop.
            dry_run: Plan only (default True).
        """

    @pages("GET", "/v1/rules")
    def list_rules(
        self, *, limit: int | None = None, offset: int | None = None, cursor: str | None = None
    ) -> Page[Rule]:
        """List saved rules in the order in which they run."""

    @operation("GET", "/v1/rules/{rule_id}")
    def get_rule(self, rule_id: str) -> Rule:
        """Show one rule."""

    @operation("PATCH", "/v1/rules/{rule_id}")
    def update_rule(
        self,
        rule_id: str,
        *,
        enabled: bool | UnsetType | None = UNSET,
        position: int | UnsetType | None = UNSET,
    ) -> Rule:
        """Enable or disable a rule, or change its position.

        Args:
            enabled: Whether it runs.
            position: Its position; 1 runs first.
        """

    @operation("DELETE", "/v1/rules/{rule_id}")
    def delete_rule(self, rule_id: str) -> Rule:
        """Delete a rule, and return it. Its changes stay."""

    @operation("POST", "/v1/rules/{rule_id}/plan")
    def run_rule_plan(
        self, rule_id: str, *, limit: int | None = None, offset: int | None = None
    ) -> DryRunPlan:
        """Plan a saved rule over stored mail; apply_rule_plan applies it.

        Args:
            limit: Page size (default 50).
            offset: Rows to skip.
        """

    @operation("GET", "/v1/plans/{plan_id}")
    def get_rule_plan(
        self,
        plan_id: str,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
    ) -> DryRunPlan:
        """Read further pages of a plan: its messages, newest first, with actions and reasons."""

    @operation("POST", "/v1/plans/{plan_id}/apply")
    def apply_rule_plan(self, plan_id: str) -> ActionResult:
        """Apply a plan exactly as it is; if one of its messages changed since, nothing is done."""

    @operation("POST", "/v1/plans/{plan_id}/undo")
    def undo_rule_plan(self, plan_id: str) -> ActionResult:
        """Undo an applied plan, except what was changed again since."""

    @pages("GET", "/v1/events")
    def list_events(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
        message_id: str | None = None,
        types: Sequence[str] | None = None,
        sort: Literal["newest", "oldest"] | None = None,
    ) -> Page[Event]:
        """List events of mail, oldest first. stream_events sends new ones as they happen.

        Args:
            inbox_id: Only this inbox.
            message_id: Only this message.
            types: Only these types.
            sort: Sort order (default oldest).
        """

    @stream("GET", "/v1/events/stream")
    def stream_events(
        self,
        *,
        inbox_id: str | None = None,
        types: Sequence[str] | None = None,
        since: str | None = None,
    ) -> EventStream:
        """Stream events as they happen, optionally after a given event.

        Imported mail is not included.

        Args:
            inbox_id: Only this inbox.
            types: Only these types.
            since: Begin after this event.
        """

    @operation("POST", "/v1/webhooks")
    def create_webhook(
        self, url: str, *, types: Sequence[str] | None = None, inboxes: Sequence[str] | None = None
    ) -> Webhook:
        """Send events to a URL. The secret is shown only once.

        Args:
            url: The URL to send events to.
            types: Only these types; default: all.
            inboxes: Only these inboxes; default: all.
        """

    @pages("GET", "/v1/webhooks")
    def list_webhooks(
        self, *, limit: int | None = None, offset: int | None = None, cursor: str | None = None
    ) -> Page[Webhook]:
        """List the webhooks, oldest first; their secrets are not shown."""

    @operation("PATCH", "/v1/webhooks/{webhook_id}")
    def update_webhook(
        self,
        webhook_id: str,
        *,
        url: str | UnsetType | None = UNSET,
        types: Sequence[str] | UnsetType | None = UNSET,
        enabled: bool | UnsetType | None = UNSET,
    ) -> Webhook:
        """Change the URL or the types of a webhook, or disable it; events that happen meanwhile
        are not delivered.

        Args:
            url: The new URL.
            types: Only these types; an empty list: all.
            enabled: Whether it receives events.
        """

    @operation("POST", "/v1/webhooks/{webhook_id}/ping")
    def ping_webhook(self, webhook_id: str) -> WebhookPing:
        """Send a signed request of the type webhook.ping to a webhook now, and return the
        response.
        """

    @operation("DELETE", "/v1/webhooks/{webhook_id}")
    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook: it gets no more events."""

    @operation("POST", "/v1/webhooks/{webhook_id}/renew")
    def renew_webhook(self, webhook_id: str) -> Webhook:
        """Create a new secret for a webhook; requests are also signed with the old one for a
        day.

        A webhook that stopped because its key lost a right resumes with your key, signed with
        the new secret only.
        """

    @pages("GET", "/v1/webhooks/{webhook_id}/deliveries")
    def list_deliveries(
        self,
        webhook_id: str,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
    ) -> Page[WebhookDelivery]:
        """List the deliveries of a webhook with their responses, newest first."""

    @operation("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver")
    def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Send a delivery to its webhook again."""
