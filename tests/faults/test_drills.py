"""A quick share of the fault drills; and with a defect planted, each of them notices."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from tests.faults.answering import two_machines
from tests.faults.crashes import crash_points, failing_syncs
from tests.faults.disks import broken_disk, full_disk
from tests.faults.drilled import Tally
from tests.faults.importing import killed_while_importing
from tests.faults.receiving import killed_while_posting, killed_while_receiving
from tests.faults.sending import killed_while_sending, lost_answers, one_key, strange_relays
from tests.faults.telling import killed_while_telling


def only_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")


def test_nothing_acknowledged_is_lost_or_doubled_by_a_kill() -> None:
    assert killed_while_receiving(2).is_clean


def test_nothing_acknowledged_over_rest_is_lost_or_doubled_by_a_kill() -> None:
    assert killed_while_posting(2).is_clean


def test_a_killed_import_loses_nothing_it_told_of_and_doubles_nothing() -> None:
    assert killed_while_importing(2).is_clean


def test_a_kill_while_sending_neither_loses_nor_doubles() -> None:
    assert killed_while_sending(5).is_clean


def test_a_kill_while_telling_a_webhook_leaves_nothing_untold() -> None:
    assert killed_while_telling(2).is_clean


def test_a_crash_at_some_system_calls_is_harmless() -> None:
    assert crash_points(2, mails=1).is_clean


def test_nothing_is_acknowledged_after_a_failed_sync() -> None:
    assert failing_syncs(2, mails=2).is_clean


def test_a_server_whose_disk_breaks_takes_nothing_more_and_says_so() -> None:
    assert broken_disk(1).is_clean


@pytest.mark.may_skip("needs root, to mount a small disk")
def test_a_full_disk_refuses_and_recovers_without_a_restart() -> None:
    only_root()
    assert full_disk(1).is_clean


def test_whatever_a_relay_says_each_mail_is_out_once_or_we_say_why() -> None:
    assert strange_relays(12).is_clean


def test_a_mail_whose_answer_was_lost_is_called_unknown_and_never_sent_again() -> None:
    assert lost_answers(4).is_clean


def test_fifty_callers_with_one_key_send_one_mail() -> None:
    assert one_key(1).is_clean


def test_two_machines_stop_answering_each_other() -> None:
    assert two_machines(1).is_clean


@pytest.mark.may_skip("needs root, to mount a small disk")
@pytest.mark.parametrize(
    ("drill", "defect"),
    [
        (partial(killed_while_receiving, 2), "ack_before_commit"),
        (partial(killed_while_receiving, 3), "keep_every_repeat"),
        (partial(killed_while_posting, 3), "keep_every_repeat"),
        (partial(killed_while_importing, 2), "keep_every_repeat"),
        (partial(killed_while_sending, 4), "forget_the_handing_over"),
        (partial(killed_while_telling, 4), "tell_afterwards"),
        (partial(crash_points, 3, mails=2), "store_bytes_last"),
        (partial(failing_syncs, 4, mails=20), "forget_a_failed_sync"),
        (partial(broken_disk, 1), "never_sync"),
        (partial(full_disk, 1), "accept_when_full"),
        (partial(strange_relays, 24), "send_what_is_unknown_again"),
        (partial(lost_answers, 1), "send_what_is_unknown_again"),
        (partial(one_key, 1), "forget_keys"),
        (partial(two_machines, 1), "answer_anyone"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.func.__name__,
)
def test_a_drill_notices_a_defect(drill: Callable[..., Tally], defect: str) -> None:
    if defect == "accept_when_full":
        only_root()

    assert not drill(defect=defect).is_clean
