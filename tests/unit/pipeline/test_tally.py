"""Numbers that several processes add to are one truth, whoever is asked and whoever is killed."""

from __future__ import annotations

import os
import signal

from postroom.pipeline.counts import Counts
from postroom.pipeline.tally import PART_BYTES, Tally


def test_whoever_is_asked_tells_the_sums_over_all_parts() -> None:
    tally = Tally(3)
    parts = [tally.part(n) for n in range(3)]
    parts[0].own(("asked",))[0] += 2
    parts[2].own(("asked",))[0] += 5
    parts[1].own(("times", "/täglich"), 3)[2] += 7

    expected = {("asked",): [7], ("times", "/täglich"): [0, 0, 7]}
    assert [expected] * 3 == [part.totals() for part in parts]


def test_whoever_takes_over_a_part_goes_on_with_its_numbers() -> None:
    tally = Tally(2)
    tally.part(1).own(("asked",))[0] += 2
    heir = tally.part(1)
    heir.own(("asked",))[0] += 1
    heir.own(("new",))[0] += 1

    assert {("asked",): [3], ("new",): [1]} == tally.totals()


def test_a_process_that_is_killed_has_told_all_it_counted() -> None:
    tally = Tally(2)
    child = os.fork()
    if child == 0:
        try:
            Counts(tally.part(1)).add("smtp_accepted", 3)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    counts = Counts(tally.part(0))
    counts.add("smtp_accepted")

    assert 4 == counts["smtp_accepted"]


def test_who_is_killed_in_the_middle_of_a_name_leaves_no_trace() -> None:
    """The words used are written last: without that, there is only rubbish behind the end."""
    tally = Tally()
    tally.own(("first",))[0] += 1
    used = tally._part[0]
    tally.own(("a name that is longer than others",), 4)[3] = 9
    tally._part[0] = used

    heir = tally.part(0)
    heir.own(("x",), 12)[11] += 1

    assert {("first",): [1], ("x",): [0] * 11 + [1]} == heir.totals()


def test_what_has_no_room_is_not_counted_and_harms_nobody() -> None:
    tally = Tally(2)
    for n in range(PART_BYTES // 32 + 10):
        tally.own((f"{n:08}",))[0] += 1
    tally.part(1).own(("other",))[0] += 1

    totals = tally.totals()
    assert [1] == totals["00000000",] == totals["other",]
    assert len(totals) < PART_BYTES // 32 + 10
