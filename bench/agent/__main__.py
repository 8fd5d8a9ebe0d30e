"""The cost of forty daily tasks of an agent: `python -m bench.agent`.

Each task is a script of tool calls, run through the MCP client on a fresh copy of the same mailbox,
once with the toolset `agent` and once with those of the contracts. The end state is checked. Bytes
and tokens are those of arguments and answers together.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from mcp import Client

from bench.agent import organising_tasks, writing_tasks  # noqa: F401 - they add their tasks
from bench.agent.mailbox import fill
from bench.agent.session import CallFailed, FinalMailbox, Session, count_tokens
from bench.agent.tasks import TASKS, Script, Task
from bench.search.measuring import table
from postroom.app import open_app
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.surfaces.mcp.call_tool import as_text
from postroom.surfaces.mcp.server import make_server
from postroom.surfaces.mcp.tool import describe
from postroom.surfaces.mcp.toolsets import choose_tools

TOOLSETS = {"agent": ("agent",), "contracts": ("inbox", "mail", "memory")}
MOST_CALLS, MOST_BYTES, MOST_TOKENS = 2.2, 2_000, 0.25


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a task; `problem` says why it failed."""

    calls: int
    size: int
    tokens: int
    problem: str = ""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.agent", description=__doc__)
    parser.add_argument("--only", help="run the tasks whose name contains this")
    return parser.parse_args()


async def run_task(task: Task, script: Script, toolsets: Sequence[str], folder: Path) -> Cost:
    settings = read_settings({"POSTROOM_DATA_DIR": str(folder)}).settings
    async with open_app(settings) as app:
        server = make_server(app, choose_tools(toolsets), lambda _: OWNER)
        async with Client(server) as client:
            session, problem = Session(client), ""
            try:
                answer = await script(session)
                await task.check(FinalMailbox(app.context(OWNER)), answer)
            except (AssertionError, CallFailed, KeyError, IndexError, ValueError) as error:
                problem = f"{type(error).__name__}: {error}"
    return Cost(session.calls, session.sent_bytes + session.received_bytes, session.tokens, problem)


async def prepare(folder: Path) -> None:
    settings = read_settings({"POSTROOM_DATA_DIR": str(folder)}).settings
    async with open_app(settings) as app:
        await fill(app.context(OWNER))


async def run(options: argparse.Namespace, folder: Path) -> bool:
    chosen = [task for task in TASKS if not options.only or options.only in task.name]
    costs: dict[str, list[Cost]] = {name: [] for name in TOOLSETS}
    rows: list[list[object]] = [["task", *(f"{n}: calls, bytes, tokens" for n in TOOLSETS)]]
    for number, task in enumerate(chosen):
        # The mailbox is filled again, because some tasks are about mail of the last seconds.
        original = folder / f"original-{number}"
        await prepare(original)
        row: list[object] = [task.name]
        for name, toolsets in TOOLSETS.items():
            script = task.agent if name == "agent" else task.contracts
            if script is None:
                row.append("not possible")
                continue
            copy = folder / f"{name}-{number}"
            shutil.copytree(original, copy)
            cost = await run_task(task, script, toolsets, copy)
            costs[name].append(cost)
            row.append(cost.problem or f"{cost.calls:3} {cost.size:7,} {cost.tokens:6,}")
            shutil.rmtree(copy)
        shutil.rmtree(original)
        rows.append(row)
    rows.append(["mean", *(mean_of(costs[name]) for name in TOOLSETS)])
    table(rows)
    return show_bars(costs)


def mean_of(costs: Sequence[Cost]) -> str:
    calls, size = mean(c.calls for c in costs), mean(c.size for c in costs)
    tokens = mean(c.tokens for c in costs)
    return f"{calls:4.2f} {size:6,.0f} {tokens:6,.0f}"


def show_bars(costs: dict[str, list[Cost]]) -> bool:
    agent, contracts = costs["agent"], costs["contracts"]
    failed = sum(bool(cost.problem) for cost in (*agent, *contracts))
    calls, size = mean(c.calls for c in agent), mean(c.size for c in agent)
    share = sum(c.tokens for c in agent) / max(1, sum(c.tokens for c in contracts))
    listed = as_text(describe(choose_tools(["agent"])))
    print(f"\nfailed: {failed} (bar 0)")
    print(f"agent: {calls:.2f} calls (bar {MOST_CALLS}), {size:,.0f} bytes (bar {MOST_BYTES:,})")
    print(f"tokens: {share:.2f} of the contracts' toolsets (bar {MOST_TOKENS})")
    print(f"tools/list of agent: {len(listed):,} bytes, {count_tokens(listed):,} tokens")
    return not failed and calls <= MOST_CALLS and size <= MOST_BYTES and share <= MOST_TOKENS


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-agent-") as folder:
        is_good = asyncio.run(run(arguments(), Path(folder)))
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
