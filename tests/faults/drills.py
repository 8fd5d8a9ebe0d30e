"""Fault drills against a real server: each counts tries, losses, duplicates and corruption.

    python -m tests.faults.drills 0.1 one_key

prints the table, and exits with 1 if anything but `tried` and `acknowledged` is not zero.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tests.faults.approvals import killed_while_approving
from tests.faults.auto_replies import two_machines
from tests.faults.crashes import crash_points, failing_syncs
from tests.faults.disks import broken_disk, full_disk
from tests.faults.importing import killed_while_importing
from tests.faults.receiving import killed_while_posting, killed_while_receiving
from tests.faults.scheduling import killed_while_scheduled
from tests.faults.sending import killed_while_sending, lost_answers, one_key, strange_relays
from tests.faults.server_under_test import Outcome
from tests.faults.syncing import killed_while_syncing
from tests.faults.webhooks import killed_while_calling_webhooks

DRILLS: tuple[tuple[Callable[[int], Outcome], int], ...] = (
    (killed_while_receiving, 1_000),
    (killed_while_posting, 500),
    (killed_while_importing, 1_000),
    (killed_while_syncing, 1_000),
    (killed_while_sending, 1_000),
    (killed_while_approving, 500),
    (killed_while_scheduled, 200),
    (killed_while_calling_webhooks, 200),
    (crash_points, 250),
    (failing_syncs, 200),
    (broken_disk, 20),
    (full_disk, 10),
    (strange_relays, 200),
    (lost_answers, 500),
    (one_key, 50),
    (two_machines, 20),
)
"""Each drill, and the size of its full run."""


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    rows = [("drill", "tried", "acknowledged", "lost", "doubled", "torn")]
    rows += [
        (t.name, *(str(n) for n in (t.tried, t.acknowledged, t.lost, t.doubled, t.torn)))
        for t in outcomes
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|---|---|---|---|---|", *lines[1:]])


def main() -> int:
    names = [drill.__name__ for drill, _ in DRILLS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scale", nargs="?", type=float, default=0.1, help="1 is the full run")
    parser.add_argument("drills", nargs="*", metavar="drill", help=f"some of {', '.join(names)}")
    given = parser.parse_args()
    if unknown := set(given.drills) - set(names):
        parser.error(f"no drill {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    outcomes = []
    for drill, full in DRILLS:
        if given.drills and drill.__name__ not in given.drills:
            continue
        outcomes.append(drill(max(2, round(full * given.scale))))
        print(outcomes[-1], flush=True)
    print(table(outcomes))
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
