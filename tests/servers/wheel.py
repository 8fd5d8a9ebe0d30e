"""The wheel as installed by users: built from this tree, and unpacked elsewhere."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def unpacked(folder: Path) -> Path:
    """Build the wheel, and unpack it where the source tree is not importable."""
    words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    [wheel] = (folder / "dist").glob("*.whl")
    installed = folder / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    return installed
