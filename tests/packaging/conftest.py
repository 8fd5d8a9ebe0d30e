"""Environments as users install them, created once for a state of this tree."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def cached_folder(name: str, sources: Iterable[Path], *command: str | Path) -> Path:
    """A folder in .cache that a command fills, given as its last argument; older ones are removed.

    Several test processes may request it at once.
    """
    seen = hashlib.sha256()
    for path in sorted(sources):
        seen.update(f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}\n".encode())
    kept = ROOT / ".cache" / name
    kept.mkdir(parents=True, exist_ok=True)
    folder = kept / seen.hexdigest()[:16]
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".made").exists():
            return folder
        for old in kept.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        done = subprocess.run(
            [*command, folder], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        (folder / ".made").touch()
    return folder


def sources() -> list[Path]:
    """The inputs of a wheel, and the pins."""
    package = [p for p in (ROOT / "src").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return [*package, ROOT / "pyproject.toml", ROOT / "constraints" / "run.txt"]


@pytest.fixture(scope="session")
def small() -> Path:
    """The programs of an environment without extras."""
    return cached_folder("small-environment", sources(), "scripts/small-environment") / "bin"
