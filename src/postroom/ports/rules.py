"""The store of rules, plans and rule jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.inbox import Visible
from postroom.model.key import Caller
from postroom.model.message import ActionResult
from postroom.model.page import Found, Slice
from postroom.model.rule import Action, Facts, Loss, Plan, PlanItem, Rule, RuleJob
from postroom.model.storage import MessageQuery


class RuleStore(Protocol):
    """Rules, their plans, and the jobs that they leave."""

    async def add_rule(self, rule: Rule, visible: Visible) -> Rule:
        """Add a rule after all others. Raises Conflict if there are too many."""

    async def rules(self, visible: Visible, page: Slice) -> Found[Rule]: ...
    async def every_rule(self) -> list[Rule]:
        """All rules, in the order in which they run."""

    async def upgrade_losses(self) -> list[Loss]:
        """Effects of rules that an upgrade has dropped."""

    async def rule(self, rule_id: str, visible: Visible) -> Rule:
        """Raises NotFound."""

    async def change_rule(
        self,
        rule_id: str,
        visible: Visible,
        *,
        enabled: bool | None,
        position: int | None,
        authority: str | None = None,
        now: datetime,
    ) -> Rule:
        """Change a rule; *authority* is the id of the key that it acts for. Raises NotFound."""

    async def remove_rule(self, rule_id: str, visible: Visible) -> Rule:
        """Raises NotFound."""

    async def candidates(self, queries: Sequence[MessageQuery]) -> list[int]:
        """The numbers of all messages that match one of the queries, newest first."""

    async def facts(
        self, numbers: Sequence[int], *, with_text: bool, with_files: bool
    ) -> list[Facts]:
        """What rules compare of these messages; removed ones are left out."""

    async def save_plan(self, plan: Plan, items: Sequence[PlanItem]) -> None: ...
    async def plan(self, plan_id: str, visible: Visible) -> Plan:
        """Raises NotFound."""

    async def plan_items(
        self, plan_id: str, visible: Visible, page: Slice
    ) -> tuple[Plan, Found[PlanItem]]:
        """Raises NotFound."""

    async def plan_acts(self, plan_id: str, visible: Visible) -> frozenset[Action]:
        """The distinct actions of a plan. Raises NotFound."""

    async def apply_plan(
        self, plan_id: str, caller: Caller, *, authority: str, now: datetime
    ) -> ActionResult:
        """Apply a whole plan or nothing. Raises NotFound, Conflict.

        Its rule jobs act for the key with the id *authority*.
        """

    async def undo_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        """Revert the messages that have not changed since. Raises NotFound, Conflict."""

    async def claim_rule_jobs(
        self, holder: str, *, now: datetime, until: datetime, limit: int
    ) -> list[RuleJob]: ...
    async def next_rule_job_at(self) -> datetime | None: ...
    async def settle_rule_job(
        self, job: RuleJob, *, now: datetime, failed: str | None, next_at: datetime | None
    ) -> None:
        """Record that a job is done, is to be retried, or has failed."""
