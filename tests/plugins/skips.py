"""In CI a skipped test is a failed test, unless it is marked with `may_skip`.

Otherwise a machine that lacks a server would pass without testing anything. A test that depends on
the machine is marked: `@pytest.mark.may_skip("needs a kernel with …")`.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


def is_strict() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and item.get_closest_marker("may_skip") is None:
        refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself has no marker that allows it."""
    report = yield
    if report.skipped:
        refuse(report)
    return report


def refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not is_strict():
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = (
        f"{reason}\nCI skips nothing silently: install what is missing (scripts/), or mark the "
        'test with @pytest.mark.may_skip("why").'
    )
