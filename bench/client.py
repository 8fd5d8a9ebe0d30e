"""The cost of importing the Python client: CPU time of a new process, as a ratio.

    make bench-client

Each program is started several times alternately, and the fastest start counts.
"""

from __future__ import annotations

import os
import subprocess
import sys

ROUNDS = 15
PROGRAMS = {
    "python": "pass",
    "msgspec": "import msgspec",
    "the client": "import postroom.client",
    "httpx2": "import httpx2",
    "the client, made": "from postroom.client import Postroom; Postroom()",
    "pydantic": "import pydantic",
    "the server": "import postroom.app",
}


def cpu_s(program: str) -> float:
    """The CPU time of one start."""
    process = subprocess.Popen([sys.executable, "-c", program])
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


def main() -> None:
    best = dict.fromkeys(PROGRAMS, float("inf"))
    for _ in range(ROUNDS):
        for name, program in PROGRAMS.items():
            best[name] = min(best[name], cpu_s(program))
    print(f"{'program':<18} {'CPU ms':>7} {'to python':>10} {'to httpx2':>10}")
    for name, seconds in best.items():
        ratios = (seconds / best["python"], seconds / best["httpx2"])
        print(f"{name:<18} {seconds * 1000:>7.0f} {ratios[0]:>9.1f}x {ratios[1]:>9.2f}x")


if __name__ == "__main__":
    main()
