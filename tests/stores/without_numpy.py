"""Stores opened as if numpy were not installed, beside others with numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from postroom.extras import EXTRAS, is_installed
from postroom.store.store import Store
from tests.stores.conftest import OpenAgain
from tests.stores.ranking_helpers import ask


@contextmanager
def without_numpy() -> Iterator[None]:
    """In this block, imports of numpy fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXTRAS, "index", EXTRAS["index"]._replace(modules=("no_such_module",)))
        assert not is_installed("index")
        yield


async def open_without_numpy(open_again: OpenAgain) -> Store:
    """A store that chose its search implementation while numpy could not be imported."""
    with without_numpy():
        store = await open_again()
        await ask(store, "anything")
    return store
