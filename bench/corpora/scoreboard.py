"""The scores of a set of real mail, and the required minimum."""

from __future__ import annotations

import time
from collections import Counter

from postroom.mail.message import ParsedMessage
from postroom.mail.parse import read_message
from postroom.model.limits import Limits

LIMITS = Limits()
SLOW_S = 2.0
# The required minimum in percent; other sets are for information.
BARS = {
    ("mime", "fully right"): 96,
    ("threading", "damaged, recall"): 99,
    ("threading", "damaged, precision"): 99,
    ("replies", "text and eml"): 78,
    ("bounces", "recognised"): 99,
    ("bounces", "hard or soft"): 91,
    ("bounces", "status"): 90,
    ("bounces", "recipient"): 95,
    ("bulk", "date"): 100,
    ("bulk", "no crash"): 100,
    ("bulk", "under 2 s"): 100,
}


class Scoreboard:
    """Counts correct results, and prints wrong ones on request."""

    def __init__(self, name: str, *, verbose: bool) -> None:
        self.name = name
        self.verbose = verbose
        self.right: Counter[str] = Counter()
        self.all: Counter[str] = Counter()
        self.amounts: Counter[str] = Counter()
        self.slowest = 0.0

    def score(self, what: str, case: str, *, right: bool, why: object = "") -> None:
        self.all[what] += 1
        self.right[what] += right
        if not right and self.verbose:
            print(f"  {self.name} {what}: {case}: {why}")

    def count(self, what: str, right: int, total: int) -> None:
        self.right[what] += right
        self.all[what] += total

    def add(self, what: str, amount: int) -> None:
        """Count something that has no correct value, such as characters."""
        self.amounts[what] += amount

    def parse(self, raw: bytes, case: str) -> ParsedMessage | None:
        """Parse a mail without error handling, and measure the time."""
        started = time.process_time()
        try:
            return read_message(raw, LIMITS)
        except Exception as error:  # noqa: BLE001, every crash counts
            self.score("no crash", case, right=False, why=repr(error))
            return None
        finally:
            took = time.process_time() - started
            self.slowest = max(self.slowest, took)
            if took > SLOW_S:
                self.score("under 2 s", case, right=False, why=f"{took:.1f} s")

    def show(self) -> bool:
        """Print the scores; returns whether every minimum is reached."""
        reached = True
        for what, total in self.all.items():
            score = 100 * self.right[what] / total
            bar = BARS.get((self.name, what))
            verdict = "" if bar is None else f"bar {bar}" if score >= bar else f"BELOW {bar}"
            reached = reached and (bar is None or score >= bar)
            print(
                f"{self.name:10} {what:26} {self.right[what]:6}/{total:<6} {score:6.2f} % {verdict}"
            )
        for what, amount in self.amounts.items():
            print(f"{self.name:10} {what:26} {amount:6}")
        if self.slowest:
            print(f"{self.name:10} slowest message {self.slowest * 1000:.0f} ms of CPU")
        return reached
