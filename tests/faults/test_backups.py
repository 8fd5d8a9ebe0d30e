"""A quick share of the drill on backups; and with a defect planted, it notices."""

from __future__ import annotations

from tests.faults.backups import backed_up


def test_each_backup_of_a_busy_installation_is_one_whole_moment() -> None:
    found = backed_up(2, per_s=20, every_s=0.5)

    assert found.is_clean, str(found)
    assert found.mails > 0


def test_a_copy_of_the_file_alone_is_noticed() -> None:
    backups = (backed_up(1, per_s=30, every_s=0.5, defect="copy_the_file") for _ in range(6))

    assert not all(found.is_clean for found in backups)
