"""A small run of the backup drill; it also detects a planted defect, in `make faults`."""

from __future__ import annotations

import pytest

from tests.faults.backups import run_backups


def test_each_backup_under_load_is_a_consistent_snapshot() -> None:
    found = run_backups(2, per_s=20, every_s=0.5)

    assert found.is_clean, str(found)
    assert found.mails > 0


@pytest.mark.long
def test_a_backup_without_the_wal_is_detected() -> None:
    backups = (
        run_backups(1, per_s=30, every_s=0.5, defect="copy_database_without_wal") for _ in range(6)
    )

    assert not all(found.is_clean for found in backups)
