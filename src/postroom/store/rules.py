"""The part of the store that knows of rules and what they do; see `ports.rules`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.model.facts import Facts
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult
from postroom.model.page import Found, Slice
from postroom.model.rule import Errand, Plan, PlanItem, Rule
from postroom.model.stored import MessageQuery
from postroom.store.audited import Audited, told_itself
from postroom.store.search.find import Finder
from postroom.store.sql import applying, errands, facts, plans, rules, undoing


class SqlRules(Audited):
    """Each method is one function of `store.sql`, run in one transaction."""

    _finder: Finder

    async def add_rule(self, rule: Rule) -> Rule:
        return await self._write(lambda tx: rules.add_rule(tx, rule))

    async def rules(self, visible: Visible, page: Slice) -> Found[Rule]:
        return await self._engine.read(lambda tx: rules.list_rules(tx, visible, page))

    async def every_rule(self) -> list[Rule]:
        return await self._engine.read(rules.every_rule)

    async def rule(self, rule_id: str, visible: Visible) -> Rule:
        return await self._engine.read(lambda tx: rules.get_rule(tx, rule_id, visible))

    async def change_rule(
        self,
        rule_id: str,
        visible: Visible,
        *,
        enabled: bool | None,
        position: int | None,
        now: datetime,
    ) -> Rule:
        return await self._write(
            lambda tx: rules.change_rule(
                tx, rule_id, visible, enabled=enabled, position=position, now=now
            )
        )

    async def remove_rule(self, rule_id: str, visible: Visible) -> Rule:
        return await self._write(lambda tx: rules.remove_rule(tx, rule_id, visible))

    async def candidates(self, queries: Sequence[MessageQuery]) -> list[int]:
        return await self._engine.read(lambda tx: facts.candidates(tx, queries, self._finder))

    async def facts(
        self, numbers: Sequence[int], *, with_text: bool, with_files: bool
    ) -> list[Facts]:
        return await self._engine.read(
            lambda tx: facts.read_facts(tx, numbers, with_text=with_text, with_files=with_files)
        )

    async def save_plan(self, plan: Plan, items: Sequence[PlanItem]) -> None:
        # Planning is no act: nothing of what it looks at is changed.
        await self._engine.write(lambda tx: plans.save_plan(tx, plan, items))

    async def plan(self, plan_id: str, visible: Visible) -> Plan:
        return await self._engine.read(lambda tx: plans.get_plan(tx, plan_id, visible))

    async def plan_items(
        self, plan_id: str, visible: Visible, page: Slice
    ) -> tuple[Plan, Found[PlanItem]]:
        return await self._engine.read(lambda tx: plans.plan_items(tx, plan_id, visible, page))

    async def apply_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        return await self._write(
            lambda tx: applying.apply_plan(tx, plan_id, visible, actor=actor, now=now),
            is_act=told_itself,
        )

    async def undo_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        return await self._write(
            lambda tx: undoing.undo_plan(tx, plan_id, visible, actor=actor, now=now),
            is_act=told_itself,
        )

    async def claim_errands(
        self, holder: str, *, now: datetime, until: datetime, limit: int
    ) -> list[Errand]:
        return await self._write(
            lambda tx: errands.claim_errands(tx, holder, now=now, until=until, limit=limit)
        )

    async def next_errand_at(self) -> datetime | None:
        return await self._engine.read(errands.next_errand_at)

    async def settle_errand(
        self, errand: Errand, *, now: datetime, failed: str | None, next_at: datetime | None
    ) -> None:
        await self._write(
            lambda tx: errands.settle_errand(tx, errand, now=now, failed=failed, next_at=next_at)
        )
