"""Shared counters of several processes have one value in each, and survive kills."""

from __future__ import annotations

import os
import signal

from postroom.pipeline.counters import PART_BYTES, Counts, SharedCounters


def test_every_process_reads_the_sums_over_all_processes() -> None:
    counters = SharedCounters(3)
    parts = [counters.part(n) for n in range(3)]
    parts[0].own(("asked",))[0] += 2
    parts[2].own(("asked",))[0] += 5
    parts[1].own(("times", "/täglich"), 3)[2] += 7

    expected = {("asked",): [7], ("times", "/täglich"): [0, 0, 7]}
    assert [expected] * 3 == [part.totals() for part in parts]


def test_a_new_process_continues_the_counts_of_its_slot() -> None:
    counters = SharedCounters(2)
    counters.part(1).own(("asked",))[0] += 2
    heir = counters.part(1)
    heir.own(("asked",))[0] += 1
    heir.own(("new",))[0] += 1

    assert {("asked",): [3], ("new",): [1]} == counters.totals()


def test_a_killed_process_has_published_its_counts() -> None:
    counters = SharedCounters(2)
    child = os.fork()
    if child == 0:
        try:
            Counts(counters.part(1)).add("smtp_accepted", 3)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    counts = Counts(counters.part(0))
    counts.add("smtp_accepted")

    assert 4 == counts["smtp_accepted"]


def test_a_kill_while_writing_a_name_leaves_no_entry() -> None:
    """The used size is written last: bytes behind it are ignored."""
    counters = SharedCounters()
    counters.own(("first",))[0] += 1
    used = counters._part[0]
    counters.own(("a name that is longer than others",), 4)[3] = 9
    counters._part[0] = used

    heir = counters.part(0)
    heir.own(("x",), 12)[11] += 1

    assert {("first",): [1], ("x",): [0] * 11 + [1]} == heir.totals()


def test_counters_without_space_are_dropped() -> None:
    counters = SharedCounters(2)
    for n in range(PART_BYTES // 32 + 10):
        counters.own((f"{n:08}",))[0] += 1
    counters.part(1).own(("other",))[0] += 1

    totals = counters.totals()
    assert [1] == totals["00000000",] == totals["other",]
    assert len(totals) < PART_BYTES // 32 + 10
