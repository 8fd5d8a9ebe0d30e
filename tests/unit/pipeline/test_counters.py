"""Numbers that several processes add to are one truth, whoever is asked and whoever is killed."""

from __future__ import annotations

import os
import signal

from postroom.pipeline.counters import PART_BYTES, Counts, SharedCounters


def test_whoever_is_asked_tells_the_sums_over_all_parts() -> None:
    counters = SharedCounters(3)
    parts = [counters.part(n) for n in range(3)]
    parts[0].own(("asked",))[0] += 2
    parts[2].own(("asked",))[0] += 5
    parts[1].own(("times", "/täglich"), 3)[2] += 7

    expected = {("asked",): [7], ("times", "/täglich"): [0, 0, 7]}
    assert [expected] * 3 == [part.totals() for part in parts]


def test_whoever_takes_over_a_part_goes_on_with_its_numbers() -> None:
    counters = SharedCounters(2)
    counters.part(1).own(("asked",))[0] += 2
    heir = counters.part(1)
    heir.own(("asked",))[0] += 1
    heir.own(("new",))[0] += 1

    assert {("asked",): [3], ("new",): [1]} == counters.totals()


def test_a_process_that_is_killed_has_told_all_it_counted() -> None:
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


def test_who_is_killed_in_the_middle_of_a_name_leaves_no_trace() -> None:
    """The words used are written last: without that, there is only rubbish behind the end."""
    counters = SharedCounters()
    counters.own(("first",))[0] += 1
    used = counters._part[0]
    counters.own(("a name that is longer than others",), 4)[3] = 9
    counters._part[0] = used

    heir = counters.part(0)
    heir.own(("x",), 12)[11] += 1

    assert {("first",): [1], ("x",): [0] * 11 + [1]} == heir.totals()


def test_what_has_no_room_is_not_counted_and_harms_nobody() -> None:
    counters = SharedCounters(2)
    for n in range(PART_BYTES // 32 + 10):
        counters.own((f"{n:08}",))[0] += 1
    counters.part(1).own(("other",))[0] += 1

    totals = counters.totals()
    assert [1] == totals["00000000",] == totals["other",]
    assert len(totals) < PART_BYTES // 32 + 10
