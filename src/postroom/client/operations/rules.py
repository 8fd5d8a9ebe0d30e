"""Operations: rules, plans. Made by scripts/make_client.py."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from postroom.client.method import operation, pages
from postroom.client.pages import Page
from postroom.client.values.mail import ActionResult
from postroom.client.values.records import DryRunPlan, Rule


class RulesOperations:
    """What is done with mail by itself. What a rule would do, to be carried out or not."""

    @operation("POST", "/v1/rules")
    def create_rule(self, rule_yaml: str, *, dry_run: bool | None = None) -> Rule | DryRunPlan:
        """Plan a rule over stored mail: what it would do, and why.

        apply_rule_plan carries it out. dry_run=false saves the rule for new mail instead.

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
        """List saved rules in the order they run in."""

    @operation("GET", "/v1/rules/{rule_id}")
    def get_rule(self, rule_id: str) -> Rule:
        """Show one rule.

        Args:
            rule_id: The rule.
        """

    @operation("PATCH", "/v1/rules/{rule_id}")
    def update_rule(
        self,
        rule_id: str,
        *,
        enabled: bool | UnsetType | None = UNSET,
        position: int | UnsetType | None = UNSET,
    ) -> Rule:
        """Switch a rule on or off, or let it run earlier or later.

        Args:
            rule_id: The rule.
            enabled: Whether it runs.
            position: Its place; 1 runs first.
        """

    @operation("DELETE", "/v1/rules/{rule_id}")
    def delete_rule(self, rule_id: str) -> Rule:
        """Delete a rule, and show what it was.

        What it did stays.

        Args:
            rule_id: The rule.
        """

    @operation("POST", "/v1/rules/{rule_id}/plan")
    def run_rule_plan(
        self, rule_id: str, *, limit: int | None = None, offset: int | None = None
    ) -> DryRunPlan:
        """Plan a saved rule over stored mail; apply_rule_plan carries it out.

        Args:
            rule_id: The rule.
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
        """Read on in a plan: its messages, newest first, each with actions and reasons.

        Args:
            plan_id: The plan.
        """

    @operation("POST", "/v1/plans/{plan_id}/apply")
    def apply_rule_plan(self, plan_id: str) -> ActionResult:
        """Carry out a plan exactly as it is; if one of its messages changed since, nothing is
        done.

        Args:
            plan_id: The plan.
        """

    @operation("POST", "/v1/plans/{plan_id}/undo")
    def undo_rule_plan(self, plan_id: str) -> ActionResult:
        """Take back an applied plan, except what was changed again since.

        Args:
            plan_id: The plan.
        """
