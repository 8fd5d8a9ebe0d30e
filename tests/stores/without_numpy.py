"""Stores as they are where numpy is not installed, beside others where it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from postroom.extras import EXTRAS, is_installed
from postroom.store.store import Store
from tests.stores.conftest import OpenAgain
from tests.stores.recalling import ask


@contextmanager
def without_numpy() -> Iterator[None]:
    """In this block, what asks for numpy is told that it is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXTRAS, "index", EXTRAS["index"]._replace(modules=("no_such_module",)))
        assert not is_installed("index")
        yield


async def open_without_numpy(open_again: OpenAgain) -> Store:
    """A store that has chosen how it searches before numpy is found again."""
    with without_numpy():
        store = await open_again()
        await ask(store, "anything")
    return store
