"""Applying a plan does exactly what the plan says, in thousands of random runs.

`RULE_RUNS=5000` is the full run (`make rule-runs`).
"""

from __future__ import annotations

import os

from tests.mails import new_inbox
from tests.operations.rule_runs import many_runs

RUNS = int(os.environ.get("RULE_RUNS", "250"))


async def test_a_plan_and_its_effect_never_differ(ctx):
    inbox = await new_inbox(ctx)

    mailbox = await many_runs(ctx, inbox, runs=RUNS, seed=8)

    assert RUNS == mailbox.planned
    assert mailbox.stale > RUNS * 0.05
    assert mailbox.undone > RUNS * 0.1
    assert (await ctx.store.check_audit()).is_whole
    assert () == await ctx.store.problems()
