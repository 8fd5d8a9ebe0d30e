"""The door to rules and what they do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.facts import Facts
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult
from postroom.model.page import Found, Slice
from postroom.model.rule import Errand, Plan, PlanItem, Rule
from postroom.model.stored import MessageQuery


class StoresRules(Protocol):
    """Rules, plans, and what they do later."""

    async def add_rule(self, rule: Rule) -> Rule:
        """Keep a new rule as the last one. Raises Conflict when there are too many."""

    async def rules(self, visible: Visible, page: Slice) -> Found[Rule]: ...
    async def every_rule(self) -> list[Rule]:
        """All rules, in the order in which they run."""

    async def rule(self, rule_id: str, visible: Visible) -> Rule:
        """Raises NotFound."""

    async def change_rule(
        self,
        rule_id: str,
        visible: Visible,
        *,
        enabled: bool | None,
        position: int | None,
        now: datetime,
    ) -> Rule:
        """Raises NotFound."""

    async def remove_rule(self, rule_id: str, visible: Visible) -> Rule:
        """Raises NotFound."""

    async def candidates(self, queries: Sequence[MessageQuery]) -> list[int]:
        """The numbers of all messages that answer one of the questions, latest first."""

    async def facts(
        self, numbers: Sequence[int], *, with_text: bool, with_files: bool
    ) -> list[Facts]:
        """What rules see of some messages; of those that are gone, nothing."""

    async def save_plan(self, plan: Plan, items: Sequence[PlanItem]) -> None: ...
    async def plan(self, plan_id: str, visible: Visible) -> Plan:
        """Raises NotFound."""

    async def plan_items(
        self, plan_id: str, visible: Visible, page: Slice
    ) -> tuple[Plan, Found[PlanItem]]:
        """Raises NotFound."""

    async def apply_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        """Do exactly what a plan says, or nothing. Raises NotFound, Conflict."""

    async def undo_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        """Put back what is still as the plan left it. Raises NotFound, Conflict."""

    async def claim_errands(
        self, holder: str, *, now: datetime, until: datetime, limit: int
    ) -> list[Errand]: ...
    async def next_errand_at(self) -> datetime | None: ...
    async def settle_errand(
        self, errand: Errand, *, now: datetime, failed: str | None, next_at: datetime | None
    ) -> None:
        """Write down that it is done, is to be tried again, or has failed for good."""
