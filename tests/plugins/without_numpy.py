"""Runs tests as if numpy were not installed: `pytest -p tests.plugins.without_numpy`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class WithoutNumpy(PathFinder):
    """Finds every installed module but those of numpy."""

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "numpy":
            return None
        return super().find_spec(fullname, path, target)


assert "numpy" not in sys.modules, "name this plugin with -p, so that it is loaded first"
sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutNumpy
