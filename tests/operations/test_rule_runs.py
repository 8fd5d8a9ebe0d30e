"""What a plan says is what happens: in thousands of random runs the difference is empty.

`RULE_RUNS=5000` is the full run (`make rule-runs`).
"""

from __future__ import annotations

import os

from tests.mails import new_inbox
from tests.operations.rule_runs import many_runs

RUNS = int(os.environ.get("RULE_RUNS", "250"))


async def test_a_plan_and_its_effect_never_differ(ctx):
    inbox = await new_inbox(ctx)

    world = await many_runs(ctx, inbox, runs=RUNS, seed=8)

    assert RUNS == world.planned
    assert world.stale > RUNS * 0.05
    assert world.undone > RUNS * 0.1
    assert (await ctx.store.check_audit()).is_whole
    assert () == await ctx.store.problems()
