"""The cost of a cold start of `postroom mcp`, compared with a bare server of the same SDK.

From the start of the process to the responses to `initialize` and `tools/list`: CPU time and memory
of each, alternately, and the ratio of the medians. The bare server has one tool and loads no
database. The bars are 1.15 for CPU time and 1.25 for memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

MOST_CPU = 1.15
MOST_MEMORY = 1.25
TICKS = os.sysconf("SC_CLK_TCK")

BARE = """
import anyio, mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

async def list_tools(ctx, params):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tool = types.Tool(name="echo", description="Say it back.", input_schema=schema)
    return types.ListToolsResult(tools=[tool])

async def call_tool(ctx, params):
    words = (params.arguments or {}).get("text", "")
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)])

async def main():
    server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

anyio.run(main)
"""


@dataclass(frozen=True)
class Start:
    """The cost of one start until the list of tools."""

    cpu_s: float
    memory_mb: float


def measure(command: list[str]) -> Start:
    """Start a server, initialise, list its tools, and measure what it has used."""
    # Bytecode must be cached, or every start would compile the modules again.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    ask(process, 1, "initialize", {**hello, "clientInfo": {"name": "bench", "version": "1"}})
    tell(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    ask(process, 2, "tools/list", {})
    start = Start(cpu_s(process.pid), memory_mb(process.pid))
    process.communicate(timeout=10)
    return start


def tell(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> None:
    assert process.stdout is not None
    tell(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    answer = json.loads(process.stdout.readline())
    if "result" not in answer:
        raise SystemExit(f"{method} failed: {answer}")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    resident = next(line for line in lines if line.startswith("VmRSS:"))
    return int(resident.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--toolsets", help="instead of those that are listed by default")
    given = parser.parse_args()
    rounds = given.rounds
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "postroom", "mcp", "--data", folder]
        ours += ["--toolsets", given.toolsets] if given.toolsets else []
        bare = [sys.executable, "-c", BARE]
        measure(ours), measure(bare)  # the first ones compile and fill caches
        pairs = [(measure(ours), measure(bare)) for _ in range(rounds)]
    report("CPU", "s", MOST_CPU, [(our.cpu_s, their.cpu_s) for our, their in pairs])
    report("memory", "MB", MOST_MEMORY, [(our.memory_mb, their.memory_mb) for our, their in pairs])


def report(what: str, unit: str, most: float, pairs: list[tuple[float, float]]) -> None:
    ours, bare = median(our for our, _ in pairs), median(their for _, their in pairs)
    verdict = "ok" if ours / bare <= most else "too much"
    print(
        f"{what}: postroom {ours:.2f} {unit}, bare server {bare:.2f} {unit}, "
        f"ratio {ours / bare:.2f} (at most {most}: {verdict})"
    )


if __name__ == "__main__":
    main()
