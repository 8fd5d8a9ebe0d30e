"""Peak memory of a block of code."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MB = 1024 * 1024
_STATUS = Path("/proc/self/status")


def _kilobytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


@contextmanager
def growth_below(most_bytes: int) -> Iterator[None]:
    """Fail if the process takes this much more memory while the block runs."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _kilobytes("VmRSS")
    yield
    grown = (_kilobytes("VmHWM") - before) * 1024

    assert grown < most_bytes, f"{grown / MB:.0f} MB more"
