"""Marks cases of parametrised tests as `long`: `@pytest.mark.long_cases("postgres-words")`.

The rest stay in `make test`, for example one case of each database and one of each surface; the
other combinations run the same code.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        case = getattr(item, "callspec", None)
        given = [name for mark in item.iter_markers("long_cases") for name in mark.args]
        if case is not None and case.id in given:
            item.add_marker(pytest.mark.long)
