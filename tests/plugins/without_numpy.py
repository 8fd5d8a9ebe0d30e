"""Runs tests as if numpy were not installed: `pytest -p tests.plugins.without_numpy`."""

from __future__ import annotations

import sys

assert "numpy" not in sys.modules, "name this plugin with -p, so that it comes first"
sys.modules["numpy"] = None  # type: ignore[assignment]
