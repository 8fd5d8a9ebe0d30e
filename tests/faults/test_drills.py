"""A quick share of the fault drills; and with a defect planted, each of them notices."""

from __future__ import annotations

from tests.faults.drills import (
    crash_points,
    failing_syncs,
    killed_while_receiving,
    killed_while_sending,
)


def test_nothing_acknowledged_is_lost_or_doubled_by_a_kill() -> None:
    assert killed_while_receiving(2).is_clean


def test_a_kill_while_sending_neither_loses_nor_doubles() -> None:
    assert killed_while_sending(5).is_clean


def test_a_crash_at_some_system_calls_is_harmless() -> None:
    assert crash_points(2, mails=1).is_clean


def test_nothing_is_acknowledged_after_a_failed_sync() -> None:
    assert failing_syncs(2, mails=2).is_clean


def test_the_drill_notices_an_acknowledgement_that_comes_too_early() -> None:
    assert killed_while_receiving(2, "ack_before_commit").lost


def test_the_drill_notices_a_repeat_that_is_kept() -> None:
    assert killed_while_receiving(3, "keep_every_repeat").doubled


def test_the_drill_notices_a_mail_that_goes_out_twice() -> None:
    assert killed_while_sending(4, "forget_the_handing_over").doubled
